"""What the loss of an example is a function of: its label, or a row of classes with shares."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

# "labels" [n]. If the truth is more than one class, there are also "classes" [n, m], and either
# "shares" [n, m], of votes, or "present" bool [n, m], of several labels; see
# `train.data.truths.Truths`.
Truth = dict[str, jax.Array]
_NAMES = ("labels", "classes", "shares", "present")


def of_batch(batch: Mapping[str, jax.Array]) -> Truth:
    """The truth of the examples of a batch."""
    return {name: batch[name] for name in _NAMES if name in batch}


def expect(function: Callable[[jax.Array], jax.Array], truth: Truth) -> jax.Array:
    """The values [n] of a function of labels [n]: means over the classes of each row.

    The function is computed for m classes, and no row over all classes is made. So it may also be
    computed if a device has a part of the classes.
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
