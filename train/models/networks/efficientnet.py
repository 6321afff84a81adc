"""EfficientNets (Tan and Le 2019), as timm and torchvision build them, and EfficientNet-Lite0.

The names are timm's, in which weights for Pl@ntNet-300K are published. The last layer, `classifier`
in timm, is the head here.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models.layers import Activation, Layers
from train.models.model_spec import ModelSpec
from train.models.networks.inverted_residual import (
    Block,
    Squeeze,
    mobile_features,
    round_channels,
)
from train.models.normalization import HALVES, IMAGENET
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


class EfficientNet(nn.Module):
    """Stages of inverted residuals.

    Attributes:
        axis_name: the axis over devices over which batch norm averages.
        stages: the stages.
        stem: the channels of the first convolution.
        last: the number of features.
        squeezes: whether each block has a squeeze-and-excite, of a quarter of its inputs' channels.
        activation: the activation of all layers.
        of_tensorflow: whether the padding and batch norm's epsilon are TensorFlow's.
        dropout: the probability that a feature is set to 0 in training.
        stochastic_depth: see `mobile_features`.
        dtype: the type in which the convolutions compute.
    """

    axis_name: str | None
    stages: tuple[Stage, ...]
    stem: int = 32
    last: int = 1280
    squeezes: bool = True
    activation: Activation = nn.silu
    of_tensorflow: bool = False
    dropout: float = 0.2
    stochastic_depth: float = 0.2
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, last]."""
        layers = Layers(
            self.dtype,
            train,
            self.axis_name,
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

# The layers of a block in timm's names. The blocks of the first stage do not expand.
_FIRST = {
    "depthwise_conv": "conv_dw",
    "depthwise_bn": "bn1",
    "project_conv": "conv_pw",
    "project_bn": "bn2",
}
_LATER = {
    "expand_conv": "conv_pw",
    "expand_bn": "bn1",
    "depthwise_conv": "conv_dw",
    "depthwise_bn": "bn2",
    "squeeze/reduce": "se.conv_reduce",
    "squeeze/expand": "se.conv_expand",
    "project_conv": "conv_pwl",
    "project_bn": "bn3",
}
_MODULES = {
    "stem_conv": "conv_stem",
    "stem_bn": "bn1",
    **{f"blocks0_{{}}/{here}": f"blocks.0.{{}}.{there}" for here, there in _FIRST.items()},
    **{f"blocks{{}}_{{}}/{here}": f"blocks.{{}}.{{}}.{there}" for here, there in _LATER.items()},
    "last_conv": "conv_head",
    "last_bn": "bn2",
}

# The numbers of the layers of a block in torchvision's names, and timm's names of the layers.
_TORCHVISION_FIRST = {
    "0.0": "conv_dw",
    "0.1": "bn1",
    "1.fc1": "se.conv_reduce",
    "1.fc2": "se.conv_expand",
    "2.0": "conv_pw",
    "2.1": "bn2",
}
_TORCHVISION_LATER = {
    "0.0": "conv_pw",
    "0.1": "bn1",
    "1.0": "conv_dw",
    "1.1": "bn2",
    "2.fc1": "se.conv_reduce",
    "2.fc2": "se.conv_expand",
    "3.0": "conv_pwl",
    "3.1": "bn3",
}
_TORCHVISION = OtherNames(
    sign="features.0.0.weight",
    renames={
        "features.0.0": "conv_stem",
        "features.0.1": "bn1",
        # The stages are numbered from 1, after the stem.
        **{
            f"features.{stage + 1}.{{}}.block.{there}": f"blocks.{stage}.{{}}.{layer}"
            for stage in range(len(_STAGES))
            for there, layer in (_TORCHVISION_LATER if stage else _TORCHVISION_FIRST).items()
        },
        "features.8.0": "conv_head",
        "features.8.1": "bn2",
        "classifier.1": "classifier",
    },
)

# The names of the layers in lukemelas' EfficientNet-PyTorch, and timm's names.
_LUKEMELAS_FIRST = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
_LUKEMELAS_LATER = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_PLACES = [(stage, index) for stage, one in enumerate(_STAGES) for index in range(one.num_blocks)]
# Its networks, and efficientnet-lite-pytorch's, have TensorFlow's weights and padding.
_LUKEMELAS = OtherNames(
    sign="_conv_stem.weight",
    renames={
        "_conv_stem": "conv_stem",
        "_bn0": "bn1",
        # The blocks are numbered through all stages.
        **{
            f"_blocks.{number}.{there}": f"blocks.{stage}.{index}.{layer}"
            for number, (stage, index) in enumerate(_PLACES)
            for there, layer in (_LUKEMELAS_LATER if stage else _LUKEMELAS_FIRST).items()
        },
        "_conv_head": "conv_head",
        "_bn1": "bn2",
        "_fc": "classifier",
    },
)


def _efficientnet(
    width: float, depth: float, dropout: float, image_size: int, num_parameters: int
) -> ModelSpec:
    stages = tuple(
        stage._replace(
            channels=round_channels(width * stage.channels),
            num_blocks=math.ceil(depth * stage.num_blocks),
        )
        for stage in _STAGES
    )
    build = functools.partial(
        EfficientNet,
        stages=stages,
        stem=round_channels(width * 32),
        last=round_channels(width * 1280),
        dropout=dropout,
    )
    return ModelSpec(
        build,
        options=("dropout", "stochastic_depth"),
        has_blocks=True,
        names=PublishedNames(_MODULES, head="classifier", publisher="timm", others=(_TORCHVISION,)),
        num_parameters=num_parameters,
        image_size=image_size,
    )


def _lite(of_tensorflow: bool) -> ModelSpec:
    build = functools.partial(
        EfficientNet,
        stages=_STAGES,
        squeezes=False,
        activation=nn.relu6,
        of_tensorflow=of_tensorflow,
    )
    return ModelSpec(
        build,
        options=("dropout", "stochastic_depth"),
        has_blocks=True,
        names=PublishedNames(
            _MODULES,
            head="classifier",
            publisher="timm",
            others=(_LUKEMELAS,) if of_tensorflow else (),
        ),
        num_parameters=3_371_008,
        normalization=HALVES if of_tensorflow else IMAGENET,
    )


# By timm's names, with the parameters below the head. The sizes of images are the sizes at which
# torchvision evaluates. The two of Lite0 have the same variables, so a file fits both.
NETWORKS = {
    "efficientnet_b0": _efficientnet(1.0, 1.0, 0.2, 224, 4_007_548),
    "efficientnet_b1": _efficientnet(1.0, 1.1, 0.2, 240, 6_513_184),
    "efficientnet_b2": _efficientnet(1.1, 1.2, 0.3, 288, 7_700_994),
    "efficientnet_b3": _efficientnet(1.2, 1.4, 0.3, 300, 10_696_232),
    "efficientnet_b4": _efficientnet(1.4, 1.8, 0.4, 380, 17_548_616),
    "efficientnet_lite0": _lite(of_tensorflow=False),
    "tf_efficientnet_lite0": _lite(of_tensorflow=True),
}
