"""A multilayer perceptron."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models.layers import Layers


class MLP(nn.Module):
    """Hidden layers with batch norm; the input is the vector of all pixels, or of the features.

    Attributes:
        axis_name: the axis over devices over which batch norm averages.
        width: the number of units of each hidden layer, which is the number of features.
        depth: the number of hidden layers.
        dropout: the probability that a unit is set to 0 in training.
        dtype: the type in which the hidden layers compute.
    """

    axis_name: str | None
    width: int = 256
    depth: int = 2
    dropout: float = 0.0
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, inputs: jax.Array, *, train: bool) -> jax.Array:
        """Inputs [n, ...] to features [n, width]."""
        layers = Layers(self.dtype, train, self.axis_name)
        hidden = inputs.reshape(inputs.shape[0], -1)
        for _ in range(self.depth):
            hidden = layers.dense(hidden, self.width, use_bias=False)
            hidden = layers.dropout(nn.relu(layers.batch_norm(hidden)), self.dropout)
        return hidden.astype(jnp.float32)
