"""Inception-v3 (Szegedy et al. 2016, "Rethinking the Inception architecture for computer vision").

It is as torchvision builds it, without the auxiliary head. The last layer, `fc` in torchvision, is
the head here.
"""

import functools

from train.models.networks.inception_blocks import (
    STEM,
    Conv,
    Fork,
    Step,
    halving_conv,
    halving_pool,
    mean_pool,
    mixed,
    spec,
)
from train.models.weights.names import PublishedNames

# torchvision counts from 1.
_mixed = functools.partial(mixed, first=1)


def _block_a(channels_of_pool: int) -> Step:
    return _mixed(
        {
            "branch1x1": (Conv(64),),
            "branch5x5": (Conv(48), Conv(64, 5)),
            "branch3x3dbl": (Conv(64), Conv(96, 3), Conv(96, 3)),
            "branch_pool": (mean_pool, Conv(channels_of_pool)),
        }
    )


def _block_c(channels: int) -> Step:
    wide, high = Conv(channels, (1, 7)), Conv(channels, (7, 1))
    return _mixed(
        {
            "branch1x1": (Conv(192),),
            "branch7x7": (Conv(channels), wide, Conv(192, (7, 1))),
            "branch7x7dbl": (Conv(channels), high, wide, high, Conv(192, (1, 7))),
            "branch_pool": (mean_pool, Conv(192)),
        }
    )


_BLOCK_B = _mixed(
    {
        "branch3x3": (halving_conv(384),),
        "branch3x3dbl": (Conv(64), Conv(96, 3), halving_conv(96)),
        "branch_pool": (halving_pool,),
    }
)
_BLOCK_D = _mixed(
    {
        "branch3x3": (Conv(192), halving_conv(320)),
        "branch7x7x3": (Conv(192), Conv(192, (1, 7)), Conv(192, (7, 1)), halving_conv(192)),
        "branch_pool": (halving_pool,),
    }
)
_BLOCK_E = _mixed(
    {
        "branch1x1": (Conv(320),),
        "branch3x3": (Conv(384), Fork(384)),
        "branch3x3dbl": (Conv(448), Conv(384, 3), Fork(384)),
        "branch_pool": (mean_pool, Conv(192)),
    }
)

_STEM = ("1a_3x3", "2a_3x3", "2b_3x3", "maxpool1", "3b_1x1", "4a_3x3", "maxpool2")
_STEPS: dict[str, Step] = {
    **{f"Conv2d_{name}": step for name, step in zip(_STEM, STEM, strict=True)},
    "Mixed_5b": _block_a(32),
    "Mixed_5c": _block_a(64),
    "Mixed_5d": _block_a(64),
    "Mixed_6a": _BLOCK_B,
    "Mixed_6b": _block_c(128),
    "Mixed_6c": _block_c(160),
    "Mixed_6d": _block_c(160),
    "Mixed_6e": _block_c(192),
    "Mixed_7a": _BLOCK_D,
    "Mixed_7b": _BLOCK_E,
    "Mixed_7c": _BLOCK_E,
}

# By torchvision's name, with the parameters below the head. The published weights are Google's, for
# images in [-1, 1]. torchvision rescales images to that inside the network, if it reads them.
NETWORKS = {
    "inception_v3": spec(
        _STEPS,
        0.5,
        21_785_568,
        PublishedNames(
            {
                "Conv2d_{}_{}_{}": "Conv2d_{}_{}.{}",
                "Mixed_{}/{}_conv": "Mixed_{}.{}.conv",
                "Mixed_{}/{}_bn": "Mixed_{}.{}.bn",
            },
            head="fc",
            left_out=("AuxLogits.",),
        ),
    )
}
