"""ResNets and wide ResNets for large images, as torchvision builds them.

They are "version 1.5" (He et al. 2016, with the stride in the 3 by 3 convolution of a bottleneck).
The modules have torchvision's names, with `layer1_0` for `layer1.0` and `downsample_conv`,
`downsample_bn` for `downsample.0`, `downsample.1`. The last layer, `fc` there, is the head here.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models import layers

Layer = Callable[..., jax.Array]


class BasicBlock(nn.Module):
    """Two 3 by 3 convolutions beside a shortcut.

    Attributes:
        channels: the channels of the block.
        stride: the stride of the first convolution, and of the shortcut.
        conv: convolves, given channels, size and stride.
        norm: normalises.
    """

    channels: int
    stride: int
    conv: Layer
    norm: Layer

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h / stride, w / stride, channels]."""
        hidden = self.conv(inputs, self.channels, 3, stride=self.stride, name="conv1")
        hidden = nn.relu(self.norm(hidden, name="bn1"))
        hidden = self.conv(hidden, self.channels, 3, name="conv2")
        hidden = self.norm(hidden, name="bn2")
        return nn.relu(hidden + _shortcut(self, inputs, self.channels))


class Bottleneck(nn.Module):
    """A 3 by 3 convolution on fewer channels, between two of 1 by 1, beside a shortcut.

    Attributes:
        channels: a quarter of the channels of the block.
        stride: the stride of the 3 by 3 convolution, and of the shortcut.
        conv: convolves, given channels, size and stride.
        norm: normalises.
        widening: the channels of the 3 by 3 convolution, in units of `channels`.
    """

    channels: int
    stride: int
    conv: Layer
    norm: Layer
    widening: int = 1

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h / stride, w / stride, 4 · channels]."""
        inner, outer = self.widening * self.channels, 4 * self.channels
        hidden = self.conv(inputs, inner, 1, name="conv1")
        hidden = nn.relu(self.norm(hidden, name="bn1"))
        hidden = self.conv(hidden, inner, 3, stride=self.stride, name="conv2")
        hidden = nn.relu(self.norm(hidden, name="bn2"))
        hidden = self.norm(self.conv(hidden, outer, 1, name="conv3"), name="bn3")
        return nn.relu(hidden + _shortcut(self, inputs, outer))


def _shortcut(block: BasicBlock | Bottleneck, inputs: jax.Array, channels: int) -> jax.Array:
    """The inputs, or a projection where the block changes their shape."""
    if block.stride == 1 and inputs.shape[-1] == channels:
        return inputs
    projected = block.conv(inputs, channels, 1, stride=block.stride, name="downsample_conv")
    return block.norm(projected, name="downsample_bn")


class ResNet(nn.Module):
    """A 7 by 7 convolution and a pooling, four stages of blocks, and the mean over the image.

    Attributes:
        axis_name: the axis over devices over which batch norm averages.
        stage_sizes: the number of blocks of each stage.
        block: makes a block from its channels, stride, convolution and norm.
        width: the channels of the first stage; each further stage has twice as many.
        dtype: the type in which the convolutions compute.
    """

    axis_name: str | None
    stage_sizes: tuple[int, int, int, int]
    block: Callable[..., nn.Module]
    width: int = 64
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to 8 · width features, or 32 · width if deep."""
        conv = functools.partial(layers.conv, dtype=self.dtype)
        norm = functools.partial(
            layers.batch_norm, train=train, axis_name=self.axis_name, dtype=self.dtype
        )
        hidden = conv(images, self.width, 7, stride=2, name="conv1")
        hidden = nn.relu(norm(hidden, name="bn1"))
        hidden = nn.max_pool(hidden, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        for stage, num_blocks in enumerate(self.stage_sizes):
            for index in range(num_blocks):
                hidden = self.block(
                    channels=self.width * 2**stage,
                    stride=2 if stage > 0 and index == 0 else 1,
                    conv=conv,
                    norm=norm,
                    name=f"layer{stage + 1}_{index}",
                )(hidden)
        return layers.mean_over_image(hidden)


_WideBottleneck = functools.partial(Bottleneck, widening=2)

# By torchvision's names.
RESNETS: dict[str, functools.partial[ResNet]] = {
    "resnet18": functools.partial(ResNet, stage_sizes=(2, 2, 2, 2), block=BasicBlock),
    "resnet34": functools.partial(ResNet, stage_sizes=(3, 4, 6, 3), block=BasicBlock),
    "resnet50": functools.partial(ResNet, stage_sizes=(3, 4, 6, 3), block=Bottleneck),
    "resnet101": functools.partial(ResNet, stage_sizes=(3, 4, 23, 3), block=Bottleneck),
    "resnet152": functools.partial(ResNet, stage_sizes=(3, 8, 36, 3), block=Bottleneck),
    "wide_resnet50_2": functools.partial(ResNet, stage_sizes=(3, 4, 6, 3), block=_WideBottleneck),
    "wide_resnet101_2": functools.partial(ResNet, stage_sizes=(3, 4, 23, 3), block=_WideBottleneck),
}
