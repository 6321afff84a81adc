"""Scores that grow from the likeliest class to the unlikeliest: rank, APS, RAPS and SAPS.

A score is a function of the place of a class among the classes of its example: of the number of
likelier classes, or of the sum of their probabilities.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from topk_jax import _numerics, _ordinals, _selection
from topk_jax.sets import _rows

# The kinds whose scores need the order of the classes.
ORDERED = ("rank", "aps", "raps", "saps")
# Those whose scores add up probabilities.
_CUMULATIVE = ("aps", "raps")


class _Above(NamedTuple):
    """The likelier classes: their number, and the sum of their probabilities, in units."""

    num: jax.Array
    units: jax.Array


class _Bracket(NamedTuple):
    """Two ordinals: a set has the classes from the upper one up, and none below the lower one."""

    lower: jax.Array
    upper: jax.Array
    # The amount of the classes from each ordinal up: their number, or their units for "aps".
    from_lower: jax.Array
    from_upper: jax.Array


class _Places(NamedTuple):
    """The position of a class among the classes of its example."""

    probability: jax.Array
    above: _Above
    # The probability of the likeliest class of the example, and its numbers of `_scores._Terms`.
    largest: jax.Array
    uniform: jax.Array
    shift: jax.Array


def search_set(
    limit: jax.Array,
    penalties: jax.Array,
    kind: str,
    probabilities: jax.Array,
    uniform: jax.Array,
    shift: jax.Array,
) -> jax.Array:
    """The set of one example, [L].

    Below a given probability, the next class has at least the score of a class of probability 0 at
    this place. If this bound exceeds the limit, no class below the given probability is in the set.
    Otherwise all classes from it up are in the set. The score of the last class between decides on
    it.
    """
    values, largest = _numerics.flush(probabilities), probabilities.max()
    padded = _rows.pad(values, -jnp.inf)
    ordinals, units = _ordinals.to_ordinals(padded), _units(padded, kind)

    def score_below(above: _Above, probability: jax.Array) -> jax.Array:
        places = _Places(probability, above, largest, uniform, shift)
        return _score(places, penalties, kind)

    def amount(above: _Above) -> jax.Array:
        # The score "aps" does not need the number, so this saves a pass.
        return above.units if kind == "aps" else above.num

    def several(bracket: _Bracket) -> jax.Array:
        inside = bracket.from_lower - bracket.from_upper
        # Each class has at least the units of the lower bound.
        units = _units(_ordinals.to_floats(bracket.lower, values.dtype), kind)
        of_one = amount(_Above(jnp.ones_like(inside), units))
        return (inside - of_one >= of_one) & (bracket.upper - bracket.lower > 1)

    def halve(bracket: _Bracket) -> _Bracket:
        middle = bracket.lower + (bracket.upper - bracket.lower) // 2
        above = _sums(ordinals >= middle, units)
        excluded = score_below(above, jnp.zeros_like(largest)) > limit
        return _Bracket(
            jnp.where(excluded, middle, bracket.lower),
            jnp.where(excluded, bracket.upper, middle),
            jnp.where(excluded, amount(above), bracket.from_lower),
            jnp.where(excluded, bracket.from_upper, amount(above)),
        )

    lower = _ordinals.to_ordinals(values.min())
    of_all = amount(_sums(ordinals >= lower, units))
    start = _Bracket(lower, _ordinals.to_ordinals(values.max()) + 1, of_all, jnp.zeros_like(of_all))
    upper = jax.lax.while_loop(several, halve, start).upper
    kept = ordinals[: values.size] >= upper
    following = jnp.where(kept, -jnp.inf, values).max()
    belongs = score_below(_sums(ordinals >= upper, units), following) <= limit
    kept |= (values == following) & belongs
    # A traced penalty out of its range is NaN in the shift too.
    known = ~jnp.isnan(limit) & ~jnp.isnan(shift)
    return kept & are_plausible(probabilities, kind) & known


def score_classes(
    penalties: jax.Array,
    kind: str,
    probabilities: jax.Array,
    uniform: jax.Array,
    shift: jax.Array,
) -> jax.Array:
    """The scores of all classes of one example, [L].

    Hazard: XLA sorts pairs of probabilities and classes on the CPU in four times the time that it
    takes for integers only. Choice: sort the ordinals, and find the place of each class among them
    by bisection. Cost: one sort, and one gather for each bit of a class.
    """
    ordinals = _ordinals.to_ordinals(_numerics.flush(probabilities))
    ascending = jax.lax.sort(ordinals, is_stable=False)
    num_not_above = jnp.searchsorted(ascending, ordinals, side="right")
    sorted_units = _units(_ordinals.to_floats(ascending, probabilities.dtype), kind)
    units = jnp.cumsum(sorted_units)
    places = _Places(
        probabilities,
        _Above(probabilities.size - num_not_above, units[-1] - units[num_not_above - 1]),
        probabilities.max(),
        uniform,
        shift,
    )
    scores = _score(places, penalties, kind)
    return jnp.where(are_plausible(probabilities, kind), scores, jnp.nan)


def score_labels(
    penalties: jax.Array,
    kind: str,
    rows: jax.Array,
    of_labels: jax.Array,
    uniform: jax.Array,
    shift: jax.Array,
) -> jax.Array:
    """The scores of the labels [n], from the probabilities of all classes and of the labels."""
    mask = _numerics.flush(rows) > _numerics.flush(of_labels)[:, None]
    units = _units(rows, kind)
    # XLA's own sum is faster for the numbers only, and slower together with a sum of units.
    above = _sums(mask, units) if kind in _CUMULATIVE else _Above(mask.sum(-1), units[:, 0])
    places = _Places(of_labels, above, rows.max(axis=-1), uniform, shift)
    return _score(places, penalties, kind)


def _score(places: _Places, penalties: jax.Array, kind: str) -> jax.Array:
    """The score of classes at given places. No sum has a term that is a rounded product.

    Hazard: XLA may fuse a product and a sum into one operation with one rounding. Then the score of
    a label could differ from the score of its class by a rounding, and a label could miss the set
    of the quantile that it has determined. Choice: penalties are products that were rounded before,
    and probabilities are added up in integers. Cost: one gather.
    """
    if kind == "rank":
        return (places.above.num + 1).astype(places.probability.dtype)
    if kind == "saps":
        later = (places.largest + places.shift) + penalties[places.above.num]
        return jnp.where(places.above.num == 0, places.uniform * places.largest, later)
    own = _units((1.0 - places.uniform) * places.probability, kind)
    # Rounded probabilities may add up to more than 1.
    unit = _unit(places.probability.dtype)
    mass = jnp.minimum(places.above.units + own, int(unit)).astype(places.probability.dtype) / unit
    return mass if kind == "aps" else mass + penalties[places.above.num]


def _units(probabilities: jax.Array, kind: str) -> jax.Array:
    """The probabilities as integers, for scores that add them up; zeros for others.

    Identity: integers have the same sum in any order. Hazard: two sums of the same floats in
    another order differ in their last bits. Choice: multiples of 2^-30 (2^-62 in float64), which is
    finer than the steps of the sum. Cost: one pass. An implausible sum could overflow; its scores
    are NaN.
    """
    dtype = probabilities.dtype
    integer = jnp.dtype(f"int{8 * dtype.itemsize}")
    if kind not in _CUMULATIVE:
        return jnp.zeros(probabilities.shape, integer)
    return jnp.round(probabilities * _unit(dtype)).astype(integer)


def _unit(dtype: jnp.dtype) -> float:
    """How many units add up to 1; a power of two, so that products with it are exact."""
    return 2.0 ** (8 * dtype.itemsize - 2)


def are_plausible(probabilities: jax.Array, kind: str) -> jax.Array:
    """Whether the scores of an example [..., L] are not NaN, `[...]`."""
    if kind not in _CUMULATIVE:
        return ~jnp.isnan(probabilities).any(axis=-1)
    # The sum is NaN where a probability is NaN; the smallest one need not be on the CPU.
    return (probabilities.min(axis=-1) >= 0.0) & (probabilities.sum(axis=-1) <= 1.5)


def _sums(mask: jax.Array, units: jax.Array) -> _Above:
    """The classes of masks, [..., L]."""
    num, sum_of_units = (
        _rows.sum_of(mask.astype(units.dtype)),
        _rows.sum_of(jnp.where(mask, units, 0)),
    )
    return _Above(_selection.compute_once(num), _selection.compute_once(sum_of_units))
