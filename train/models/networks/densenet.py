"""DenseNet-BC (Huang et al. 2017, "Densely connected convolutional networks").

The one for images of 32 by 32 pixels is the paper's. Those for large images are as torchvision
builds them; their last layer, `classifier` in torchvision, is the head here.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from train.models.layers import Layers, Network, avg_pool, max_pool, mean_over_image
from train.models.model_spec import ModelSpec
from train.models.weights.names import OtherNames, PublishedNames

# Channels inside a bottleneck, and channels before the first block, in units of the growth.
_BOTTLENECK = 4
_STEM = 2


class DenseLayer(nn.Module):
    """A bottleneck layer: its inputs, and new channels beside them.

    Attributes:
        growth: the number of new channels.
        dropout: the probability that a number of the new channels is set to 0 in training.
        layers: the layers of the network.
    """

    growth: int
    dropout: float
    layers: Layers

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h, w, c + growth]."""
        layers = self.layers
        hidden = nn.relu(layers.batch_norm(inputs, name="bn1"))
        hidden = layers.conv(hidden, _BOTTLENECK * self.growth, 1, name="conv1")
        hidden = nn.relu(layers.batch_norm(hidden, name="bn2"))
        hidden = layers.conv(hidden, self.growth, 3, name="conv2")
        # Only the new channels are kept. Concatenating again takes little time and saves memory.
        new = layers.keep(layers.dropout(hidden, self.dropout))
        return jnp.concatenate([inputs, new], axis=-1)


class Transition(nn.Module):
    """Halves the channels and the image between two blocks.

    Attributes:
        layers: the layers of the network.
    """

    layers: Layers

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h / 2, w / 2, c / 2]."""
        hidden = nn.relu(self.layers.batch_norm(inputs, name="bn"))
        hidden = self.layers.conv(hidden, inputs.shape[-1] // 2, 1, name="conv")
        return self.layers.keep(avg_pool(hidden, 2, stride=2))


class DenseNet(Network):
    """A convolution, then blocks of bottleneck layers with transitions between them.

    The depth of a network for small images, as the paper counts it, is 2 · layers + 4.

    Attributes:
        layers_of_blocks: the number of bottleneck layers of each block.
        growth: the number of channels that each bottleneck layer adds.
        of_small_images: whether the first convolution is of 3 by 3 pixels, in place of one of 7 by
            7, a norm and a pooling to a quarter of the image.
        dropout: the probability that a number of the new channels of a bottleneck layer is set to 0
            in training.
    """

    layers_of_blocks: tuple[int, ...]
    growth: int = 32
    of_small_images: bool = False
    dropout: float = 0.0

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features, 1,024 of a DenseNet-121."""
        layers = self.make_layers(train)
        size, stride = (3, 1) if self.of_small_images else (7, 2)
        hidden = layers.conv(images, _STEM * self.growth, size, stride=stride, name="conv0")
        if not self.of_small_images:
            hidden = nn.relu(layers.batch_norm(hidden, name="norm0"))
            hidden = max_pool(hidden, 3, stride=2, padding=1)
        for block, num_layers in enumerate(self.layers_of_blocks, start=1):
            if block > 1:
                hidden = Transition(layers, name=f"transition{block - 1}")(hidden)
            for index in range(1, num_layers + 1):
                name = f"denseblock{block}_denselayer{index}"
                hidden = DenseLayer(self.growth, self.dropout, layers, name=name)(hidden)
        return mean_over_image(nn.relu(layers.batch_norm(hidden, name="norm5")))


_LAYER = "features.denseblock{}.denselayer{}"
_NAMES = PublishedNames(
    {
        "denseblock{}_denselayer{}/bn{}": f"{_LAYER}.norm{{}}",
        "denseblock{}_denselayer{}/conv{}": f"{_LAYER}.conv{{}}",
        "transition{}/bn": "features.transition{}.norm",
        "transition{}/conv": "features.transition{}.conv",
        "{}": "features.{}",
    },
    head="classifier",
    others=(
        # The files that torchvision publishes are older than its names.
        OtherNames(
            sign="features.denseblock1.denselayer1.norm.1.weight",
            renames={
                f"{_LAYER}.norm.{{}}": f"{_LAYER}.norm{{}}",
                f"{_LAYER}.conv.{{}}": f"{_LAYER}.conv{{}}",
            },
        ),
    ),
)


def _densenet(
    layers_of_blocks: tuple[int, int, int, int], num_parameters: int, growth: int = 32
) -> ModelSpec:
    return ModelSpec(
        functools.partial(DenseNet, layers_of_blocks=layers_of_blocks, growth=growth),
        options=("dropout",),
        names=_NAMES,
        num_parameters=num_parameters,
        has_blocks=True,
        smallest=29,
    )


# The network of Chapter 4, and torchvision's by its names, with the parameters below the head.
NETWORKS = {
    "densenet_40_40": ModelSpec(
        functools.partial(DenseNet, layers_of_blocks=(6, 6, 6), growth=40, of_small_images=True),
        has_blocks=True,
    ),
    "densenet121": _densenet((6, 12, 24, 16), 6_953_856),
    "densenet161": _densenet((6, 12, 36, 24), 26_472_000, growth=48),
    "densenet169": _densenet((6, 12, 32, 32), 12_484_480),
    "densenet201": _densenet((6, 12, 48, 32), 18_092_928),
}
