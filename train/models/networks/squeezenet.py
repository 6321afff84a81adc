"""SqueezeNet 1.0 for large images, as torchvision builds it (Iandola et al. 2016).

The last layer, `classifier.1` in torchvision, is the head here. It is a convolution of 1 by 1, so
that there are features at every place of the image.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from train.models.layers import Layers, Network, max_pool
from train.models.model_spec import ModelSpec
from train.models.weights.names import PublishedNames

# The channels inside each fire, in units of the first fire's.
_SQUEEZED = (1, 1, 2, 2, 3, 3, 4, 4)
# The fires before which the image is halved: the fourth and the last.
_POOLED = (3, 7)


class Fire(nn.Module):
    """A 1 by 1 convolution to few channels, then one of 1 by 1 beside one of 3 by 3.

    Attributes:
        squeezed: the number of these few channels; the block has eight times this number.
        layers: the layers of the network.
    """

    squeezed: int
    layers: Layers

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h, w, 8 · squeezed]."""
        conv = functools.partial(self.layers.conv, use_bias=True)
        hidden = nn.relu(conv(inputs, self.squeezed, 1, name="squeeze"))
        small = conv(hidden, 4 * self.squeezed, 1, name="expand1x1")
        large = conv(hidden, 4 * self.squeezed, 3, name="expand3x3")
        return self.layers.keep(nn.relu(jnp.concatenate([small, large], axis=-1)))


class SqueezeNet(Network):
    """A 7 by 7 convolution and eight fires, without batch norm.

    Attributes:
        width: the channels of the first convolution.
        squeezed: the channels inside the first fire; there are 32 times as many features.
        dropout: the probability that a feature of a place is set to 0 in training.
    """

    width: int = 96
    squeezed: int = 16
    dropout: float = 0.5

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, h, w, 32 · squeezed]."""
        layers = self.make_layers(train)
        pool = functools.partial(max_pool, size=3, stride=2, ceil=True)
        hidden = layers.conv(
            images, self.width, 7, stride=2, padding=0, use_bias=True, name="conv1"
        )
        hidden = pool(nn.relu(hidden))
        for index, squeezed in enumerate(_SQUEEZED):
            if index in _POOLED:
                hidden = pool(hidden)
            # The paper counts the first convolution too.
            fire = Fire(squeezed * self.squeezed, layers, name=f"fire{index + 2}")
            hidden = fire(hidden)
        return layers.dropout(hidden, self.dropout).astype(jnp.float32)


_NAMES = PublishedNames(
    {
        "conv1": "features.0",
        "fire2/{}": "features.3.{}",
        "fire3/{}": "features.4.{}",
        "fire4/{}": "features.5.{}",
        "fire5/{}": "features.7.{}",
        "fire6/{}": "features.8.{}",
        "fire7/{}": "features.9.{}",
        "fire8/{}": "features.10.{}",
        "fire9/{}": "features.12.{}",
    },
    head="classifier.1",
    head_is_convolution=True,
)

# By the name that the authors of Pl@ntNet-300K have for torchvision's `squeezenet1_0`, with the
# parameters below the head.
NETWORKS = {
    "squeezenet": ModelSpec(
        SqueezeNet,
        options=("dropout",),
        names=_NAMES,
        num_parameters=735_424,
        has_blocks=True,
        smallest=21,
    )
}
