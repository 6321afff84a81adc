"""Mixup (Zhang et al., 2018): each example of a batch is mixed with the one before it.

The order of the examples is random, so the one before is as good as one drawn from the batch. It is
the same for any number of devices, and the devices exchange a single example each. Where a batch is
computed in parts, examples are mixed within a part.

Each example draws a share of its own, not all of a batch the same one. The mean loss is the same,
its variance is smaller, and the share is a function of the example's key, as all random numbers of
a step are.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

# Takes a function from labels [n] to values [n], and returns the values for each example: of mixed
# ones the mean over their two labels, weighted by the shares.
OfLabels = Callable[[Callable[[jax.Array], jax.Array]], jax.Array]


def mix(
    keys: jax.Array, alpha: jax.Array, inputs: jax.Array, labels: jax.Array, *, axis_name: str
) -> tuple[jax.Array, OfLabels]:
    """The mixed inputs, and the values of functions of their labels.

    Args:
        keys: the key of each example, [n].
        alpha: the share of an example is drawn from Beta(alpha, alpha).
        inputs: floating-point images or features, [n, ...].
        labels: their classes, [n].
        axis_name: the axis over devices, each with consecutive examples of the batch.
    """
    # The sampler returns NaN below 1e-38; all shares are 0 or 1 long before.
    alpha = jnp.maximum(alpha, 1e-30)
    shares = jax.vmap(lambda key: jax.random.beta(key, alpha, alpha, dtype=inputs.dtype))(keys)
    others, other_labels = _before((inputs, labels), axis_name)
    of_each = shares.reshape(-1, *(1,) * (inputs.ndim - 1))
    return (
        of_each * inputs + (1 - of_each) * others,
        lambda function: shares * function(labels) + (1 - shares) * function(other_labels),
    )


def _before(arrays: Any, axis_name: str) -> Any:
    """For each example the one before it in the batch of all devices; the last for the first."""
    devices = jax.lax.psum(1, axis_name)
    to_the_next = [(device, (device + 1) % devices) for device in range(devices)]

    def of_array(array: jax.Array) -> jax.Array:
        received = jax.lax.ppermute(array[-1:], axis_name, to_the_next)
        return jnp.concatenate([received, array[:-1]])

    return jax.tree.map(of_array, arrays)
