"""Searches: for the last integer that fits, by their ordinals for floats, for the k-th in rows."""

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from topk_jax import _classes, _compilation

# The number of bits that an accelerator finds in one pass: 15 integers are tried at once.
_BITS_IN_A_PASS = 4
# Rows are searched as tables of at most this many rows. XLA vectorizes the loops over the columns,
# and reduces up to `_WIDEST` of them at once.
_HEIGHT = 64
_NARROWEST = 8
_WIDEST = 32


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
        def fits(found: jax.Array, step: jax.Array) -> jax.Array:
            return (found - low + step < high - low) & holds(found + step)

        dtype, found = low.dtype, low
        for shift in reversed(range(0, 8 * dtype.itemsize, _BITS_IN_A_PASS)):
            steps = jnp.arange(1, 1 << _BITS_IN_A_PASS).astype(dtype) << dtype.type(shift)
            num_fitting = jax.vmap(fits, (None, 0))(found, steps).sum(axis=0, dtype=dtype)
            found += num_fitting << dtype.type(shift)
        return found

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


def largest_threshold(
    values: jax.Array,
    allows: Callable[[jax.Array], jax.Array],
    class_axis_name: Hashable | None = None,
    *,
    axis: int | None = None,
) -> jax.Array:
    """The largest of the values, or infinity, such that `allows(values >= threshold)`.

    It is one of all values [N], or with an axis one of each row, whose length is then 1. If
    `allows` holds for a value, it must hold for all smaller ones; if for none, the smallest value
    is found. The threshold is found bit by bit among the ordinals, in one pass for each.

    `class_axis_name` is the mapped axis that the values are split along; `allows` then has to
    return the same on all devices.
    """
    ordinals = to_ordinals(values)
    # Only the shape of the maximum is used, so XLA does not compute it. Under shard_map the initial
    # value of the loop must vary over the devices as the values do.
    is_kept = axis is not None
    nothing = jnp.zeros_like(values.max(axis, keepdims=is_kept), dtype=ordinals.dtype)
    largest = last_by_halves(lambda tried: allows(ordinals >= tried), nothing, ~nothing)
    reached = jnp.where(ordinals >= largest, values, jnp.inf)
    if is_kept:
        return reached.min(axis, keepdims=True)
    return _classes.min_values(reached, class_axis_name)


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
    low = to_ordinals(jnp.where(reached >= k, smallest, -jnp.inf))
    highest = to_ordinals(_over_row(_LARGEST, _kept(_is_number, -jnp.inf), columns))
    one = low.dtype.type(1)

    def is_open(low: jax.Array, high: jax.Array, reached: jax.Array) -> jax.Array:
        # The scores below `high` and not below `low` are more than one, and the k-th among them.
        return (reached > k) & (high > low) & (high - low > one)

    def bisect(state: Any) -> Any:
        low, high, reached, by_value = state
        ends = [to_floats(end, scores.dtype) for end in (low, high)]
        center = to_ordinals(0.5 * ends[0] + 0.5 * ends[1])
        by_value_here = by_value & (center > low) & (center < high)
        middle = jnp.where(by_value_here, center, low + ((high - low) >> one))
        threshold = to_floats(middle, scores.dtype)
        count = _over_row(_SUM, _counted(jnp.greater_equal), columns, threshold)
        goes_up = is_open(low, high, reached) & (count >= k)
        goes_down = is_open(low, high, reached) & (count < k)
        low, reached = jnp.where(goes_up, middle, low), jnp.where(goes_up, count, reached)
        return low, jnp.where(goes_down, middle, high), reached, ~by_value

    start = (low, highest + one, reached, jnp.asarray(True))
    low, *_ = jax.lax.while_loop(lambda state: is_open(*state[:3]).any(), bisect, start)
    threshold = to_floats(low, scores.dtype)
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
