"""Rules that search by the bits of floats, in forms that sort: the same sets.

ONNX has no operation that takes floats for integers before opset 26, which browsers do not have.
Probabilities are summed as integers here too, so that sums are exact.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _numerics

ORDERED = ("aps", "raps", "saps")
# As in `topk_jax.sets`: probabilities are added up in units of 2^-30, exactly.
_UNIT = 2.0**30


def ordered_sets(
    probabilities: jax.Array,
    limit: ArrayLike,
    *,
    kind: str,
    rank_penalty: float = 0.0,
    unpenalized_ranks: int = 2,
) -> jax.Array:
    """The classes whose score of these probabilities [..., L] is at most the limit.

    Scores grow from the likeliest class on. See `topk_jax.sets.conformal_scores` for the other
    arguments; the default of `unpenalized_ranks` is that of "saps".
    """
    num_classes, zero = probabilities.shape[-1], jnp.zeros((), jnp.float32)
    probabilities = probabilities.astype(jnp.float32)
    # The rules take the smallest floats, of fewer digits, for 0.
    probabilities = jnp.where(probabilities < np.finfo(np.float32).tiny, zero, probabilities)
    descending, _ = jax.lax.top_k(probabilities, num_classes)
    ranks = _by_rank(np.arange(num_classes), probabilities)
    beyond = np.maximum(ranks + 1 - unpenalized_ranks, 0)
    penalties = np.float32(rank_penalty) * beyond.astype(np.float32)
    if kind == "saps":
        scores = jnp.where(ranks == 0, zero, descending[..., :1] + penalties)
    else:
        units = jnp.round(descending * _UNIT).astype(jnp.int32)
        above = jnp.cumsum(units, axis=-1) - units
        scores = jnp.minimum(above, int(_UNIT)).astype(jnp.float32) / _UNIT + penalties
    # Scores grow with the rank. The first of equal probabilities has the score of all of them.
    kept = jnp.where(scores <= jnp.asarray(limit, jnp.float32), descending, jnp.inf)
    return probabilities >= kept.min(axis=-1, keepdims=True)


def adaptive_sets(probabilities: jax.Array, error: float) -> jax.Array:
    """The fewest classes that miss at most an error; see `topk_jax.sets.adaptive_set`."""
    num_classes = probabilities.shape[-1]
    excess = probabilities.sum(axis=-1, keepdims=True) - 1
    rounding = _numerics.rounding_to_spare(probabilities.dtype)
    allowed = (error + jnp.where(jnp.abs(excess) <= rounding, 0, excess)) * (1 + rounding)
    descending, classes = jax.lax.top_k(probabilities, num_classes)
    missed = jnp.cumsum(descending[..., ::-1], axis=-1)
    number = (missed <= allowed).astype(jnp.int32).sum(axis=-1, keepdims=True)
    return _likeliest(classes, jnp.maximum(num_classes - number, 1))


def best_sets(probabilities: jax.Array, worth: np.ndarray) -> jax.Array:
    """The sets of the largest expected utility for the worth by size, [L]."""
    num_classes = probabilities.shape[-1]
    descending, classes = jax.lax.top_k(probabilities, num_classes)
    expected = _by_rank(worth, probabilities) * jnp.cumsum(descending, axis=-1)
    # As in `topk_jax.sets`: the first within 16 roundings of the largest.
    largest = expected.max(axis=-1, keepdims=True)
    are_best = expected >= largest - _numerics.rounding_to_spare(expected.dtype) * largest
    return _likeliest(classes, are_best.astype(jnp.float32).argmax(axis=-1)[..., None] + 1)


def _likeliest(classes: jax.Array, sizes: jax.Array) -> jax.Array:
    """Sets [..., L] of the first classes in an order [..., L], by their sizes [..., 1]."""
    chosen = _by_rank(np.arange(classes.shape[-1]), classes).astype(sizes.dtype) < sizes
    # The smallest first: the inverse of a permutation.
    places = jax.lax.top_k(-classes, classes.shape[-1])[1]
    return jnp.take_along_axis(chosen, places, axis=-1)


def _by_rank(values: np.ndarray, rows: jax.Array) -> np.ndarray:
    """Values [L] with the axes of rows [..., L]."""
    return values.reshape((*[1] * (rows.ndim - 1), -1))
