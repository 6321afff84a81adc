"""AlexNet (Krizhevsky 2014, "One weird trick ...") and VGG-11 (Simonyan and Zisserman 2015).

They are for large images, without batch norm, as torchvision builds them. The last layer,
`classifier.6` in torchvision, is the head here. The map below the hidden layers has the same rows
and columns for any size of the images.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from train.models.layers import Network, adaptive_mean, channels_first, max_pool
from train.models.model_spec import ModelSpec
from train.models.weights.names import PublishedNames


class AlexNet(Network):
    """Five convolutions without batch norm and two hidden layers.

    Attributes:
        widths: the channels of the convolutions.
        hidden: the units of each hidden layer, which is the number of features.
        dropout: the probability that an input of a hidden layer is set to 0 in training.
    """

    widths: tuple[int, int, int, int, int] = (64, 192, 384, 256, 256)
    hidden: int = 4096
    dropout: float = 0.5

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, hidden]."""
        layers = self.make_layers(train)
        conv = functools.partial(layers.conv, use_bias=True)
        first, second, *others = self.widths
        hidden = nn.relu(conv(images, first, 11, stride=4, padding=2, name="conv1"))
        hidden = max_pool(hidden, 3, stride=2)
        hidden = nn.relu(conv(hidden, second, 5, name="conv2"))
        hidden = max_pool(hidden, 3, stride=2)
        for number, width in enumerate(others, start=3):
            hidden = nn.relu(conv(hidden, width, 3, name=f"conv{number}"))
        hidden = max_pool(hidden, 3, stride=2)
        hidden = channels_first(adaptive_mean(hidden, 6))
        for number in (1, 2):
            hidden = layers.dropout(hidden, self.dropout)
            hidden = nn.relu(layers.dense(hidden, self.hidden, name=f"fc{number}"))
        return hidden.astype(jnp.float32)


class VGG(Network):
    """Five stages of 3 by 3 convolutions, each with a pooling at its end, and two hidden layers.

    Attributes:
        widths: the channels of each stage.
        hidden: the units of each hidden layer, which is the number of features.
        dropout: the probability that a hidden unit is set to 0 in training.
    """

    widths: tuple[int, int, int, int, int] = (64, 128, 256, 512, 512)
    hidden: int = 4096
    dropout: float = 0.5

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, hidden]."""
        layers, hidden = self.make_layers(train), images
        stages = zip((1, 1, 2, 2, 2), self.widths, strict=True)
        for stage, (size, width) in enumerate(stages, start=1):
            for number in range(1, size + 1):
                name = f"conv{stage}_{number}"
                hidden = nn.relu(layers.conv(hidden, width, 3, use_bias=True, name=name))
            hidden = max_pool(hidden, 2, stride=2)
        hidden = channels_first(adaptive_mean(hidden, 7))
        for number in (1, 2):
            hidden = nn.relu(layers.dense(hidden, self.hidden, name=f"fc{number}"))
            hidden = layers.dropout(hidden, self.dropout)
        return hidden.astype(jnp.float32)


_ALEXNET = PublishedNames(
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

_VGG = PublishedNames(
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

# By torchvision's names, with the parameters below the head.
NETWORKS = {
    "alexnet": ModelSpec(
        AlexNet, options=("dropout",), names=_ALEXNET, num_parameters=57_003_840, smallest=63
    ),
    "vgg11": ModelSpec(
        VGG, options=("dropout",), names=_VGG, num_parameters=128_766_336, smallest=32
    ),
}
