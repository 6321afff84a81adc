"""The block of MobileNets and EfficientNets, and how these networks use it.

It is a residual block with more channels inside than outside (Sandler et al. 2018). Its convolution
over places is depthwise, and may be followed by a squeeze-and-excite (Hu et al. 2018).
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from train.models.layers import Activation, Layers, mean_over_image


class Squeeze(NamedTuple):
    """A squeeze-and-excite: its channels, and the activations after its two convolutions."""

    channels: int
    activation: Activation
    gate: Activation


class Block(NamedTuple):
    """The shape of an `InvertedResidual`.

    Attributes:
        expanded: the channels inside.
        size: the rows and columns of the depthwise convolution.
        stride: the stride of the depthwise convolution.
        channels: the channels of the result.
        activation: that after the first two convolutions.
        squeeze: the squeeze-and-excite before the last one, or None.
    """

    expanded: int
    size: int
    stride: int
    channels: int
    activation: Activation
    squeeze: Squeeze | None = None


class SqueezeExcite(nn.Module):
    """Multiplies each channel by a number in [0, 1] that depends on the means of all channels.

    Attributes:
        squeeze: its channels and activations.
        layers: the layers of the network.
    """

    squeeze: Squeeze
    layers: Layers

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to activations of the same shape."""
        conv = self.layers.conv
        means = inputs.mean(axis=(1, 2), keepdims=True, dtype=jnp.float32)
        hidden = conv(means, self.squeeze.channels, 1, use_bias=True, name="reduce")
        hidden = self.squeeze.activation(hidden)
        hidden = conv(hidden, inputs.shape[-1], 1, use_bias=True, name="expand")
        return inputs * self.squeeze.gate(hidden)


class InvertedResidual(nn.Module):
    """Expands the channels, convolves each of them, and projects them, beside a shortcut.

    There is a shortcut if the result has the shape of the inputs, and an expansion if it changes
    the number of channels.

    Attributes:
        block: its shape.
        layers: the layers of the network.
        stochastic_depth: how often the residual branch is left out in training.
    """

    block: Block
    layers: Layers
    stochastic_depth: float = 0.0

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h / stride, w / stride, channels]."""
        block, conv_norm = self.block, self.layers.conv_norm
        hidden = inputs
        if block.expanded != inputs.shape[-1]:
            hidden = conv_norm(
                hidden, block.expanded, 1, activation=block.activation, name="expand"
            )
        hidden = conv_norm(
            hidden,
            block.expanded,
            block.size,
            stride=block.stride,
            groups=block.expanded,
            activation=block.activation,
            name="depthwise",
        )
        if block.squeeze is not None:
            hidden = SqueezeExcite(block.squeeze, self.layers, name="squeeze")(hidden)
        hidden = conv_norm(hidden, block.channels, 1, activation=None, name="project")
        if block.stride > 1 or block.channels != inputs.shape[-1]:
            return self.layers.keep(hidden)
        hidden = self.layers.dropout(hidden, self.stochastic_depth, of_example=True)
        return self.layers.keep(inputs + hidden)


def mobile_features(
    layers: Layers,
    images: jax.Array,
    *,
    stem: int,
    blocks: Mapping[str, Block],
    last: int,
    activation: Activation,
    stochastic_depth: float = 0.0,
) -> jax.Array:
    """The mean over the image of what inverted residuals between two convolutions compute.

    Args:
        layers: the layers of the network.
        images: [n, height, width, channels].
        stem: the channels of the first convolution, of 3 by 3 with a stride of 2.
        blocks: the blocks by the names of their modules.
        last: the channels of the last convolution, of 1 by 1, and of the features.
        activation: that after the first and after the last convolution.
        stochastic_depth: how often the residual branch of a block after the last one would be left
            out; from the first block on, the rates grow evenly from 0 to it.
    """
    hidden = layers.conv_norm(images, stem, 3, stride=2, activation=activation, name="stem")
    for index, (name, block) in enumerate(blocks.items()):
        rate = stochastic_depth * index / len(blocks)
        hidden = InvertedResidual(block, layers, rate, name=name)(hidden)
    hidden = layers.conv_norm(hidden, last, 1, activation=activation, name="last")
    return mean_over_image(hidden)


def round_channels(channels: float) -> int:
    """The nearest multiple of 8, or the next larger one if the nearest is less than 90 %."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8
