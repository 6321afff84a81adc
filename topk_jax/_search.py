"""Searches among integers, and so among floats by their ordinals, for the last one that fits."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import _ordinals, _platforms

# The number of bits that an accelerator finds in one pass: 15 integers are tried at once.
_BITS_IN_A_PASS = 4
# The number of flags that are counted together, and of such groups.
_GROUP = 128


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


def are_first(
    parts: Sequence[tuple[jax.Array, ...]], count: jax.Array, num_bits: Sequence[int]
) -> list[jax.Array]:
    """Whether each entry is among the first `count` of all, in the order of its keys.

    Entries with the same keys as the last of them are, too. It is for accelerators: see
    `last_where`.

    Args:
        parts: for each of several arrays of entries its keys, unsigned integers of the shape of the
            array. The first key orders entries, the next one orders those with equal first keys.
        count: how many, `[]`, an int32.
        num_bits: how many bits each key needs.
    """
    chosen = [jnp.zeros_like(keys[0], jnp.bool_) for keys in parts]
    are_open = [~is_chosen for is_chosen in chosen]
    for place, bits in enumerate(num_bits):
        of_parts = [keys[place] for keys in parts]
        last = _last_key(of_parts, are_open, count, bits)
        before = _are_before(of_parts, are_open, last)
        count = count - _num_true(before)
        chosen = [old | new for old, new in zip(chosen, before, strict=True)]
        are_open = [
            is_open & (key == last) for key, is_open in zip(of_parts, are_open, strict=True)
        ]
    return [
        is_chosen | (is_open & (count > 0))
        for is_chosen, is_open in zip(chosen, are_open, strict=True)
    ]


def _last_key(
    keys: Sequence[jax.Array], are_open: Sequence[jax.Array], count: jax.Array, num_bits: int
) -> jax.Array:
    """The key of the last of the first `count` open entries, or one above the keys of all."""
    unsigned = keys[0].dtype
    end = jnp.asarray(np.iinfo(unsigned).max >> (8 * unsigned.itemsize - num_bits), unsigned)
    return _last_where(
        lambda bound: _num_true(_are_before(keys, are_open, bound)) < count, end, num_bits
    )


def _are_before(
    keys: Sequence[jax.Array], are_open: Sequence[jax.Array], bound: jax.Array
) -> list[jax.Array]:
    return [is_open & (key < bound) for key, is_open in zip(keys, are_open, strict=True)]


def _num_true(parts: Sequence[jax.Array]) -> jax.Array:
    counts = [part.sum(dtype=jnp.int32) for part in parts]
    return functools.reduce(jnp.add, counts)


def nth_true(flags: jax.Array, ranks: jax.Array) -> jax.Array:
    """The indices [S] of the true ones of some ranks [S], from 0 on, among flags [N].

    A rank that no true flag has gets any index. This is for accelerators, on which a scatter is
    slow.

    Identity: the counts of groups of flags, and of groups of groups, are a tree. Cost: one pass
    over the flags, and a group of each level for each rank.
    """
    levels = [flags]
    while len(levels[-1]) > _GROUP:
        levels.append(_in_groups(levels[-1]).sum(axis=1, dtype=jnp.int32))
    indices = jnp.zeros_like(ranks)
    for height, level in reversed(list(enumerate(levels))):
        counts = _in_groups(level)[indices].astype(jnp.int32)
        ends = _running_sums(counts, _GROUP**height)
        within = jnp.minimum((ends <= ranks[:, None]).sum(axis=1, dtype=jnp.int32), _GROUP - 1)
        is_before = jnp.arange(_GROUP, dtype=jnp.int32)[None] < within[:, None]
        ranks = ranks - jnp.where(is_before, counts, 0).sum(axis=1, dtype=jnp.int32)
        indices = indices * _GROUP + within
    return jnp.minimum(indices, len(flags) - 1)


def _running_sums(counts: jax.Array, largest: int) -> jax.Array:
    """The running sums of the rows of counts [S, G] from 0 to `largest`.

    Hazard: the compiler of TPUs takes 20 seconds for a running sum over 128 columns. Choice: for
    each digit of the counts, a product with a triangle of ones. A digit of 8 bits is exact in
    bfloat16, and a sum of `_GROUP` digits is in float32.
    """
    triangle = jnp.tri(_GROUP, dtype=jnp.bfloat16).T
    sums = jnp.zeros_like(counts)
    for shift in range(0, largest.bit_length(), 8):
        digits = ((counts >> shift) & 255).astype(jnp.bfloat16)
        of_digits = jnp.matmul(digits, triangle, preferred_element_type=jnp.float32)
        sums = sums + (of_digits.astype(jnp.int32) << shift)
    return sums


def _in_groups(counts: jax.Array) -> jax.Array:
    """The flags or counts [N] with zeros after them, as groups [G, S]."""
    return jnp.pad(counts, (0, -len(counts) % _GROUP)).reshape(-1, _GROUP)
