"""The k largest entries of each row, as one reduction of ordered lists."""

import jax
import jax.numpy as jnp

from topk_jax import _ordinals, _sharding

# For longer lists the reduction takes too long to compile.
LONGEST = 16
_Pair = tuple[jax.Array, jax.Array]


def select_in_one_pass(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The result of `jax.lax.top_k` for k <= `LONGEST`: values and indices, `[..., k]` both.

    Identity: the k largest of two rows are among the k largest of each, so a list of k entries can
    be the state of a reduction. Hazard: a selection of XLA sorts whole rows on a GPU if they are
    short, on a TPU if they have batch axes; and it stores the scores first. Choice: a reduction
    whose operator merges two lists. It is fused with the code of the scores, which are never
    stored. Cost: some k log(k) comparisons for each score.
    """
    ordinals = _ordinals.to_ordinals(scores)
    indices = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
    # No score has the ordinal 0: it is the first of the bits that mean NaN.
    nothing = ordinals.dtype.type(0), jnp.iinfo(jnp.int32).max
    padding = [
        jnp.full(scores.shape, value, values.dtype)
        for value, values in zip(nothing, (ordinals, indices), strict=True)
    ]
    operands = _sharding.unify(ordinals, *[padding[0]] * (k - 1), indices, *[padding[1]] * (k - 1))
    start = [jnp.asarray(nothing[0], ordinals.dtype)] * k + [jnp.asarray(nothing[1], jnp.int32)] * k

    def merge(one: tuple[jax.Array, ...], other: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        merged = _merge(*(list(zip(part[:k], part[k:], strict=True)) for part in (one, other)))
        return (*(ordinal for ordinal, _ in merged), *(index for _, index in merged))

    found = jax.lax.reduce(operands, tuple(start), merge, (scores.ndim - 1,))
    largest = jnp.stack(found[:k], axis=-1)
    return _ordinals.to_floats(largest, scores.dtype), jnp.stack(found[k:], axis=-1)


def _merge(one: list[_Pair], other: list[_Pair]) -> list[_Pair]:
    """The largest half of two descending lists, descending.

    Identity: the larger ones of opposite entries are the largest half, first descending, then
    ascending. Batcher's bitonic merge orders such a list, of any length.
    """
    half = [_order(*pair)[0] for pair in zip(one, reversed(other), strict=True)]
    return _ascend(half)[::-1]


def _ascend(pairs: list[_Pair]) -> list[_Pair]:
    if len(pairs) == 1:
        return pairs
    stride = 1 << ((len(pairs) - 1).bit_length() - 1)
    for place in range(len(pairs) - stride):
        larger, smaller = _order(pairs[place], pairs[place + stride])
        pairs[place], pairs[place + stride] = smaller, larger
    return _ascend(pairs[:stride]) + _ascend(pairs[stride:])


def _order(one: _Pair, other: _Pair) -> tuple[_Pair, _Pair]:
    """The larger pair, then the smaller one; among equal ordinals the lower index is larger."""
    is_first = (one[0] > other[0]) | ((one[0] == other[0]) & (one[1] < other[1]))
    larger, smaller = (
        tuple(jnp.where(is_first, *parts) for parts in zip(*pair, strict=True))
        for pair in ((one, other), (other, one))
    )
    return larger, smaller
