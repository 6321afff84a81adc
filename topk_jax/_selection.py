"""Selection for calibration: thresholds found bit by bit, and accurate sums."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from topk_jax import _ordinals

# Sums are taken over blocks of this many values, then over blocks of those sums, and so on.
_BLOCK = 32


def largest_threshold(values: jax.Array, allows: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """The largest of the values [N], or infinity, such that `allows(values >= threshold)`.

    `allows` must hold for the smallest value. If it holds for a value, it must hold for all smaller
    ones.

    Identity: ordinals keep the order of the floats, so the threshold can be found bit by bit.
    Hazard: a full sort is slow, and a partial sort is slow for many values. Choice: one pass over
    the values for each bit, for any rank. Cost: 32 passes (64 for float64), and one copy.
    """
    ordinals, largest = _largest_ordinal(values, allows, values.max())
    return jnp.where(ordinals >= largest, values, jnp.inf).min()


def kth_index(scores: jax.Array, k: int) -> jax.Array:
    """The index of the k-th largest score along the last axis, `[..., 1]`.

    The time does not depend on k. Equal scores rank in the order of their indices.
    """
    ordinals, largest = _largest_ordinal(
        scores,
        lambda kept: kept.sum(axis=-1, keepdims=True) >= k,
        scores.max(axis=-1, keepdims=True),
    )
    num_above = (ordinals > largest).sum(axis=-1, keepdims=True)
    return nth_true(ordinals == largest, k - num_above)


def nth_true(mask: jax.Array, n: jax.Array) -> jax.Array:
    """The index of the n-th true entry along the last axis, for `n` of shape `[..., 1]`.

    Hazard: a running count costs more than the rest of a selection, and n is almost always 1.
    Choice: the smallest index, and a bisection only if some n is not 1. Cost: one pass, plus one
    pass for each bit of an index if there is a bisection.
    """
    length = mask.shape[-1]
    indices = jax.lax.broadcasted_iota(jnp.int32, mask.shape, mask.ndim - 1)
    first = jnp.where(mask, indices, length).min(axis=-1, keepdims=True)

    def try_bit(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        found, bit = state
        candidate = found | bit
        too_few = (mask & (indices < candidate)).sum(axis=-1, keepdims=True) < n
        return jnp.where(too_few, candidate, found), bit >> 1

    highest_bit = 1 << (length.bit_length() - 1)
    start = (jnp.zeros_like(first), jnp.where((n == 1).all(), 0, highest_bit))
    found, _ = jax.lax.while_loop(lambda state: state[1] > 0, try_bit, start)
    return jnp.where(n == 1, first, found)


def _largest_ordinal(
    values: jax.Array, allows: Callable[[jax.Array], jax.Array], like: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The ordinals of the values, and the largest ordinal that `allows` accepts.

    The second has the shape of `like`, which is an expression of the values. Only its shape is
    used, so XLA does not compute it. Under shard_map the initial value of the loop must vary over
    the devices as the values do.
    """
    ordinals = _ordinals.to_ordinals(values)
    unsigned = ordinals.dtype

    def try_bit(_: Any, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        found, bit = state
        candidate = found | bit
        return jnp.where(allows(ordinals >= candidate), candidate, found), bit >> unsigned.type(1)

    start = (jnp.zeros_like(like, dtype=unsigned), jnp.asarray(_ordinals.highest_bit(unsigned)))
    found, _ = jax.lax.fori_loop(0, 8 * unsigned.itemsize, try_bit, start)
    return ordinals, found


def sum_in_blocks(values: jax.Array) -> jax.Array:
    """The sum of [N] values in float32, whose error does not grow with N.

    Hazard: a running sum of 1e8 small numbers loses several digits. Choice: sums over blocks, then
    over blocks of these sums. Barriers keep XLA from merging them. Cost: about one more pass over
    N / 32 values.
    """
    while values.size > 1:
        padded = jnp.pad(values, (0, -values.size % _BLOCK))
        values = jax.lax.optimization_barrier(padded.reshape(-1, _BLOCK).sum(axis=-1))
    return values[0]


def once(scores: jax.Array) -> jax.Array:
    """The scores, computed only once.

    Hazard: XLA may compute a score again for each use, with different rounding. A comparison of a
    score with itself can then fail. Choice: a barrier. Cost: the scores are stored.
    """
    return jax.lax.optimization_barrier(scores)
