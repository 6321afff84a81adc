"""Networks for features, and for images of a few pixels."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from train.models.layers import Network, mean_over_image


class Linear(Network):
    """The input as a vector, so that the logits are a linear function of it."""

    @nn.compact
    def __call__(self, inputs: jax.Array, *, train: bool) -> jax.Array:
        """Inputs [n, ...] to features [n, d]: all numbers of an image, or the features."""
        del train  # Training does not change anything here.
        return inputs.reshape(inputs.shape[0], -1).astype(jnp.float32)


class MLP(Network):
    """Hidden layers with batch norm; the input is the vector of all pixels, or of the features.

    Attributes:
        width: the number of units of each hidden layer, which is the number of features.
        depth: the number of hidden layers.
        dropout: the probability that a unit is set to 0 in training.
    """

    width: int = 256
    depth: int = 2
    dropout: float = 0.0

    @nn.compact
    def __call__(self, inputs: jax.Array, *, train: bool) -> jax.Array:
        """Inputs [n, ...] to features [n, width]."""
        layers = self.make_layers(train)
        hidden = inputs.reshape(inputs.shape[0], -1)
        for _ in range(self.depth):
            hidden = layers.dense(hidden, self.width, use_bias=False)
            hidden = layers.dropout(nn.relu(layers.batch_norm(hidden)), self.dropout)
        return hidden.astype(jnp.float32)


class SmallCNN(Network):
    """Three 3 by 3 convolutions with batch norm, one pooling, and the mean over the image.

    Attributes:
        widths: the channels of the three convolutions; the last is the number of features.
    """

    widths: tuple[int, int, int] = (32, 64, 128)

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, widths[-1]]."""
        layers, hidden = self.make_layers(train), images
        for index, width in enumerate(self.widths):
            if index == 2:
                hidden = nn.max_pool(hidden, (2, 2), strides=(2, 2))
            hidden = nn.Conv(width, (3, 3), use_bias=False, dtype=self.dtype)(hidden)
            hidden = nn.relu(layers.batch_norm(hidden))
        return mean_over_image(hidden)


class StridedCNN(Network):
    """Four 3 by 3 convolutions with batch norm, all but the last with stride 2, and a mean.

    It is cheap enough for one core: an image of 32 x 32 x 3 takes 4.9 million multiply-adds;
    `SmallCNN` takes 39 million. There are 240,480 parameters in the convolutions.

    Attributes:
        widths: the channels of the convolutions; the last is the number of features.
    """

    widths: tuple[int, ...] = (32, 64, 128, 128)

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, widths[-1]]."""
        layers, hidden = self.make_layers(train), images
        for number, width in enumerate(self.widths, start=1):
            stride = 2 if number < len(self.widths) else 1
            hidden = layers.conv_norm(hidden, width, 3, stride=stride, name=f"layer{number}")
        return mean_over_image(hidden)
