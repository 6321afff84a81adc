"""The layers that all networks share, called inside a compact method of a Linen module.

Half precision computes in bfloat16. Parameters, the statistics of batch norm and the features at
the end of a network stay float32, because they are small or sums.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

# As in torchvision (He et al., by fan-out): a normal that is not truncated.
_he_normal = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


def conv(
    inputs: jax.Array,
    channels: int,
    size: int,
    *,
    dtype: DTypeLike,
    stride: int = 1,
    name: str | None = None,
) -> jax.Array:
    """A convolution of an odd size, without bias.

    It pads half the size on every side, as PyTorch does. Linen's default padding of a strided
    convolution is one pixel off.
    """
    return nn.Conv(
        channels,
        (size, size),
        strides=stride,
        padding=size // 2,
        use_bias=False,
        kernel_init=_he_normal,
        dtype=dtype,
        name=name,
    )(inputs)


def batch_norm(
    inputs: jax.Array,
    *,
    train: bool,
    axis_name: str | None,
    dtype: DTypeLike,
    name: str | None = None,
) -> jax.Array:
    """Batch norm by the statistics of the batch, or, without `train`, by the running statistics.

    The batch is that of all devices of the axis, or of each device where the axis is None. The
    running variance averages the biased variance of each batch, PyTorch's the unbiased one.
    """
    # Cast before and after: Linen would promote in the same way, but implicitly.
    normalized = nn.BatchNorm(
        use_running_average=not train,
        momentum=0.9,
        epsilon=1e-5,
        axis_name=axis_name,
        name=name,
    )(inputs.astype(jnp.float32))
    return normalized.astype(dtype)


def mean_over_image(inputs: jax.Array) -> jax.Array:
    """Activations [n, height, width, channels] to float32 features [n, channels]."""
    return inputs.mean(axis=(1, 2), dtype=jnp.float32)
