"""The k-th largest score and the sum of the k largest: exact, with one-hot gradients."""

from __future__ import annotations

import math
from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _compilation, _search, _sharding
from topk_jax._classes import take_along
from topk_jax._compilation import compiled

__all__ = ["top_k_sum", "top_k_value"]

# Microseconds on two CPU cores of descent, of XLA's selection, of that in chunks and of bisection:
# for 320 rows of 1,081 scores 246, 731, 684, 423 (k = 6) and 1,313, 6,175, 8,442, 542 (k = 101),
# for 64 rows of 10,000 scores 1,491, 844, 393, 2,398 and 13,305, 2,890, 2,920, 2,786.
_LONGEST_SHORT_ROW = 2048
_HIGHEST_DESCENT = 16
_HIGHEST_SELECTED_RANK = 8
_SELECTED_LENGTH_PER_RANK = 64
_CHUNK = 8
_CHUNKED_LENGTH_PER_RANK = 128
# For longer selections on an accelerator, a sort needs fewer passes over its array.
_LONGEST_LIST = 64
# A list of 16 takes many seconds to compile, so longer selections have shorter lists. Passes of 3
# take 0.86 to 0.99 of the time of passes of 4 for k = 21 on an H100.
LONGEST_IN_ONE_PASS = 16
_SHORT = 3
_Pair = tuple[jax.Array, jax.Array]


def top_k_value(scores: ArrayLike, k: int, *, axis: int = -1) -> jax.Array:
    r"""The k-th largest score.

    .. math:: \tau_k(s) = s_{[k]}, \qquad s_{[1]} \ge s_{[2]} \ge \dots \ge s_{[L]}

    The gradient is one at the coordinate of this value and zero elsewhere. Among equal scores the
    one with the lower index ranks first.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: static rank, from 1 (the largest) to L.

    Returns:
        The scores' shape without `axis`.

    Example:
        >>> scores = jnp.array([2.4, 2.6, 2.3, 0.5])
        >>> print(top_k_value(scores, 2))
        2.4
        >>> print(jax.grad(top_k_value)(scores, 2))
        [1. 0. 0. 0.]

    Source: Garcin et al. (2022), "Stochastic smoothing of the top-K calibrated hinge loss for deep
    imbalanced classification", the operator top-K; thesis, equation 4.1.
    """
    last = move_classes_last(scores, axis)
    return compute_top_k_value(last, _checks.rank(k, last.shape[-1]))


def top_k_sum(scores: ArrayLike, k: int, *, axis: int = -1) -> jax.Array:
    r"""The sum of the k largest scores.

    .. math:: \mathrm{top}\Sigma_k(s) = s_{[1]} + \dots + s_{[k]}

    The gradient is one at the k coordinates of the largest scores and zero elsewhere. Equal scores
    rank as in `top_k_value`.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: static number of scores to add up, from 1 to L.

    Returns:
        The scores' shape without `axis`.

    Example:
        >>> scores = jnp.array([2.5, 2.75, 2.25, 0.5])
        >>> print(top_k_sum(scores, 2))
        5.25
        >>> print(jax.grad(top_k_sum)(scores, 2))
        [1. 1. 0. 0.]

    Source: Garcin (2023), thesis, equation 4.2.
    """
    last = move_classes_last(scores, axis)
    return _largest_or_nan(last, _checks.rank(k, last.shape[-1])).sum(axis=-1)


def compute_top_k_value(scores: jax.Array, k: int) -> jax.Array:
    """`top_k_value` of checked scores [..., L]."""
    return _largest_or_nan(scores, k)[..., -1]


def _largest_or_nan(scores: jax.Array, k: int) -> jax.Array:
    # Before the selection, so that all of the gradient is NaN and not only one coordinate.
    return select_largest(_classes.nan_where_invalid_scores(scores, scores), k)[0]


@compiled
def select_largest(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k largest entries along the last axis and their indices, `[..., k]` both.

    Equal entries rank in the order of their indices.
    """
    if not _sharding.is_split_later(scores):
        return _largest(scores, k)
    # The compiler gathers all classes for a selection that it has to split over devices.
    hidden = jax.lax.stop_gradient(scores)

    def select(scores: jax.Array) -> jax.Array:
        return _largest(scores, k)[1]

    def select_of_split(names: Hashable, scores: jax.Array) -> jax.Array:
        size = scores.shape[-1]
        return merge_devices(*_largest(scores, min(k, size)), k, size, names)[1]

    indices = _sharding.select_by_example(
        select, scores.ndim - 1, hidden, of_split=select_of_split, of_classes=(0,)
    )
    return take_along(scores, indices), indices


def _largest(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """`select_largest` on one device; the platform is known when the program is compiled."""
    hidden = jax.lax.stop_gradient(scores)

    def in_any_order(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        if k <= _LONGEST_LIST:
            return select_in_lists(scores, k)
        return _selected(scores, k)

    def on_cpu(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _in_chunks(scores, k) if _has_chunks(scores.shape[-1], k) else _selected(scores, k)

    values, indices = _compilation.choose(hidden, cpu=on_cpu, default=in_any_order)
    return _classes.with_slope_of(values, take_along(scores, indices)), indices


def _in_chunks(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The selection among the chunks of the classes with the k largest maxima, on the CPU.

    A maximum is vectorized there. The chunks are sorted to keep the order of the indices.
    """
    chunks = pad_for_selection(scores, k)
    chunks = chunks.reshape(*scores.shape[:-1], chunks.shape[-1] // _CHUNK, _CHUNK)
    _, of_maxima = _selected(jax.lax.optimization_barrier(chunks.max(axis=-1)), k)
    chosen = jax.lax.optimization_barrier(jnp.sort(of_maxima, axis=-1))
    candidates = take_along(chunks, chosen[..., None], -2)
    candidates = candidates.reshape(*scores.shape[:-1], k * _CHUNK)
    values, positions = _selected(candidates, k)
    return values, _CHUNK * take_along(chosen, positions // _CHUNK) + positions % _CHUNK


def select_largest_of_split(
    scores: jax.Array, k: int, class_axis_name: Hashable | None
) -> tuple[jax.Array, jax.Array]:
    """`select_largest` of classes that may be split, without a gradient if they are.

    Communication: each device sends its k largest entries and their indices.
    """
    if class_axis_name is None:
        return select_largest(scores, k)
    size = scores.shape[-1]
    found = select_largest(jax.lax.stop_gradient(scores), min(k, size))
    return merge_devices(*found, k, size, class_axis_name)


def merge_devices(
    values: jax.Array, places: jax.Array, k: int, size: int, class_axis_name: Hashable
) -> tuple[jax.Array, jax.Array]:
    """The k largest of the entries [..., S] of all devices, which have `size` classes each.

    The entries of each device are in descending order. Equal ones are in the order of their classes
    then, and stay so, because the devices are.
    """
    first = (size * jax.lax.axis_index(class_axis_name)).astype(places.dtype)
    everyone, classes = _classes.gather((values, first + places), class_axis_name)
    kept, order = _largest(everyone, k)
    return kept, take_along(classes, order)


@compiled
def select_kth(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k-th largest entry along the last axis and its index, `[..., 1]` both.

    Equal entries rank in the order of their indices; whether -0 and 0 are equal depends on the
    method. The CPU vectorizes passes over all entries: one for each of the k largest, or bisection.
    """
    hidden = jax.lax.stop_gradient(scores)
    length = scores.shape[-1]

    def by_rank(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, indices = select_largest(scores, k)
        return values[..., -1:], indices[..., -1:]

    def on_cpu(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        is_short = length <= _LONGEST_SHORT_ROW
        is_quick = k <= _HIGHEST_SELECTED_RANK or length >= _SELECTED_LENGTH_PER_RANK * k
        if not is_short and is_quick:
            return by_rank(scores)
        by_descent = is_short and k <= _HIGHEST_DESCENT
        find = _search.kth_by_descent if by_descent else _search.kth_by_bisection
        index = find(scores, k)
        return take_along(scores, index), index

    # With an empty batch, `jnp.where` returns a constant, whose type a loop under `shard_map`
    # refuses.
    cpu = by_rank if 0 in scores.shape else on_cpu
    value, index = _compilation.choose(hidden, cpu=cpu, default=by_rank)
    return _classes.with_slope_of(value, take_along(scores, index)), index


def pad_for_selection(scores: jax.Array, k: int, *, only_last: bool = False) -> jax.Array:
    """Pads the last axis with `-inf`, as `select_largest` or `select_kth` would on the CPU.

    If XLA fuses the padding with code that draws noise, that code is not vectorized there and runs
    once for each use. So the scores are padded before the noise is added.
    """
    length = scores.shape[-1]
    if only_last and length <= _LONGEST_SHORT_ROW:
        missing = math.prod(_search.table_shape(length)) - length
    else:
        missing = -length % _CHUNK if _has_chunks(length, k) else 0
    if missing == 0:
        return scores
    return jnp.pad(scores, [(0, 0)] * (scores.ndim - 1) + [(0, missing)], constant_values=-jnp.inf)


def _has_chunks(length: int, k: int) -> bool:
    return length >= _CHUNKED_LENGTH_PER_RANK * k


def _selected(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The result of `jax.lax.top_k`, without a full sort.

    XLA on the CPU merges a slice of the values into the selection, which then becomes a full sort,
    some 60 times slower at 1,081 classes. The values and the indices have a barrier each: a single
    one can become a direct user of the selection, and the compiler then aborts the process (seen
    under `pmap` with jaxlib 0.10.2).
    """

    def select(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, indices = jax.lax.top_k(scores, k)
        return jax.lax.optimization_barrier(values), jax.lax.optimization_barrier(indices)

    if not _sharding.may_be_split(scores):
        return select(scores)
    # The compiler gathers the complete batch for a selection that it has to split over devices.
    hidden = jax.lax.stop_gradient(scores)
    _, indices = _sharding.select_by_example(select, scores.ndim - 1, hidden)
    return take_along(scores, indices), indices


def move_classes_last(scores: ArrayLike, axis: int) -> jax.Array:
    """The checked scores with the axis of the classes moved to the end."""
    return jnp.moveaxis(_checks.floating_array(scores, "scores", axis), axis, -1)


def select_in_lists(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The result of `jax.lax.top_k` on an accelerator, in passes of some entries, `[..., k]` both.

    XLA's selection stores the scores, and sorts them for most ranks. The k largest of two rows are
    among the k largest of each, so an ordered list of k entries can be the state of a reduction,
    which is fused with the code of the scores. On an H100, for 320 rows of 1,081 scores, it takes
    15 microseconds in place of 29 for k = 6, 17 in place of 65 for k = 11, 32 in place of 39 for
    k = 21.
    """
    ordinals = _search.to_ordinals(scores)
    # Added to zeros, which are on the devices that the scores are on.
    indices = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
    indices = jnp.zeros_like(ordinals, jnp.int32) + indices
    # No score has the ordinal 0, which is the ordinal of a NaN.
    nothing = ordinals.dtype.type(0), jnp.int32(jnp.iinfo(jnp.int32).max)
    num_passes = 1 if k <= LONGEST_IN_ONE_PASS else math.ceil(k / _SHORT)
    length = math.ceil(k / num_passes)

    def select_after(last: _Pair | None) -> _Pair:
        """The `length` largest entries after the last one, `[..., length]` both."""
        rest = ordinals
        if last is not None:
            is_after = _is_larger((last[0][..., None], last[1][..., None]), (ordinals, indices))
            rest = jnp.where(is_after, ordinals, nothing[0])
        found = _reduce(rest, indices, nothing, length)
        return jnp.stack(found[:length], axis=-1), jnp.stack(found[length:], axis=-1)

    first = select_after(None)
    if num_passes == 1:
        # One array of floats for each entry, so that a single entry does not need the list of all.
        floats = [_search.to_floats(first[0][..., place], scores.dtype) for place in range(k)]
        return jnp.stack(floats, axis=-1), first[1]
    lists = [first]
    while len(lists) < num_passes:
        lists.append(select_after((lists[-1][0][..., -1], lists[-1][1][..., -1])))
    found = tuple(jnp.concatenate(parts, axis=-1) for parts in zip(*lists, strict=True))
    return _search.to_floats(found[0][..., :k], scores.dtype), found[1][..., :k]


def _reduce(
    ordinals: jax.Array, indices: jax.Array, nothing: _Pair, length: int
) -> tuple[jax.Array, ...]:
    """The `length` largest ordinals [...] in descending order, then their indices."""
    empty_lists = [
        jnp.full_like(part, empty) for part, empty in zip((ordinals, indices), nothing, strict=True)
    ]
    operands = _sharding.unify(
        ordinals, *empty_lists[:1] * (length - 1), indices, *empty_lists[1:] * (length - 1)
    )

    def merge(one: tuple[jax.Array, ...], other: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        lists = (list(zip(part[:length], part[length:], strict=True)) for part in (one, other))
        merged = _merge(*lists)
        return (*(ordinal for ordinal, _ in merged), *(index for _, index in merged))

    start = (nothing[0],) * length + (nothing[1],) * length
    return tuple(jax.lax.reduce(operands, start, merge, (ordinals.ndim - 1,)))


def _merge(one: list[_Pair], other: list[_Pair]) -> list[_Pair]:
    """The larger half of two descending lists, descending.

    The larger ones of opposite entries are the larger half, first descending, then ascending.
    Batcher's bitonic merge orders such a list, of any length.
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
    """The larger pair, then the smaller one."""
    is_first = _is_larger(one, other)
    larger, smaller = (
        (jnp.where(is_first, a[0], b[0]), jnp.where(is_first, a[1], b[1]))
        for a, b in ((one, other), (other, one))
    )
    return larger, smaller


def _is_larger(one: _Pair, other: _Pair) -> jax.Array:
    """Whether a pair comes before another one; among equal ordinals the lower index does."""
    return (one[0] > other[0]) | ((one[0] == other[0]) & (one[1] < other[1]))
