"""MobileNetV3 (Howard et al. 2019), as torchvision builds it.

The last of the two linear layers, `classifier.3` in torchvision, is the head here.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models.layers import Layers
from train.models.model_spec import ModelSpec
from train.models.networks.inverted_residual import (
    Block,
    Squeeze,
    mobile_features,
    round_channels,
)
from train.models.weights.names import PublishedNames


class MobileNetV3(nn.Module):
    """Inverted residuals, some with a squeeze, and a hidden layer on the features of the image.

    Attributes:
        axis_name: the axis over devices over which batch norm averages.
        blocks: the blocks.
        features: the units of the hidden layer.
        stem: the channels of the first convolution.
        dropout: the probability that a feature is set to 0 in training.
        dtype: the type in which the convolutions and the hidden layer compute.
    """

    axis_name: str | None
    blocks: tuple[Block, ...]
    features: int
    stem: int = 16
    dropout: float = 0.2
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to float32 features [n, features]."""
        layers = Layers(self.dtype, train, self.axis_name, epsilon=1e-3, momentum=0.99)
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


def _names(blocks: tuple[Block, ...]) -> PublishedNames:
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


def _mobilenet(blocks: tuple[Block, ...], features: int, num_parameters: int) -> ModelSpec:
    return ModelSpec(
        functools.partial(MobileNetV3, blocks=blocks, features=features),
        options=("dropout",),
        names=_names(blocks),
        num_parameters=num_parameters,
        has_blocks=True,
    )


# By torchvision's names, with the parameters below the head.
NETWORKS = {
    "mobilenet_v3_small": _mobilenet(_SMALL, 1024, 1_517_856),
    "mobilenet_v3_large": _mobilenet(_LARGE, 1280, 4_202_032),
}
