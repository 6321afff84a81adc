"""Searches among integers, and so among floats by their ordinals, for the last one that fits."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from topk_jax import _ordinals, _platforms

# Of the number that an accelerator finds in one pass: 15 integers are tried at once.
_BITS_IN_A_PASS = 4


def last_where(
    holds: Callable[[jax.Array], jax.Array], low: jax.Array, high: jax.Array
) -> jax.Array:
    """The last of the integers from `low` to `high`, without `high`, for which a condition holds.

    The condition holds for `low`. If it holds for an integer, it holds for all smaller ones. Both
    ends have the shape and the unsigned dtype of the result, and `holds` maps such an array to
    booleans of its shape.

    Hazard: a loop takes 10 times as long on a GPU as the pass over the data in it. Choice: on the
    CPU, halve the interval, in a loop of one pass for each bit. On accelerators, find several bits
    at once, without a loop. Cost: 32 passes (64 for float64); on accelerators a quarter of them,
    with 15 comparisons in place of one.
    """

    def by_halves(low: jax.Array, high: jax.Array) -> jax.Array:
        def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            low, high = ends
            # The mean of two integers, rounded down, without overflow.
            middle = (low & high) + ((low ^ high) >> low.dtype.type(1))
            fits = holds(middle)
            return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

        return jax.lax.fori_loop(0, 8 * low.dtype.itemsize, halve, (low, high))[0]

    def by_bits(low: jax.Array, high: jax.Array) -> jax.Array:
        return low + _last_where(
            lambda steps: holds(low + steps), high - low, low.dtype.itemsize * 8
        )

    return _platforms.choose(low, high, cpu=by_halves, default=by_bits)


def _last_where(
    holds: Callable[[jax.Array], jax.Array], count: jax.Array, num_bits: int
) -> jax.Array:
    """`last_where` of the integers from 0 to `count`, which have at most that many bits."""
    dtype = count.dtype
    found = jnp.zeros_like(count)
    for shift in reversed(range(0, num_bits, _BITS_IN_A_PASS)):
        num_tried = (1 << min(_BITS_IN_A_PASS, num_bits - shift)) - 1
        steps = (jnp.arange(1, num_tried + 1).astype(dtype) << dtype.type(shift)).reshape(
            -1, *[1] * count.ndim
        )
        tried = found[None] | steps
        fits = (tried < count[None]) & jax.vmap(holds)(tried)
        num_fitting = fits.sum(axis=0, dtype=dtype)
        found |= num_fitting << dtype.type(shift)
    return found


def kth_of_rows(scores: jax.Array, k: int) -> jax.Array:
    """The index of the k-th largest score along the last axis, `[..., 1]`, for any k.

    Equal scores rank in the order of their indices, and -0 is less than 0.

    It is for accelerators: see `last_where`. Cost: one pass for 4 bits of a float, and one for 4
    bits of an index.
    """
    ordinals = _ordinals.to_ordinals(scores)
    length = scores.shape[-1]

    def num_where(mask: jax.Array) -> jax.Array:
        return mask.sum(axis=-1, keepdims=True, dtype=jnp.int32)

    lowest = jnp.zeros_like(ordinals[..., :1])
    kth = _last_where(
        lambda ordinal: num_where(ordinals >= ordinal) >= k, ~lowest, 8 * lowest.dtype.itemsize
    )
    rank = k - num_where(ordinals > kth)
    indices = jax.lax.broadcasted_iota(jnp.uint32, scores.shape, scores.ndim - 1)
    is_equal = ordinals == kth

    def are_fewer_before(index: jax.Array) -> jax.Array:
        return num_where(is_equal & (indices < index)) < rank

    end = jnp.full_like(rank, length).astype(jnp.uint32)
    return _last_where(are_fewer_before, end, length.bit_length()).astype(jnp.int32)
