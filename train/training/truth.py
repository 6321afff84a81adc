"""What the loss of an example is a function of, and examples that are mixed in pairs.

The truth of an example is its label, or a row of classes with shares.

Mixup (Zhang et al., 2018) mixes neighbours. The order of the examples is random, so a neighbour is
as good as an example drawn from the batch. Both are on one device and in one part of a batch that
is computed in parts. So the pairs are the same for any number of devices and of parts, and the
devices exchange nothing. Each example draws a share of its own, instead of one for the batch. The
expected loss is the same, its variance is smaller, and the share is a function of the example's
key, like all random numbers of a step.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

# "labels" [n]. If the truth is more than one class, there are also "classes" [n, m], and either
# "shares" [n, m], of votes, or "present" bool [n, m], of several labels; see
# `train.data.truths.Truths`.
Truth = dict[str, jax.Array]
_NAMES = ("labels", "classes", "shares", "present")
# Takes a function of the truth of n examples to values [n], and returns the values for each: for
# mixed examples the mean over the truths of both, weighted by the shares.
OfTruth = Callable[[Callable[[Truth], jax.Array]], jax.Array]
# The examples of a device, or of its part of a batch, are a multiple of this if they are mixed.
PAIR = 2


def of_batch(batch: Mapping[str, jax.Array]) -> Truth:
    """The truth of the examples of a batch."""
    return {name: batch[name] for name in _NAMES if name in batch}


def expect(function: Callable[[jax.Array], jax.Array], truth: Truth) -> jax.Array:
    """The values [n] of a function of labels [n]: means over the classes of each row.

    The function is computed for m classes, and no row over all classes is made.
    """
    if "classes" not in truth:
        return function(truth["labels"])
    values = jax.vmap(function, in_axes=1, out_axes=1)(truth["classes"])
    shares = _shares(truth)
    # Hazard: 0 times what is infinite, for a class without a share, is NaN. Choice: no product.
    return jnp.where(shares > 0, shares * values, 0).sum(axis=1)


def targets(truth: Truth, num_classes: int) -> jax.Array:
    """The rows over all classes [n, L]: 1 for each class that is present, or shares of votes."""
    if "classes" not in truth:
        return jax.nn.one_hot(truth["labels"], num_classes)
    classes = truth["classes"]
    values = truth["present"].astype(jnp.float32) if "present" in truth else truth["shares"]
    rows = jnp.arange(len(classes))[:, None]
    # Places that an example does not need repeat one of its classes, and add 0 to it.
    return jnp.zeros((len(classes), num_classes), jnp.float32).at[rows, classes].add(values)


def _shares(truth: Truth) -> jax.Array:
    if "shares" in truth:
        return truth["shares"]
    present = truth["present"].astype(jnp.float32)
    return present / jnp.maximum(present.sum(axis=1, keepdims=True), 1)


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
