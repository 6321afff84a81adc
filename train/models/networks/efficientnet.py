"""EfficientNets (Tan and Le 2019), as timm and torchvision build them, and EfficientNet-Lite0.

The names are timm's, in which weights for Pl@ntNet-300K are published. The last layer, `classifier`
in timm, is the head here.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
from flax import linen as nn

from train.models.layers import Activation, Network
from train.models.model_spec import HALVES, IMAGENET, ModelSpec, Normalization
from train.models.networks.inverted_residual import (
    Block,
    Squeeze,
    mobile_features,
    round_channels,
)
from train.models.weights.names import OtherNames, PublishedNames


class Stage(NamedTuple):
    """Blocks of one shape.

    Attributes:
        expansion: the number of channels inside a block, divided by the number of channels of its
            inputs.
        size: the rows and columns of the depthwise convolutions.
        stride: the stride of the first block.
        channels: the channels of the results.
        num_blocks: the number of blocks.
    """

    expansion: int
    size: int
    stride: int
    channels: int
    num_blocks: int


class EfficientNet(Network):
    """Stages of inverted residuals.

    Attributes:
        stages: the stages.
        stem: the channels of the first convolution.
        last: the number of features.
        squeezes: whether each block has a squeeze-and-excite, of a quarter of its inputs' channels.
        activation: the activation of all layers.
        of_tensorflow: whether the padding and batch norm's epsilon are TensorFlow's.
        dropout: the probability that a feature is set to 0 in training.
        stochastic_depth: see `mobile_features`.
    """

    stages: tuple[Stage, ...]
    stem: int = 32
    last: int = 1280
    squeezes: bool = True
    activation: Activation = nn.silu
    of_tensorflow: bool = False
    dropout: float = 0.2
    stochastic_depth: float = 0.2

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, last]."""
        layers = self.make_layers(
            train,
            epsilon=1e-3 if self.of_tensorflow else 1e-5,
            tensorflow_padding=self.of_tensorflow,
        )
        blocks: dict[str, Block] = {}
        inputs = self.stem
        for number, stage in enumerate(self.stages):
            for index in range(stage.num_blocks):
                squeeze = Squeeze(inputs // 4, self.activation, nn.sigmoid)
                blocks[f"blocks{number}_{index}"] = Block(
                    expanded=stage.expansion * inputs,
                    size=stage.size,
                    stride=stage.stride if index == 0 else 1,
                    channels=stage.channels,
                    activation=self.activation,
                    squeeze=squeeze if self.squeezes else None,
                )
                inputs = stage.channels
        features = mobile_features(
            layers,
            images,
            stem=self.stem,
            blocks=blocks,
            last=self.last,
            activation=self.activation,
            stochastic_depth=self.stochastic_depth,
        )
        return layers.dropout(features, self.dropout)


# The stages of efficientnet_b0.
_STAGES = (
    Stage(1, 3, 1, 16, 1),
    Stage(6, 3, 2, 24, 2),
    Stage(6, 5, 2, 40, 2),
    Stage(6, 3, 2, 80, 3),
    Stage(6, 5, 1, 112, 3),
    Stage(6, 5, 2, 192, 4),
    Stage(6, 3, 1, 320, 1),
)

# The layers of a block here, in timm and in lukemelas' EfficientNet-PyTorch. The blocks of the
# first stage do not expand.
_FIRST = (
    ("depthwise_conv", "conv_dw", "_depthwise_conv"),
    ("depthwise_bn", "bn1", "_bn1"),
    ("project_conv", "conv_pw", "_project_conv"),
    ("project_bn", "bn2", "_bn2"),
)
_LATER = (
    ("expand_conv", "conv_pw", "_expand_conv"),
    ("expand_bn", "bn1", "_bn0"),
    ("depthwise_conv", "conv_dw", "_depthwise_conv"),
    ("depthwise_bn", "bn2", "_bn1"),
    ("project_conv", "conv_pwl", "_project_conv"),
    ("project_bn", "bn3", "_bn2"),
)
_MODULES = {
    "stem_conv": "conv_stem",
    "stem_bn": "bn1",
    **{f"blocks0_{{}}/{here}": f"blocks.0.{{}}.{timm}" for here, timm, _ in _FIRST},
    "blocks{}_{}/squeeze/{}": "blocks.{}.{}.se.conv_{}",
    **{f"blocks{{}}_{{}}/{here}": f"blocks.{{}}.{{}}.{timm}" for here, timm, _ in _LATER},
    "last_conv": "conv_head",
    "last_bn": "bn2",
}
_PLACES = [(stage, index) for stage, one in enumerate(_STAGES) for index in range(one.num_blocks)]
# The package of weights for TensorFlow's Lite0 has them.
_LUKEMELAS = OtherNames(
    sign="_conv_stem.weight",
    renames={
        "_conv_stem": "conv_stem",
        "_bn0": "bn1",
        # The blocks are numbered through all stages.
        **{
            f"_blocks.{number}.{there}": f"blocks.{stage}.{index}.{timm}"
            for number, (stage, index) in enumerate(_PLACES)
            for _, timm, there in (_LATER if stage else _FIRST)
        },
        "_conv_head": "conv_head",
        "_bn1": "bn2",
        "_fc": "classifier",
    },
)


def _spec(
    num_parameters: int,
    *,
    image_size: int = 224,
    normalization: Normalization = IMAGENET,
    others: tuple[OtherNames, ...] = (),
    **settings: Any,
) -> ModelSpec:
    return ModelSpec(
        functools.partial(EfficientNet, **settings),
        options=("dropout", "stochastic_depth"),
        has_blocks=True,
        names=PublishedNames(_MODULES, head="classifier", publisher="timm", others=others),
        num_parameters=num_parameters,
        normalization=normalization,
        image_size=image_size,
    )


def _scaled(
    width: float, depth: float, dropout: float, image_size: int, num_parameters: int
) -> ModelSpec:
    stages = [
        stage._replace(
            channels=round_channels(width * stage.channels),
            num_blocks=math.ceil(depth * stage.num_blocks),
        )
        for stage in _STAGES
    ]
    return _spec(
        num_parameters,
        image_size=image_size,
        stages=tuple(stages),
        stem=round_channels(width * 32),
        last=round_channels(width * 1280),
        dropout=dropout,
    )


_lite = functools.partial(_spec, 3_371_008, stages=_STAGES, squeezes=False, activation=nn.relu6)

# By timm's names, with the parameters below the head. The sizes of images are the sizes at which
# torchvision evaluates. The two of Lite0 have the same variables, so a file of timm's fits both.
NETWORKS = {
    "efficientnet_b0": _scaled(1.0, 1.0, 0.2, 224, 4_007_548),
    "efficientnet_b1": _scaled(1.0, 1.1, 0.2, 240, 6_513_184),
    "efficientnet_b2": _scaled(1.1, 1.2, 0.3, 288, 7_700_994),
    "efficientnet_b3": _scaled(1.2, 1.4, 0.3, 300, 10_696_232),
    "efficientnet_b4": _scaled(1.4, 1.8, 0.4, 380, 17_548_616),
    "efficientnet_lite0": _lite(),
    "tf_efficientnet_lite0": _lite(of_tensorflow=True, normalization=HALVES, others=(_LUKEMELAS,)),
}
