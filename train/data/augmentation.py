"""Random changes of one training image, made on the device inside the step.

jax is imported when they are made: it takes seconds, and data sets are found without it.
"""

# ruff: noqa: PLC0415
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jax

# The mean and deviation of ImageNet's training images. Pretrained networks expect these for every
# data set.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def random_shift(key: "jax.Array", image: "jax.Array", *, pixels: int) -> "jax.Array":
    """The image shifted by up to `pixels` in each direction, filled up with zeros."""
    import jax
    import jax.numpy as jnp

    padded = jnp.pad(image, ((pixels, pixels), (pixels, pixels), (0, 0)))
    rows, columns = jax.random.randint(key, (2,), 0, 2 * pixels + 1)
    return jax.lax.dynamic_slice(padded, (rows, columns, jnp.zeros_like(rows)), image.shape)


def normalize(inputs: "jax.Array", mean: tuple[float, ...], std: tuple[float, ...]) -> "jax.Array":
    """A batch as float32 with mean 0 and standard deviation 1 per channel, or per feature.

    Args:
        inputs: uint8 images [..., channels], which are divided by 255 first, or floating-point
            features [..., d].
        mean: of each channel or feature.
        std: the standard deviation of each channel or feature.
    """
    import jax.numpy as jnp

    shape = (1,) * (inputs.ndim - 1) + (-1,)
    scaled = inputs.astype(jnp.float32)
    if inputs.dtype == jnp.uint8:
        scaled = scaled / 255
    return (scaled - jnp.array(mean).reshape(shape)) / jnp.array(std).reshape(shape)


def random_flip(key: "jax.Array", image: "jax.Array") -> "jax.Array":
    """The image, flipped left to right with probability 1/2."""
    import jax
    import jax.numpy as jnp

    return jnp.where(jax.random.bernoulli(key), image[:, ::-1], image)


def pad_crop_flip(key: "jax.Array", image: "jax.Array", *, pixels: int) -> "jax.Array":
    """The image after `random_shift` and `random_flip`."""
    import jax

    shift_key, flip_key = jax.random.split(key)
    return random_flip(flip_key, random_shift(shift_key, image, pixels=pixels))
