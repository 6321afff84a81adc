"""AlexNet for large images, as torchvision builds it (Krizhevsky 2014, "One weird trick ...").

The last layer, `classifier.6` in torchvision, is the head here.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models.layers import Layers, adaptive_mean, channels_first, max_pool
from train.models.model_spec import ModelSpec
from train.models.weights.names import PublishedNames

# The rows and columns of the map below the hidden layers, for any size of the images.
_MAP = 6


class AlexNet(nn.Module):
    """Five convolutions without batch norm and two hidden layers.

    Attributes:
        axis_name: not used; networks with batch norm average over this axis.
        widths: the channels of the convolutions.
        hidden: the units of each hidden layer, which is the number of features.
        dropout: the probability that an input of a hidden layer is set to 0 in training.
        dtype: the type in which the layers compute.
    """

    axis_name: str | None
    widths: tuple[int, int, int, int, int] = (64, 192, 384, 256, 256)
    hidden: int = 4096
    dropout: float = 0.5
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, hidden]."""
        layers = Layers(self.dtype, train, self.axis_name)
        conv = functools.partial(layers.conv, use_bias=True)
        first, second, *others = self.widths
        hidden = nn.relu(conv(images, first, 11, stride=4, padding=2, name="conv1"))
        hidden = max_pool(hidden, 3, stride=2)
        hidden = nn.relu(conv(hidden, second, 5, name="conv2"))
        hidden = max_pool(hidden, 3, stride=2)
        for number, width in enumerate(others, start=3):
            hidden = nn.relu(conv(hidden, width, 3, name=f"conv{number}"))
        hidden = max_pool(hidden, 3, stride=2)
        hidden = channels_first(adaptive_mean(hidden, _MAP))
        for number in (1, 2):
            hidden = layers.dropout(hidden, self.dropout)
            hidden = nn.relu(layers.dense(hidden, self.hidden, name=f"fc{number}"))
        return hidden.astype(jnp.float32)


_NAMES = PublishedNames(
    {
        "conv1": "features.0",
        "conv2": "features.3",
        "conv3": "features.6",
        "conv4": "features.8",
        "conv5": "features.10",
        "fc1": "classifier.1",
        "fc2": "classifier.4",
    },
    head="classifier.6",
)

# By torchvision's name, with the parameters below the head.
NETWORKS = {
    "alexnet": ModelSpec(
        AlexNet, options=("dropout",), names=_NAMES, num_parameters=57_003_840, smallest=63
    )
}
