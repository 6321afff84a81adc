"""A multilayer perceptron."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from train.models import layers


class MLP(nn.Module):
    """Two hidden layers with batch norm; the input is the vector of all pixels.

    Attributes:
        axis_name: the axis over devices over which batch norm averages.
        width: the number of units of each hidden layer, which is the number of features.
        dtype: the type in which the hidden layers compute.
    """

    axis_name: str | None
    width: int = 256
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Images [n, height, width, channels] to features [n, width]."""
        hidden = images.reshape(images.shape[0], -1)
        for _ in range(2):
            hidden = nn.Dense(self.width, use_bias=False, dtype=self.dtype)(hidden)
            hidden = layers.batch_norm(
                hidden, train=train, axis_name=self.axis_name, dtype=self.dtype
            )
            hidden = nn.relu(hidden)
        return hidden.astype(jnp.float32)
