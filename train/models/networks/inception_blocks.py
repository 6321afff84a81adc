"""The parts of the Inceptions: branches of convolutions and poolings, side by side."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import linen as nn

from train.models.layers import Layers, Network, Size, avg_pool, max_pool, mean_over_image
from train.models.model_spec import HALVES, ModelSpec
from train.models.weights.names import PublishedNames

# Computes activations from activations, with the layers of a network and the name of the step.
Step = Callable[[Layers, jax.Array, str], jax.Array]
# Branches by name: the steps of each, one after another.
Branches = Mapping[str, tuple[Step, ...]]


@dataclass(frozen=True)
class Conv:
    """A convolution, batch norm and ReLU.

    Attributes:
        channels: the channels of the output.
        size: the rows and columns of the kernel.
        stride: the stride of rows and columns.
        padded: whether there are zeros around the image, half the size of the kernel.
    """

    channels: int
    size: Size = 1
    stride: int = 1
    padded: bool = True

    def __call__(self, layers: Layers, inputs: jax.Array, name: str) -> jax.Array:
        """Activations [n, h, w, c] to [n, h', w', channels]."""
        padding = None if self.padded else 0
        return layers.conv_norm(
            inputs, self.channels, self.size, stride=self.stride, padding=padding, name=name
        )


def halving_conv(channels: int) -> Conv:
    """A convolution of 3 by 3 pixels to half the image."""
    return Conv(channels, 3, stride=2, padded=False)


def halving_pool(_layers: Layers, inputs: jax.Array, _name: str) -> jax.Array:
    """The largest of 3 by 3 pixels, to half the image."""
    return max_pool(inputs, 3, stride=2)


def mean_pool(
    _layers: Layers, inputs: jax.Array, _name: str, *, counts_padding: bool = True
) -> jax.Array:
    """The mean of 3 by 3 pixels, with or without the zeros around the image."""
    return avg_pool(inputs, 3, stride=1, padding=1, counts_padding=counts_padding)


@dataclass(frozen=True)
class Fork:
    """Two convolutions side by side, of 1 by 3 pixels and of 3 by 1.

    Attributes:
        channels: the channels of each.
    """

    channels: int

    def __call__(self, layers: Layers, inputs: jax.Array, name: str) -> jax.Array:
        """Activations [n, h, w, c] to [n, h, w, 2 · channels]."""
        wide = Conv(self.channels, (1, 3))(layers, inputs, f"{name}a")
        high = Conv(self.channels, (3, 1))(layers, inputs, f"{name}b")
        return jnp.concatenate([wide, high], axis=-1)


# The first layers of all Inceptions; of Inception-v4 the first three.
STEM: tuple[Step, ...] = (
    halving_conv(32),
    Conv(32, 3, padded=False),
    Conv(64, 3),
    halving_pool,
    Conv(80),
    Conv(192, 3, padded=False),
    halving_pool,
)


def side_by_side(
    layers: Layers, inputs: jax.Array, branches: Branches, first: int = 0
) -> jax.Array:
    """The outputs of branches, concatenated.

    The name of a step is the name of its branch, with a number if the branch has several steps. A
    pooling before a single convolution does not count, because it does not have variables.

    Args:
        layers: the layers of the network.
        inputs: activations [n, h, w, c].
        branches: the steps of each branch.
        first: the number of the first step of a branch.
    """
    outputs = []
    for branch, steps in branches.items():
        is_single = sum(isinstance(step, Conv | Fork) for step in steps) == 1
        output = inputs
        for number, step in enumerate(steps, start=first):
            output = step(layers, output, branch if is_single else f"{branch}_{number}")
        outputs.append(output)
    return jnp.concatenate(outputs, axis=-1)


class Mixed(nn.Module):
    """Branches side by side.

    Attributes:
        branches: the steps of each branch.
        first: the number of the first step of a branch.
        layers: the layers of the network.
    """

    branches: Branches
    first: int
    layers: Layers

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Activations [n, h, w, c] to [n, h', w', the channels of all branches]."""
        return self.layers.keep(side_by_side(self.layers, inputs, self.branches, self.first))


def mixed(branches: Branches, first: int = 0) -> Step:
    """A step that is one module of branches side by side."""
    return lambda layers, inputs, name: Mixed(branches, first, layers, name=name)(inputs)


class Inception(Network):
    """Steps one after another, the mean over the image, and dropout.

    Attributes:
        steps: the name of each step, and the step.
        dropout: the probability that a feature is set to 0 in training.
    """

    steps: tuple[tuple[str, Step], ...]
    dropout: float

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, the channels of the last step]."""
        layers = self.make_layers(train, epsilon=1e-3)
        hidden = images
        for name, step in self.steps:
            hidden = step(layers, hidden, name)
        return layers.dropout(mean_over_image(hidden), self.dropout)


def spec(
    steps: Mapping[str, Step], dropout: float, num_parameters: int, names: PublishedNames
) -> ModelSpec:
    """The network of steps by their names; see `ModelSpec`."""
    return ModelSpec(
        functools.partial(Inception, steps=tuple(steps.items()), dropout=dropout),
        options=("dropout",),
        has_blocks=True,
        names=names,
        num_parameters=num_parameters,
        normalization=HALVES,
        image_size=299,
        smallest=75,
    )
