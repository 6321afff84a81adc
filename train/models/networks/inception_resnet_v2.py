"""Inception-ResNet-v2 (Szegedy et al. 2017, "Inception-v4, Inception-ResNet and the ...").

It is as timm builds it. The last layer, `classif` in timm, is the head here.
"""

import functools

import jax
from flax import linen as nn

from train.models.layers import Layers
from train.models.model_spec import ModelSpec
from train.models.networks.inception_blocks import (
    STEM,
    Branches,
    Conv,
    Inception,
    MeanPool,
    Step,
    halving_conv,
    halving_pool,
    mixed,
    side_by_side,
    timms_names,
)
from train.models.normalization import HALVES
from train.models.weights.names import PublishedNames


class ScaledResidual(nn.Module):
    """Branches side by side and a convolution, scaled and added to the inputs.

    Attributes:
        branches: the steps of each branch.
        scale: what the outputs are multiplied by before they are added, for stable training.
        rectify: whether a ReLU follows.
        layers: the layers of the network.
    """

    branches: Branches
    scale: float
    rectify: bool
    layers: Layers

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to others of the same shape."""
        hidden = side_by_side(self.layers, inputs, self.branches)
        hidden = self.layers.conv(hidden, inputs.shape[-1], 1, use_bias=True, name="conv2d")
        hidden = inputs + self.scale * hidden
        return self.layers.keep(nn.relu(hidden) if self.rectify else hidden)


def residual(branches: Branches, scale: float, *, rectify: bool = True) -> Step:
    """A step that is one module of a residual."""

    def step(layers: Layers, inputs: jax.Array, name: str) -> jax.Array:
        return ScaledResidual(branches, scale, rectify, layers, name=name)(inputs)

    return step


_MIXED_5 = mixed(
    {
        "branch0": (Conv(96),),
        "branch1": (Conv(48), Conv(64, 5)),
        "branch2": (Conv(64), Conv(96, 3), Conv(96, 3)),
        "branch3": (MeanPool(counts_padding=False), Conv(64)),
    }
)
_BLOCK_35 = residual(
    {
        "branch0": (Conv(32),),
        "branch1": (Conv(32), Conv(32, 3)),
        "branch2": (Conv(32), Conv(48, 3), Conv(64, 3)),
    },
    0.17,
)
_MIXED_6 = mixed(
    {
        "branch0": (halving_conv(384),),
        "branch1": (Conv(256), Conv(256, 3), halving_conv(384)),
        "branch2": (halving_pool,),
    }
)
_BLOCK_17 = residual(
    {
        "branch0": (Conv(192),),
        "branch1": (Conv(128), Conv(160, (1, 7)), Conv(192, (7, 1))),
    },
    0.1,
)
_MIXED_7 = mixed(
    {
        "branch0": (Conv(256), halving_conv(384)),
        "branch1": (Conv(256), halving_conv(288)),
        "branch2": (Conv(256), Conv(288, 3), halving_conv(320)),
        "branch3": (halving_pool,),
    }
)
_IN_BLOCK_8: Branches = {
    "branch0": (Conv(192),),
    "branch1": (Conv(192), Conv(224, (1, 3)), Conv(256, (3, 1))),
}

_STEM = (
    "conv2d_1a",
    "conv2d_2a",
    "conv2d_2b",
    "maxpool_3a",
    "conv2d_3b",
    "conv2d_4a",
    "maxpool_5a",
)
_STEPS: dict[str, Step] = {
    **dict(zip(_STEM, STEM, strict=True)),
    "mixed_5b": _MIXED_5,
    **{f"block35_{index}": _BLOCK_35 for index in range(10)},
    "mixed_6a": _MIXED_6,
    **{f"block17_{index}": _BLOCK_17 for index in range(20)},
    "mixed_7a": _MIXED_7,
    **{f"block8_{index}": residual(_IN_BLOCK_8, 0.2) for index in range(9)},
    "block8": residual(_IN_BLOCK_8, 1.0, rectify=False),
    "conv2d_7b": Conv(1536),
}

# By timm's name, with the parameters below the head.
NETWORKS = {
    "inception_resnet_v2": ModelSpec(
        functools.partial(Inception, steps=tuple(_STEPS.items()), dropout=0.0),
        options=("dropout",),
        has_blocks=True,
        names=PublishedNames(
            {
                "conv2d_{}_{}": "conv2d_{}.{}",
                **timms_names("mixed_{}", "mixed_{}"),
                **timms_names("block35_{}", "repeat.{}"),
                **timms_names("block17_{}", "repeat_1.{}"),
                **timms_names("block8_{}", "repeat_2.{}"),
                **timms_names("block8", "block8"),
            },
            publisher="timm",
            head="classif",
        ),
        num_parameters=54_306_464,
        normalization=HALVES,
        image_size=299,
        smallest=75,
    )
}
