"""A network without layers below the head."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike


class Linear(nn.Module):
    """The input as a vector, so that the logits are a linear function of it.

    Attributes:
        axis_name: not used; networks with batch norm average over this axis.
        dtype: not used, because there are no layers below the head.
    """

    axis_name: str | None
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, inputs: jax.Array, *, train: bool) -> jax.Array:
        """Inputs [n, ...] to features [n, d]: all numbers of an image, or the features."""
        del train  # Training does not change anything here.
        return inputs.reshape(inputs.shape[0], -1).astype(jnp.float32)
