"""Mixup (Zhang et al., 2018): the examples of a batch are mixed in pairs of neighbours.

The order of the examples is random, so a neighbour is as good as an example drawn from the batch.
Both are on one device and in one part of a batch that is computed in parts. So the pairs are the
same for any number of devices and of parts, and the devices exchange nothing. On the CPU, whose
devices share threads, an exchange that does not wait for another result can deadlock with the
exchanges of gradients and statistics.

Each example draws a share of its own, instead of one share for the batch. The expected loss is the
same, its variance is smaller, and the share is a function of the example's key, like all random
numbers of a step.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from train.training.truth import Truth

# The examples of a device, or of its part of a batch, are a multiple of this.
PAIR = 2

# Takes a function of the truth of n examples to values [n], and returns the values for each: for
# mixed examples the mean over the truths of both, weighted by the shares.
OfTruth = Callable[[Callable[[Truth], jax.Array]], jax.Array]


def mix(
    keys: jax.Array, alpha: jax.Array, inputs: jax.Array, truth: Truth
) -> tuple[jax.Array, OfTruth]:
    """The mixed inputs, and the values of functions of their truth.

    Args:
        keys: the key of each example, [n]; n is a multiple of `PAIR`.
        alpha: the share of an example is drawn from Beta(alpha, alpha).
        inputs: floating-point images or features, [n, ...].
        truth: their classes; each array is [n, ...].
    """
    # The sampler returns NaN below 1e-38; all shares are 0 or 1 long before.
    alpha = jnp.maximum(alpha, 1e-30)
    shares = jax.vmap(lambda key: jax.random.beta(key, alpha, alpha, dtype=inputs.dtype))(keys)
    others, other_truth = _neighbours(inputs), jax.tree.map(_neighbours, truth)
    of_each = shares.reshape(-1, *(1,) * (inputs.ndim - 1))
    return (
        of_each * inputs + (1 - of_each) * others,
        lambda function: shares * function(truth) + (1 - shares) * function(other_truth),
    )


def _neighbours(array: jax.Array) -> jax.Array:
    """The other example of each pair, [n, ...]."""
    return array.reshape(-1, PAIR, *array.shape[1:])[:, ::-1].reshape(array.shape)
