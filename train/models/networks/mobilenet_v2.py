"""MobileNetV2 (Sandler et al. 2018), as torchvision builds it.

The last layer, `classifier.1` in torchvision, is the head here.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models.layers import Layers
from train.models.model_spec import ModelSpec
from train.models.networks.inverted_residual import Block, mobile_features
from train.models.weights.names import PublishedNames


class MobileNetV2(nn.Module):
    """Inverted residuals with ReLU6.

    Attributes:
        axis_name: the axis over devices over which batch norm averages.
        stages: for each, the number of channels inside a block divided by the channels of its
            inputs, the channels of its result, the number of blocks, and the stride of the first
            block.
        stem: the channels of the first convolution.
        last: the number of features.
        dropout: the probability that a feature is set to 0 in training.
        dtype: the type in which the convolutions compute.
    """

    axis_name: str | None
    stages: tuple[tuple[int, int, int, int], ...]
    stem: int = 32
    last: int = 1280
    dropout: float = 0.2
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, last]."""
        layers = Layers(self.dtype, train, self.axis_name)
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


_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

_NAMES = PublishedNames(
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

# By torchvision's name, with the parameters below the head.
NETWORKS = {
    "mobilenet_v2": ModelSpec(
        functools.partial(MobileNetV2, stages=_STAGES),
        options=("dropout",),
        names=_NAMES,
        num_parameters=2_223_872,
        has_blocks=True,
    ),
}
