"""Searches among integers for the last one that fits, and so among floats by their ordinals."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from topk_jax import _compilation

# The number of bits that an accelerator finds in one pass: 15 integers are tried at once.
_BITS_IN_A_PASS = 4


def last_where(
    holds: Callable[[jax.Array], jax.Array], low: jax.Array, high: jax.Array
) -> jax.Array:
    """The last of the integers from `low` to `high`, without `high`, for which a condition holds.

    The condition holds for `low`. If it holds for an integer, it holds for all smaller ones. Both
    ends have the shape and the unsigned dtype of the result, and `holds` maps such an array to
    booleans of its shape.

    The CPU halves the interval in a loop. On a GPU a loop takes 10 times as long as the pass in it,
    so there several bits are found at once.
    """

    def by_halves(low: jax.Array, high: jax.Array) -> jax.Array:
        return last_by_halves(holds, low, high)

    def by_bits(low: jax.Array, high: jax.Array) -> jax.Array:
        return low + _last_where(
            lambda steps: holds(low + steps), high - low, low.dtype.itemsize * 8
        )

    return _compilation.choose(low, high, cpu=by_halves, default=by_bits)


def last_by_halves(
    holds: Callable[[jax.Array], jax.Array], low: jax.Array, high: jax.Array
) -> jax.Array:
    """`last_where` in a loop on all platforms."""

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        # The mean of two integers, rounded down, without overflow.
        middle = (low & high) + ((low ^ high) >> low.dtype.type(1))
        fits = holds(middle)
        return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

    return jax.lax.fori_loop(0, 8 * low.dtype.itemsize, halve, (low, high))[0]


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

    Equal scores rank in the order of their indices, and -0 is less than 0. It is for accelerators,
    which sort to select many.
    """
    ordinals = to_ordinals(scores)
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


def to_ordinals(floats: jax.Array) -> jax.Array:
    """Unsigned integers with the same number of bits, in the order of the floats; -0 is before 0.

    All bits of negative floats are flipped, and only the sign bit of the others.
    """
    unsigned = jnp.dtype(f"uint{8 * floats.dtype.itemsize}")
    bits = jax.lax.bitcast_convert_type(floats, unsigned)
    sign = highest_bit(unsigned)
    return jnp.where(bits >= sign, ~bits, bits | sign)


def to_floats(ordinals: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """The floats of the given dtype with these ordinals."""
    sign = highest_bit(ordinals.dtype)
    bits = jnp.where(ordinals >= sign, ordinals ^ sign, ~ordinals)
    return jax.lax.bitcast_convert_type(bits, dtype)


def sort(floats: jax.Array) -> jax.Array:
    """The floats in ascending order along the last axis; NaN comes last.

    XLA on the CPU sorts floats in several times the time that it takes for integers.
    """
    numbers = jnp.where(jnp.isnan(floats), jnp.nan, floats)
    ascending = jax.lax.sort(to_ordinals(numbers), is_stable=False)
    return to_floats(ascending, floats.dtype)


def highest_bit(unsigned: jnp.dtype) -> Any:
    """The unsigned integer with only its highest bit set."""
    return unsigned.type(1 << (8 * unsigned.itemsize - 1))
