"""Inception-v4 (Szegedy et al. 2017, "Inception-v4, Inception-ResNet and the ...").

It is as timm builds it. The last layer, `last_linear` in timm, is the head here.
"""

import functools

from train.models.model_spec import ModelSpec
from train.models.networks.inception_blocks import (
    STEM,
    Conv,
    Fork,
    Inception,
    MeanPool,
    Step,
    halving_conv,
    halving_pool,
    mixed,
    timms_names,
)
from train.models.normalization import HALVES
from train.models.weights.names import PublishedNames

_MEAN = MeanPool(counts_padding=False)

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
_STEPS: dict[str, Step] = {
    **{f"stem{number}": step for number, step in enumerate(STEM[:3])},
    **{f"block{number}": step for number, step in enumerate(_BLOCKS, start=3)},
}

# By timm's name, with the parameters below the head.
NETWORKS = {
    "inception_v4": ModelSpec(
        functools.partial(Inception, steps=tuple(_STEPS.items()), dropout=0.0),
        options=("dropout",),
        has_blocks=True,
        names=PublishedNames(
            {
                "stem{}_{}": "features.{}.{}",
                "block{}/forked{}_{}_{}": "features.{}.branch{}_{}.{}",
                **timms_names("block{}", "features.{}"),
            },
            publisher="timm",
            head="last_linear",
        ),
        num_parameters=41_142_816,
        normalization=HALVES,
        image_size=299,
        smallest=75,
    )
}
