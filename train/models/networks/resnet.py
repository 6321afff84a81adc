"""ResNets and wide ResNets for large images, as torchvision builds them.

They are "version 1.5" (He et al. 2016, with the stride in the 3 by 3 convolution of a bottleneck).
The last layer, `fc` in torchvision, is the head here.
"""

import functools
from collections.abc import Callable

import jax
from flax import linen as nn

from train.models.layers import Layers, Network, max_pool, mean_over_image
from train.models.model_spec import ModelSpec
from train.models.weights.names import PublishedNames


class BasicBlock(nn.Module):
    """Two 3 by 3 convolutions beside a shortcut.

    Attributes:
        channels: the channels of the block.
        stride: the stride of the first convolution, and of the shortcut.
        layers: the layers of the network.
    """

    channels: int
    stride: int
    layers: Layers

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h / stride, w / stride, channels]."""
        conv, norm = self.layers.conv, self.layers.batch_norm
        hidden = conv(inputs, self.channels, 3, stride=self.stride, name="conv1")
        hidden = nn.relu(norm(hidden, name="bn1"))
        hidden = norm(conv(hidden, self.channels, 3, name="conv2"), name="bn2")
        hidden = nn.relu(hidden + _shortcut(self, inputs, self.channels))
        return self.layers.keep(hidden)


class Bottleneck(nn.Module):
    """A 3 by 3 convolution on fewer channels, between two of 1 by 1, beside a shortcut.

    Attributes:
        channels: a quarter of the channels of the block.
        stride: the stride of the 3 by 3 convolution, and of the shortcut.
        layers: the layers of the network.
        widening: the channels of the 3 by 3 convolution, in units of `channels`.
    """

    channels: int
    stride: int
    layers: Layers
    widening: int = 1

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h / stride, w / stride, 4 · channels]."""
        conv, norm = self.layers.conv, self.layers.batch_norm
        inner, outer = self.widening * self.channels, 4 * self.channels
        hidden = nn.relu(norm(conv(inputs, inner, 1, name="conv1"), name="bn1"))
        hidden = conv(hidden, inner, 3, stride=self.stride, name="conv2")
        hidden = nn.relu(norm(hidden, name="bn2"))
        hidden = norm(conv(hidden, outer, 1, name="conv3"), name="bn3")
        return self.layers.keep(nn.relu(hidden + _shortcut(self, inputs, outer)))


def _shortcut(block: BasicBlock | Bottleneck, inputs: jax.Array, channels: int) -> jax.Array:
    """The inputs, or a projection if the block changes their shape."""
    if block.stride == 1 and inputs.shape[-1] == channels:
        return inputs
    return block.layers.conv_norm(
        inputs, channels, 1, stride=block.stride, activation=None, name="downsample"
    )


class ResNet(Network):
    """A 7 by 7 convolution and a pooling, four stages of blocks, and the mean over the image.

    Attributes:
        stage_sizes: the number of blocks of each stage.
        block: makes a block from its channels, stride and layers.
        width: the channels of the first stage; each further stage has twice as many.
    """

    stage_sizes: tuple[int, int, int, int]
    block: Callable[..., nn.Module]
    width: int = 64

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to 8 · width features, or 32 · width if deep."""
        layers = self.make_layers(train)
        hidden = layers.conv(images, self.width, 7, stride=2, name="conv1")
        hidden = nn.relu(layers.batch_norm(hidden, name="bn1"))
        hidden = max_pool(hidden, 3, stride=2, padding=1)
        for stage, num_blocks in enumerate(self.stage_sizes):
            for index in range(num_blocks):
                hidden = self.block(
                    channels=self.width * 2**stage,
                    stride=2 if stage > 0 and index == 0 else 1,
                    layers=layers,
                    name=f"layer{stage + 1}_{index}",
                )(hidden)
        return mean_over_image(hidden)


_WideBottleneck = functools.partial(Bottleneck, widening=2)

_NAMES = PublishedNames(
    {
        "layer{}_{}/downsample_conv": "layer{}.{}.downsample.0",
        "layer{}_{}/downsample_bn": "layer{}.{}.downsample.1",
        "layer{}_{}/{}": "layer{}.{}.{}",
    },
    head="fc",
)


def _resnet(
    stage_sizes: tuple[int, int, int, int], block: Callable[..., nn.Module], num_parameters: int
) -> ModelSpec:
    return ModelSpec(
        functools.partial(ResNet, stage_sizes=stage_sizes, block=block),
        names=_NAMES,
        num_parameters=num_parameters,
        has_blocks=True,
    )


# By torchvision's names, with the parameters below the head.
NETWORKS = {
    "resnet18": _resnet((2, 2, 2, 2), BasicBlock, 11_176_512),
    "resnet34": _resnet((3, 4, 6, 3), BasicBlock, 21_284_672),
    "resnet50": _resnet((3, 4, 6, 3), Bottleneck, 23_508_032),
    "resnet101": _resnet((3, 4, 23, 3), Bottleneck, 42_500_160),
    "resnet152": _resnet((3, 8, 36, 3), Bottleneck, 58_143_808),
    "wide_resnet50_2": _resnet((3, 4, 6, 3), _WideBottleneck, 66_834_240),
    "wide_resnet101_2": _resnet((3, 4, 23, 3), _WideBottleneck, 124_837_696),
}
