"""MobileNetV2 (Sandler et al. 2018) and MobileNetV3 (Howard et al. 2019), as in torchvision.

The last layer, `classifier.1` or `classifier.3` in torchvision, is the head here.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from train.models.layers import Network
from train.models.model_spec import ModelSpec
from train.models.networks.inverted_residual import (
    Block,
    Squeeze,
    mobile_features,
    round_channels,
)
from train.models.weights.names import PublishedNames


class MobileNetV2(Network):
    """Inverted residuals with ReLU6.

    Attributes:
        stages: for each, the number of channels inside a block divided by the channels of its
            inputs, the channels of its result, the number of blocks, and the stride of the first
            block.
        stem: the channels of the first convolution.
        last: the number of features.
        dropout: the probability that a feature is set to 0 in training.
    """

    stages: tuple[tuple[int, int, int, int], ...]
    stem: int = 32
    last: int = 1280
    dropout: float = 0.2

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, last]."""
        layers = self.make_layers(train)
        blocks: dict[str, Block] = {}
        inputs = self.stem
        for expansion, channels, num_blocks, stride in self.stages:
            for index in range(num_blocks):
                blocks[f"block{len(blocks) + 1}"] = Block(
                    expanded=expansion * inputs,
                    size=3,
                    stride=stride if index == 0 else 1,
                    channels=channels,
                    activation=nn.relu6,
                )
                inputs = channels
        features = mobile_features(
            layers, images, stem=self.stem, blocks=blocks, last=self.last, activation=nn.relu6
        )
        return layers.dropout(features, self.dropout)


class MobileNetV3(Network):
    """Inverted residuals, some with a squeeze, and a hidden layer on the features of the image.

    Attributes:
        blocks: the blocks.
        features: the units of the hidden layer.
        stem: the channels of the first convolution.
        dropout: the probability that a feature is set to 0 in training.
    """

    blocks: tuple[Block, ...]
    features: int
    stem: int = 16
    dropout: float = 0.2

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to float32 features [n, features]."""
        layers = self.make_layers(train, epsilon=1e-3, momentum=0.99)
        pooled = mobile_features(
            layers,
            images,
            stem=self.stem,
            blocks={f"block{index}": block for index, block in enumerate(self.blocks, start=1)},
            last=6 * self.blocks[-1].channels,
            activation=nn.hard_swish,
        )
        hidden = nn.hard_swish(layers.dense(pooled, self.features, name="hidden"))
        return layers.dropout(hidden.astype(jnp.float32), self.dropout)


def block(
    expanded: int, size: int, stride: int, channels: int, *, squeezes: bool, hard_swish: bool
) -> Block:
    """A block in the form of the paper's tables; without hard-swish it has ReLU."""
    return Block(
        expanded,
        size,
        stride,
        channels,
        nn.hard_swish if hard_swish else nn.relu,
        Squeeze(round_channels(expanded // 4), nn.relu, nn.hard_sigmoid) if squeezes else None,
    )


_early = functools.partial(block, hard_swish=False)
_late = functools.partial(block, hard_swish=True)

_LARGE = (
    _early(16, 3, 1, 16, squeezes=False),
    _early(64, 3, 2, 24, squeezes=False),
    _early(72, 3, 1, 24, squeezes=False),
    _early(72, 5, 2, 40, squeezes=True),
    _early(120, 5, 1, 40, squeezes=True),
    _early(120, 5, 1, 40, squeezes=True),
    _late(240, 3, 2, 80, squeezes=False),
    _late(200, 3, 1, 80, squeezes=False),
    _late(184, 3, 1, 80, squeezes=False),
    _late(184, 3, 1, 80, squeezes=False),
    _late(480, 3, 1, 112, squeezes=True),
    _late(672, 3, 1, 112, squeezes=True),
    _late(672, 5, 2, 160, squeezes=True),
    _late(960, 5, 1, 160, squeezes=True),
    _late(960, 5, 1, 160, squeezes=True),
)

_SMALL = (
    _early(16, 3, 2, 16, squeezes=True),
    _early(72, 3, 2, 24, squeezes=False),
    _early(88, 3, 1, 24, squeezes=False),
    _late(96, 5, 2, 40, squeezes=True),
    _late(240, 5, 1, 40, squeezes=True),
    _late(240, 5, 1, 40, squeezes=True),
    _late(120, 5, 1, 48, squeezes=True),
    _late(144, 5, 1, 48, squeezes=True),
    _late(288, 5, 2, 96, squeezes=True),
    _late(576, 5, 1, 96, squeezes=True),
    _late(576, 5, 1, 96, squeezes=True),
)


def _names_v3(blocks: tuple[Block, ...]) -> PublishedNames:
    """The names of torchvision, which number the layers of a block."""
    modules = {"stem_conv": "features.0.0", "stem_bn": "features.0.1"}
    for number, one in enumerate(blocks, start=1):
        here, there = f"block{number}", f"features.{number}.block"
        # In both networks only the first block does not expand.
        layers = [*(["expand"] if number > 1 else []), "depthwise"]
        layers += [*(["squeeze"] if one.squeeze is not None else []), "project"]
        for place, layer in enumerate(layers):
            if layer == "squeeze":
                modules[f"{here}/squeeze/reduce"] = f"{there}.{place}.fc1"
                modules[f"{here}/squeeze/expand"] = f"{there}.{place}.fc2"
            else:
                modules[f"{here}/{layer}_conv"] = f"{there}.{place}.0"
                modules[f"{here}/{layer}_bn"] = f"{there}.{place}.1"
    last = len(blocks) + 1
    modules |= {"last_conv": f"features.{last}.0", "last_bn": f"features.{last}.1"}
    return PublishedNames(modules | {"hidden": "classifier.0"}, head="classifier.3")


def _v3(blocks: tuple[Block, ...], features: int, num_parameters: int) -> ModelSpec:
    return ModelSpec(
        functools.partial(MobileNetV3, blocks=blocks, features=features),
        options=("dropout",),
        names=_names_v3(blocks),
        num_parameters=num_parameters,
        has_blocks=True,
    )


_STAGES_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

_NAMES_V2 = PublishedNames(
    {
        "stem_conv": "features.0.0",
        "stem_bn": "features.0.1",
        # The first block does not expand.
        "block1/depthwise_conv": "features.1.conv.0.0",
        "block1/depthwise_bn": "features.1.conv.0.1",
        "block1/project_conv": "features.1.conv.1",
        "block1/project_bn": "features.1.conv.2",
        "block{}/expand_conv": "features.{}.conv.0.0",
        "block{}/expand_bn": "features.{}.conv.0.1",
        "block{}/depthwise_conv": "features.{}.conv.1.0",
        "block{}/depthwise_bn": "features.{}.conv.1.1",
        "block{}/project_conv": "features.{}.conv.2",
        "block{}/project_bn": "features.{}.conv.3",
        "last_conv": "features.18.0",
        "last_bn": "features.18.1",
    },
    head="classifier.1",
)

# By torchvision's names, with the parameters below the head.
NETWORKS = {
    "mobilenet_v3_small": _v3(_SMALL, 1024, 1_517_856),
    "mobilenet_v3_large": _v3(_LARGE, 1280, 4_202_032),
    "mobilenet_v2": ModelSpec(
        functools.partial(MobileNetV2, stages=_STAGES_V2),
        options=("dropout",),
        names=_NAMES_V2,
        num_parameters=2_223_872,
        has_blocks=True,
    ),
}
