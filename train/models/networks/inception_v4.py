"""Inception-v4 and Inception-ResNet-v2 (Szegedy et al. 2017, "Inception-v4, Inception-ResNet ...").

They are as timm builds them. The last layer, `last_linear` or `classif` in timm, is the head here.
"""

import functools

import jax
from flax import linen as nn

from train.models.layers import Layers
from train.models.networks.inception_blocks import (
    STEM,
    Branches,
    Conv,
    Fork,
    Step,
    halving_conv,
    halving_pool,
    mean_pool,
    mixed,
    side_by_side,
    spec,
)
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
    return lambda layers, inputs, name: ScaledResidual(branches, scale, rectify, layers, name=name)(
        inputs
    )


_MEAN: Step = functools.partial(mean_pool, counts_padding=False)

# Inception-v4.
_MIXED_3 = mixed({"pool": (halving_pool,), "conv": (halving_conv(96),)})
_MIXED_4 = mixed(
    {
        "branch0": (Conv(64), Conv(96, 3, padded=False)),
        "branch1": (Conv(64), Conv(64, (1, 7)), Conv(64, (7, 1)), Conv(96, 3, padded=False)),
    }
)
_MIXED_5 = mixed({"conv": (halving_conv(192),), "pool": (halving_pool,)})
_BLOCK_A = mixed(
    {
        "branch0": (Conv(96),),
        "branch1": (Conv(64), Conv(96, 3)),
        "branch2": (Conv(64), Conv(96, 3), Conv(96, 3)),
        "branch3": (_MEAN, Conv(96)),
    }
)
_REDUCTION_A = mixed(
    {
        "branch0": (halving_conv(384),),
        "branch1": (Conv(192), Conv(224, 3), halving_conv(256)),
        "branch2": (halving_pool,),
    }
)
_BLOCK_B = mixed(
    {
        "branch0": (Conv(384),),
        "branch1": (Conv(192), Conv(224, (1, 7)), Conv(256, (7, 1))),
        "branch2": (
            Conv(192),
            Conv(192, (7, 1)),
            Conv(224, (1, 7)),
            Conv(224, (7, 1)),
            Conv(256, (1, 7)),
        ),
        "branch3": (_MEAN, Conv(128)),
    }
)
_REDUCTION_B = mixed(
    {
        "branch0": (Conv(192), halving_conv(192)),
        "branch1": (Conv(256), Conv(256, (1, 7)), Conv(320, (7, 1)), halving_conv(320)),
        "branch2": (halving_pool,),
    }
)
# timm's names of steps have other punctuation in branches with a fork.
_BLOCK_C = mixed(
    {
        "branch0": (Conv(256),),
        "forked1": (Conv(384), Fork(256)),
        "forked2": (Conv(384), Conv(448, (3, 1)), Conv(512, (1, 3)), Fork(256)),
        "branch3": (_MEAN, Conv(256)),
    }
)

_BLOCKS: tuple[Step, ...] = (
    *(_MIXED_3, _MIXED_4, _MIXED_5),
    *[_BLOCK_A] * 4,
    _REDUCTION_A,
    *[_BLOCK_B] * 7,
    _REDUCTION_B,
    *[_BLOCK_C] * 3,
)
_V4: dict[str, Step] = {
    **{f"stem{number}": step for number, step in enumerate(STEM[:3])},
    **{f"block{number}": step for number, step in enumerate(_BLOCKS, start=3)},
}


# Inception-ResNet-v2.
_MIXED_5B = mixed(
    {
        "branch0": (Conv(96),),
        "branch1": (Conv(48), Conv(64, 5)),
        "branch2": (Conv(64), Conv(96, 3), Conv(96, 3)),
        "branch3": (_MEAN, Conv(64)),
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

_STEM = ("1a", "2a", "2b", "pool_3a", "3b", "4a", "pool_5a")
_RESNET: dict[str, Step] = {
    **{f"conv2d_{name}": step for name, step in zip(_STEM, STEM, strict=True)},
    "mixed_5b": _MIXED_5B,
    **{f"block35_{index}": _BLOCK_35 for index in range(10)},
    "mixed_6a": _MIXED_6,
    **{f"block17_{index}": _BLOCK_17 for index in range(20)},
    "mixed_7a": _MIXED_7,
    **{f"block8_{index}": residual(_IN_BLOCK_8, 0.2) for index in range(9)},
    "block8": residual(_IN_BLOCK_8, 1.0, rectify=False),
    "conv2d_7b": Conv(1536),
}


def _in_blocks(here: str, there: str) -> dict[str, str]:
    """The names of the modules of a block here, and in timm, which numbers every step."""
    return {
        here + "/branch{}_{}_{}": there + ".branch{}.{}.{}",
        # Behind a pooling.
        here + "/branch3_{}": there + ".branch3.1.{}",
        here + "/{}_{}": there + ".{}.{}",
        here + "/{}": there + ".{}",
    }


_V4_MODULES = {
    "stem{}_{}": "features.{}.{}",
    "block{}/forked{}_{}_{}": "features.{}.branch{}_{}.{}",
    **_in_blocks("block{}", "features.{}"),
}
_RESNET_MODULES = {
    "conv2d_{}_{}": "conv2d_{}.{}",
    **_in_blocks("mixed_{}", "mixed_{}"),
    **_in_blocks("block35_{}", "repeat.{}"),
    **_in_blocks("block17_{}", "repeat_1.{}"),
    **_in_blocks("block8_{}", "repeat_2.{}"),
    **_in_blocks("block8", "block8"),
}

# By timm's names, with the parameters below the head.
NETWORKS = {
    "inception_v4": spec(
        _V4,
        0.0,
        41_142_816,
        PublishedNames(_V4_MODULES, publisher="timm", head="last_linear"),
    ),
    "inception_resnet_v2": spec(
        _RESNET,
        0.0,
        54_306_464,
        PublishedNames(_RESNET_MODULES, publisher="timm", head="classif"),
    ),
}
