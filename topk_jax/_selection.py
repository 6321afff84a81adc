"""What calibration selects by: a threshold found bit by bit, a sum that keeps its digits."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from topk_jax import _ordinals

# Sums are taken of blocks of this many values, then of as many of those sums, and so on.
_BLOCK = 32


def largest_threshold(values: jax.Array, allows: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """The largest of the values [N], or infinity, such that `allows(values >= threshold)`.

    `allows` holds for the smallest value, and for all up to some value.

    Identity: the ordinals of floats are in their order, so the threshold is found bit by bit.
    Hazard: a full sort is slow, and a partial one slow where many values are wanted. Choice: one
    pass over the values for each bit, whatever the rank. Cost: 32 passes (64 over float64), and one
    copy.
    """
    ordinals, greatest = _greatest_ordinal(values, allows, values.max())
    return jnp.where(ordinals >= greatest, values, jnp.inf).min()


def kth_index(scores: jax.Array, k: int) -> jax.Array:
    """The index of the k-th largest of the scores along the last axis, `[..., 1]`.

    Its time does not depend on k. Equal scores rank in the order of their indices.
    """
    ordinals, greatest = _greatest_ordinal(
        scores,
        lambda kept: kept.sum(axis=-1, keepdims=True) >= k,
        scores.max(axis=-1, keepdims=True),
    )
    num_above = (ordinals > greatest).sum(axis=-1, keepdims=True)
    return nth_true(ordinals == greatest, k - num_above)


def nth_true(mask: jax.Array, n: jax.Array) -> jax.Array:
    """The index of the n-th true entry along the last axis, `[..., 1]`, as n is.

    Hazard: a running count costs more than the rest of a selection, to find what is almost always
    the first. Choice: the least index, and only where some n is not 1 a bisection. Cost: one pass,
    or as many more as an index has bits.
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


def _greatest_ordinal(
    values: jax.Array, allows: Callable[[jax.Array], jax.Array], like: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The ordinals of the values, and the greatest number that `allows` keeps.

    The greatest is of the shape of `like`, which is made from the values and never computed: under
    shard_map the loop has to start from what varies over the devices as the values do.
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
    """The sum of [N] values in float32 without the error that grows with N.

    Hazard: one running sum of 1e8 small numbers loses several digits. Choice: sums of blocks, then
    of blocks of these; barriers keep XLA from merging them. Cost: about one more pass of N / 32.
    """
    while values.size > 1:
        padded = jnp.pad(values, (0, -values.size % _BLOCK))
        values = jax.lax.optimization_barrier(padded.reshape(-1, _BLOCK).sum(axis=-1))
    return values[0]


def once(scores: jax.Array) -> jax.Array:
    """The scores, computed once.

    Hazard: where they are fused into each of several uses, two roundings of one score can differ,
    and a comparison of a score with itself can fail. Choice: a barrier. Cost: they are stored.
    """
    return jax.lax.optimization_barrier(scores)
