"""A multilayer perceptron."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models import layers


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
        hidden = inputs.reshape(inputs.shape[0], -1)
        for _ in range(self.depth):
            hidden = nn.Dense(self.width, use_bias=False, dtype=self.dtype)(hidden)
            hidden = layers.batch_norm(
                hidden, train=train, axis_name=self.axis_name, dtype=self.dtype
            )
            hidden = nn.relu(hidden)
            if self.dropout > 0:
                hidden = nn.Dropout(self.dropout)(hidden, deterministic=not train)
        return hidden.astype(jnp.float32)
