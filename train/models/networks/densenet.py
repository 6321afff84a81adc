"""DenseNet-BC for images of 32 by 32 pixels (Huang et al. 2017, "Densely connected ...")."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models.layers import Layers, avg_pool, mean_over_image

# Channels inside a bottleneck, and channels before the first block, in units of the growth.
_BOTTLENECK = 4
_STEM = 2


class DenseNet(nn.Module):
    """Three blocks of bottleneck layers; the channels and the image are halved between two blocks.

    The depth, as the paper counts it, is 6 · layers_per_block + 4.

    Attributes:
        axis_name: the axis over devices over which batch norm averages.
        growth: the number of channels that each bottleneck layer adds.
        layers_per_block: the number of bottleneck layers of each block.
        dtype: the type in which the convolutions compute.
    """

    axis_name: str | None
    growth: int = 40
    layers_per_block: int = 6
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features, 440 with the defaults."""
        layers = Layers(self.dtype, train, self.axis_name)
        conv, norm = layers.conv, layers.batch_norm
        hidden = conv(images, _STEM * self.growth, 3, name="conv1")
        for block in (1, 2, 3):
            if block > 1:
                before = f"transition{block - 1}"
                hidden = nn.relu(norm(hidden, name=f"{before}_bn"))
                hidden = conv(hidden, hidden.shape[-1] // 2, 1, name=f"{before}_conv")
                hidden = avg_pool(hidden, 2, stride=2)
            for index in range(self.layers_per_block):
                name = f"block{block}_{index}"
                new = nn.relu(norm(hidden, name=f"{name}_bn1"))
                new = conv(new, _BOTTLENECK * self.growth, 1, name=f"{name}_conv1")
                new = nn.relu(norm(new, name=f"{name}_bn2"))
                new = conv(new, self.growth, 3, name=f"{name}_conv2")
                hidden = jnp.concatenate([hidden, new], axis=-1)
        return mean_over_image(nn.relu(norm(hidden, name="bn")))
