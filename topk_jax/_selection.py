"""Selection: thresholds bit by bit, the k-th largest in rows, ordered lists; accurate sums."""

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from topk_jax import _classes, _compilation, _search, _sharding

# Sums are taken over blocks of this many values, then over blocks of these sums, and so on.
_BLOCK = 32
# Rows are searched as tables of at most this many rows. XLA vectorizes the loops over the columns,
# and reduces up to `_WIDEST` of them at once.
_HEIGHT = 64
_NARROWEST = 8
_WIDEST = 32
# For longer selections, a sort needs fewer passes over its array.
LONGEST_LIST = 64
# A list of 16 takes many seconds to compile, so longer selections have shorter lists. Passes of 3
# take 0.86 to 0.99 of the time of passes of 4 for k = 21 on an H100.
LONGEST_IN_ONE_PASS = 16
_SHORT = 3
_Pair = tuple[jax.Array, jax.Array]


def largest_threshold(
    values: jax.Array,
    allows: Callable[[jax.Array], jax.Array],
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """The largest of the values [N], or infinity, such that `allows(values >= threshold)`.

    `allows` must hold for the smallest value. If it holds for a value, it must hold for all smaller
    ones. The threshold is found bit by bit among the ordinals, in one pass for each.

    `class_axis_name` is the mapped axis that the values are split along; `allows` then has to
    return the same on all devices.
    """
    ordinals = _search.to_ordinals(values)
    # Only the shape of the maximum is used, so XLA does not compute it. Under shard_map the initial
    # value of the loop must vary over the devices as the values do.
    nothing = jnp.zeros_like(values.max(), dtype=ordinals.dtype)
    largest = _search.last_by_halves(lambda tried: allows(ordinals >= tried), nothing, ~nothing)
    return _classes.min_values(jnp.where(ordinals >= largest, values, jnp.inf), class_axis_name)


def kth_by_descent(scores: jax.Array, k: int) -> jax.Array:
    """The index of the k-th largest score along the last axis, `[..., 1]`, in k + 2 passes.

    Equal scores rank in the order of their indices. The largest score below the largest is the
    second largest, and so on. Equal scores are found only once, so that the scores above the last
    one are counted; if there are k or more, a loop goes up again.
    """
    columns = _columns(scores)

    def descend(_: Any, found: jax.Array) -> jax.Array:
        return _over_row(_LARGEST, _kept(jnp.less, -jnp.inf), columns, found)

    def ascend(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        found, above = state
        higher = _over_row(_SMALLEST, _kept(jnp.greater, jnp.inf), columns, found)
        found = jnp.where(above >= k, higher, found)
        return found, _over_row(_SUM, _counted(jnp.greater), columns, found)

    found = jax.lax.fori_loop(
        1, k, descend, _over_row(_LARGEST, _kept(_is_number, -jnp.inf), columns)
    )
    start = (found, _over_row(_SUM, _counted(jnp.greater), columns, found))
    found, above = jax.lax.while_loop(lambda state: (state[1] >= k).any(), ascend, start)
    return _nth_index(columns, found, n=k - above, length=scores.shape[-1])


def kth_by_bisection(scores: jax.Array, k: int) -> jax.Array:
    """The index of the k-th largest score along the last axis, `[..., 1]`, for any k.

    Equal scores rank in the order of their indices. A bisection of the values and of their ordinals
    in turns, because the scores may spread over all exponents, ends when exactly k scores reach a
    threshold, or one float is left: after about 20 passes for normally distributed scores.
    """
    columns = _columns(scores)
    smallest = _over_row(_SMALLEST, _kept(lambda entries: entries > -jnp.inf, jnp.inf), columns)
    reached = _over_row(_SUM, _counted(jnp.greater_equal), columns, smallest)
    low = _search.to_ordinals(jnp.where(reached >= k, smallest, -jnp.inf))
    highest = _search.to_ordinals(_over_row(_LARGEST, _kept(_is_number, -jnp.inf), columns))
    one = low.dtype.type(1)

    def is_open(low: jax.Array, high: jax.Array, reached: jax.Array) -> jax.Array:
        # The scores below `high` and not below `low` are more than one, and the k-th among them.
        return (reached > k) & (high > low) & (high - low > one)

    def bisect(state: Any) -> Any:
        low, high, reached, by_value = state
        ends = [_search.to_floats(end, scores.dtype) for end in (low, high)]
        center = _search.to_ordinals(0.5 * ends[0] + 0.5 * ends[1])
        by_value_here = by_value & (center > low) & (center < high)
        middle = jnp.where(by_value_here, center, low + ((high - low) >> one))
        threshold = _search.to_floats(middle, scores.dtype)
        count = _over_row(_SUM, _counted(jnp.greater_equal), columns, threshold)
        goes_up = is_open(low, high, reached) & (count >= k)
        goes_down = is_open(low, high, reached) & (count < k)
        low, reached = jnp.where(goes_up, middle, low), jnp.where(goes_up, count, reached)
        return low, jnp.where(goes_down, middle, high), reached, ~by_value

    start = (low, highest + one, reached, jnp.asarray(True))
    low, *_ = jax.lax.while_loop(lambda state: is_open(*state[:3]).any(), bisect, start)
    threshold = _search.to_floats(low, scores.dtype)
    found = _over_row(_SMALLEST, _kept(jnp.greater_equal, jnp.inf), columns, threshold)
    above = _over_row(_SUM, _counted(jnp.greater), columns, found)
    return _nth_index(columns, found, n=k - above, length=scores.shape[-1])


def _nth_index(columns: jax.Array, number: jax.Array, *, n: jax.Array, length: int) -> jax.Array:
    """The index of the n-th entry that equals the number, `[..., 1]`; else the last index.

    n is almost always 1; otherwise a bisection, because a running count costs more than the rest.
    """

    def index_if_equal(entries: jax.Array, indices: jax.Array, number: jax.Array) -> jax.Array:
        return jnp.where(entries == number, indices, length - 1)

    def is_equal_before(
        entries: jax.Array, indices: jax.Array, number: jax.Array, end: jax.Array
    ) -> jax.Array:
        return ((entries == number) & (indices < end)).astype(jnp.int32)

    first = _over_row(_SMALLEST, index_if_equal, columns, number)

    def try_bit(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        found, bit = state
        candidate = found | bit
        too_few = _over_row(_SUM, is_equal_before, columns, number, candidate) < n
        return jnp.where(too_few, candidate, found), bit >> 1

    highest_bit = 1 << (length.bit_length() - 1)
    start = (jnp.zeros_like(first), jnp.where((n == 1).all(), 0, highest_bit))
    found, _ = jax.lax.while_loop(lambda state: state[1] > 0, try_bit, start)
    return jnp.where(n == 1, first, jnp.minimum(found, length - 1))


# Terms of reductions over a row, functions of its entries, their indices and numbers of the row.


def _kept(holds: Callable[..., jax.Array], fill: float) -> Callable[..., jax.Array]:
    """The entries that a condition on them and the numbers holds for, and `fill` for the others."""
    return lambda entries, _, *rows: jnp.where(holds(entries, *rows), entries, fill)


def _counted(holds: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    return lambda entries, _, *rows: holds(entries, *rows).astype(jnp.int32)


def _is_number(entries: jax.Array) -> jax.Array:
    return ~jnp.isnan(entries)


class _Reduction(NamedTuple):
    """A reduction: of two arrays to one, and over axes of an array."""

    of_two: Callable[[jax.Array, jax.Array], jax.Array]
    over: Callable[..., jax.Array]


# A comparison and a selection are one instruction, unlike a maximum that keeps NaN.
_LARGEST = _Reduction(lambda one, other: jnp.where(one > other, one, other), jnp.max)
_SMALLEST = _Reduction(lambda one, other: jnp.where(one < other, one, other), jnp.min)
_SUM = _Reduction(jnp.add, jnp.sum)


def table_shape(length: int) -> tuple[int, int]:
    """The rows and columns of the table in which a row of this length is searched."""
    unit = _NARROWEST if length <= _HEIGHT * _WIDEST else _WIDEST
    width = unit * math.ceil(length / (unit * _HEIGHT))
    return math.ceil(length / width), width


def _columns(scores: jax.Array) -> jax.Array:
    """The rows [..., L] as tables [..., S, W], with `-inf` after the last entry."""
    shape = table_shape(scores.shape[-1])
    missing = math.prod(shape) - scores.shape[-1]
    if missing:
        padding = [(0, 0)] * (scores.ndim - 1) + [(0, missing)]
        scores = jax.lax.optimization_barrier(jnp.pad(scores, padding, constant_values=-jnp.inf))
    return scores.reshape(*scores.shape[:-1], *shape)


def _over_row(
    reduction: _Reduction, term: Callable[..., jax.Array], columns: jax.Array, *rows: jax.Array
) -> jax.Array:
    """The reduction of `term(entries, indices, *rows)` over tables [..., S, W]: `[..., 1]`.

    `rows` are numbers of each row, `[..., 1]`. XLA on the CPU splits a reduction over more than 32
    entries, and writes its terms in between. So the S rows of the table are reduced entry by entry,
    which is vectorized, and then the W columns.
    """
    width = columns.shape[-1]
    # Without a barrier XLA would compute the terms of a loop before the loop, and store them.
    columns, *rows = jax.lax.optimization_barrier((columns, *rows))
    shape = (*columns.shape[:-2], width)
    places = jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)
    terms = [
        term(columns[..., row, :], places + row * width, *rows) for row in range(columns.shape[-2])
    ]
    while True:
        reduced = jax.lax.optimization_barrier(_in_pairs(reduction.of_two, terms))
        if reduced.shape[-1] <= _WIDEST:
            return reduction.over(reduced, axis=-1, keepdims=True)
        starts = range(0, reduced.shape[-1], _WIDEST)
        terms = [reduced[..., start : start + _WIDEST] for start in starts]


def _in_pairs(of_two: Callable[[Any, Any], Any], terms: list[jax.Array]) -> jax.Array:
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [of_two(*pair) for pair in pairs] + terms[len(terms) // 2 * 2 :]
    return terms[0]


def sum_in_blocks(values: jax.Array) -> jax.Array:
    """The sum of [N] values in float32, whose error does not grow with N.

    A running sum of 1e8 small numbers would lose several digits. Barriers keep XLA from merging the
    sums over blocks.
    """
    return _sum_in_blocks(_sharding.gather(values))


def _sum_in_blocks(values: jax.Array) -> jax.Array:
    while values.size > 1:
        padded = jnp.pad(values, (0, -values.size % _BLOCK))
        values = jax.lax.optimization_barrier(padded.reshape(-1, _BLOCK).sum(axis=-1))
    return values[0]


def sum_of_rows_in_blocks(rows: jax.Array) -> jax.Array:
    """`sum_in_blocks` of all the values [n, L].

    Split rows are added up by themselves, because a block may have values of two devices.
    """
    if not _sharding.may_be_split(rows):
        return sum_in_blocks(rows.reshape(-1))
    of_rows = jax.vmap(_sum_in_blocks)
    return sum_in_blocks(_sharding.map_examples(of_rows, 1, rows))


def store(function: Callable[..., Any], *operands: Any) -> Any:
    """The result of `function(*operands)`, computed once and stored.

    XLA on the CPU removes barriers before it fuses, and computes even a random generator again for
    each use. So there it is a branch of a condition that XLA does not know.
    """

    def in_a_branch(*operands: Any) -> Any:
        def never(*operands: Any) -> Any:
            return jax.tree.map(jnp.zeros_like, function(*operands))

        always = jax.lax.optimization_barrier(jnp.asarray(True))
        return jax.lax.cond(always, function, never, *operands)

    def behind_a_barrier(*operands: Any) -> Any:
        return jax.lax.optimization_barrier(function(*operands))

    return _compilation.choose(*operands, cpu=in_a_branch, default=behind_a_barrier)


def compute_once(scores: jax.Array) -> jax.Array:
    """The scores, behind a barrier.

    XLA may compute a score again for each use, with different rounding, so that a comparison of a
    score with itself fails.
    """
    return jax.lax.optimization_barrier(scores)


def select_in_lists(
    scores: jax.Array, k: int, *, entries: int | None = None
) -> tuple[jax.Array, jax.Array]:
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
    if entries is None:
        entries = k if k <= LONGEST_IN_ONE_PASS else _SHORT
    num_passes = math.ceil(k / entries)
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
