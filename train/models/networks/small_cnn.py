"""A small convolutional network for images of a few pixels."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models.layers import Layers, mean_over_image


class SmallCNN(nn.Module):
    """Three 3 by 3 convolutions with batch norm, one pooling, and the mean over the image.

    Attributes:
        axis_name: the axis over devices over which batch norm averages.
        widths: the channels of the three convolutions; the last is the number of features.
        dtype: the type in which the convolutions compute.
    """

    axis_name: str | None
    widths: tuple[int, int, int] = (32, 64, 128)
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, widths[-1]]."""
        layers = Layers(self.dtype, train, self.axis_name)
        hidden = images
        for index, width in enumerate(self.widths):
            if index == 2:
                hidden = nn.max_pool(hidden, (2, 2), strides=(2, 2))
            hidden = nn.Conv(width, (3, 3), use_bias=False, dtype=self.dtype)(hidden)
            hidden = nn.relu(layers.batch_norm(hidden))
        return mean_over_image(hidden)
