"""VGG-11 without batch norm, as torchvision builds it (Simonyan and Zisserman 2015).

The last layer, `classifier.6` in torchvision, is the head here.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models.layers import Layers, adaptive_mean, channels_first, max_pool
from train.models.model_spec import ModelSpec
from train.models.weights.names import PublishedNames

# The convolutions of each stage.
_STAGE_SIZES = (1, 1, 2, 2, 2)
# The rows and columns of the map below the hidden layers, for any size of the images.
_MAP = 7


class VGG(nn.Module):
    """Five stages of 3 by 3 convolutions, each with a pooling at its end, and two hidden layers.

    Attributes:
        axis_name: not used; networks with batch norm average over this axis.
        widths: the channels of each stage.
        hidden: the units of each hidden layer, which is the number of features.
        dropout: the probability that a hidden unit is set to 0 in training.
        dtype: the type in which the layers compute.
    """

    axis_name: str | None
    widths: tuple[int, int, int, int, int] = (64, 128, 256, 512, 512)
    hidden: int = 4096
    dropout: float = 0.5
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, hidden]."""
        layers = Layers(self.dtype, train, self.axis_name)
        hidden = images
        for stage, (size, width) in enumerate(zip(_STAGE_SIZES, self.widths, strict=True), start=1):
            for number in range(1, size + 1):
                name = f"conv{stage}_{number}"
                hidden = nn.relu(layers.conv(hidden, width, 3, use_bias=True, name=name))
            hidden = max_pool(hidden, 2, stride=2)
        hidden = channels_first(adaptive_mean(hidden, _MAP))
        for number in (1, 2):
            hidden = nn.relu(layers.dense(hidden, self.hidden, name=f"fc{number}"))
            hidden = layers.dropout(hidden, self.dropout)
        return hidden.astype(jnp.float32)


_NAMES = PublishedNames(
    {
        "conv1_1": "features.0",
        "conv2_1": "features.3",
        "conv3_1": "features.6",
        "conv3_2": "features.8",
        "conv4_1": "features.11",
        "conv4_2": "features.13",
        "conv5_1": "features.16",
        "conv5_2": "features.18",
        "fc1": "classifier.0",
        "fc2": "classifier.3",
    },
    head="classifier.6",
)

# By torchvision's name, with the parameters below the head.
NETWORKS = {
    "vgg11": ModelSpec(
        VGG, options=("dropout",), names=_NAMES, num_parameters=128_766_336, smallest=32
    )
}
