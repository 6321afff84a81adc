"""Conformal scores: how badly a class fits the probabilities of an example."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _compilation, _example, _search, _sharding
from topk_jax._classes import map_rows, take_along
from topk_jax.sets._rules import sort_descending

__all__ = ["conformal_label_scores", "conformal_scores", "conformal_set", "score_set"]

_NAMES = ("key", "rank_penalty", "unpenalized_ranks", "class_counts", "class_weights")
# For each kind, the parameters that it needs and those that it may have.
_PARAMETERS: dict[str, tuple[set[str], set[str]]] = {
    "lac": (set(), set()),
    "margin": (set(), set()),
    "rank": (set(), set()),
    "aps": (set(), {"key"}),
    "raps": ({"rank_penalty", "unpenalized_ranks"}, {"key"}),
    "saps": ({"rank_penalty"}, {"key"}),
    "pas": ({"class_counts"}, {"class_weights"}),
}
# Those that need the order of the classes, and those that add up probabilities.
_ORDERED = ("rank", "aps", "raps", "saps")
_CUMULATIVE = ("aps", "raps")


class _Terms(NamedTuple):
    """The parameters of a score, as arrays.

    They are U of each example, [..., 1], the penalty of that part of a rank, the penalty of a class
    with that many likelier ones, [L + 1], and the factor of the probability of each class, [L].
    """

    uniform: jax.Array
    shift: jax.Array
    penalties: jax.Array
    factors: jax.Array


def conformal_scores(
    probabilities: ArrayLike,
    *,
    kind: str,
    key: jax.Array | None = None,
    rank_penalty: ArrayLike | None = None,
    unpenalized_ranks: int | None = None,
    class_counts: ArrayLike | None = None,
    class_weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The conformal scores of all classes; a smaller score fits better.

    With :math:`r_l = 1 + |\{j : p_j > p_l\}|` the rank of class l, U one number in [0, 1) for each
    example, and :math:`\pi` the class frequencies in training:

    .. math::
        \text{lac:} \quad & 1 - p_l \\
        \text{margin:} \quad & \max_{j \ne l} p_j - p_l \\
        \text{rank:} \quad & r_l \\
        \text{aps:} \quad & a_l = \min \Big( \sum_{j : p_j > p_l} p_j + (1 - U) \, p_l, 1 \Big) \\
        \text{raps:} \quad & a_l + \lambda \, (r_l - k)_+ \\
        \text{saps:} \quad & U p_{[1]} \text{ if } r_l = 1,
        \text{ else } p_{[1]} + (r_l - 2 + U) \, \lambda \\
        \text{pas:} \quad & -\omega_l \, p_l / \pi_l

    Without a key U is 1 in "aps" and "raps", and 0 in "saps", and a quantile is valid only for
    scores without a key. Use another key for each batch.

    Args:
        probabilities, key: see `topk_jax.sets`; a key for "aps", "raps" and "saps".
        kind: "lac", "margin", "rank", "aps", "raps", "saps" or "pas".
        rank_penalty: for "raps" and "saps": scalar penalty of a rank (lambda above), at least 0.
        unpenalized_ranks: for "raps": the static number of ranks without a penalty (k above).
        class_counts: for "pas": the number of training examples of each class, `[L]`, positive.
        class_weights: for "pas": the weight of each class (omega above), `[L]` or a scalar, at
            least 0; 1 by default.

    Returns:
        Scores, `[..., L]`; NaN for all classes where a probability is NaN, where a traced one is
        not from 0 to 1, and for "aps" and "raps" where their sum is greater than 1.5. "aps" and
        "raps" have no slope in the probabilities.

    Example:
        >>> print(conformal_scores(jnp.array([0.5, 0.125, 0.25, 0.125]), kind="aps"))
        [0.   0.75 0.5  0.75]

    Source: "lac": Sadinle, Lei and Wasserman (2019); "margin": Löfström et al. (2015); "aps":
    Romano, Sesia and Candès (2020); "raps": Angelopoulos et al. (2021); "saps": Huang et al.
    (2024); "pas": Ding, Fermanian and Salmon (2025).
    """
    values = _checks.probabilities(probabilities, "probabilities")
    terms = _terms(values, kind, key, rank_penalty, unpenalized_ranks, class_counts, class_weights)
    return _scores(kind, values, terms)


def conformal_label_scores(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    kind: str,
    key: jax.Array | None = None,
    rank_penalty: ArrayLike | None = None,
    unpenalized_ranks: int | None = None,
    class_counts: ArrayLike | None = None,
    class_weights: ArrayLike | None = None,
) -> jax.Array:
    """The entries of `conformal_scores` at the labels, to the last bit, without a sort.

    Args:
        labels: see `topk_jax.sets`.
        probabilities, kind, key, rank_penalty, unpenalized_ranks, class_counts, class_weights: as
            for `conformal_scores`.

    Returns:
        One score per example, `[...]`, NaN for a label outside [0, L). Flatten several axes before
        you calibrate.

    Example:
        >>> probabilities = jnp.array([[0.75, 0.125, 0.125], [0.25, 0.5, 0.25]])
        >>> print(conformal_label_scores(probabilities, jnp.array([0, 2]), kind="aps"))
        [0.  0.5]

    Source: as for `conformal_scores`.
    """
    _, labels = _example.logits_and_labels(probabilities, labels, name="probabilities")
    values = _checks.probabilities(probabilities, "probabilities")
    terms = _terms(values, kind, key, rank_penalty, unpenalized_ranks, class_counts, class_weights)
    return _label_scores(kind, values, labels, terms)


def conformal_set(
    probabilities: ArrayLike,
    quantiles: ArrayLike,
    *,
    kind: str,
    key: jax.Array | None = None,
    rank_penalty: ArrayLike | None = None,
    unpenalized_ranks: int | None = None,
    class_counts: ArrayLike | None = None,
    class_weights: ArrayLike | None = None,
) -> jax.Array:
    r"""The classes whose conformal score is at most a quantile.

    .. math:: \Gamma(x) = \{ l : s_l(x) \le q_l \}

    Args:
        quantiles: one real number for all classes, or one for each, `[L]`.
        probabilities, kind, key, rank_penalty, unpenalized_ranks, class_counts, class_weights: as
            for `conformal_scores`.

    Returns:
        Booleans, `[..., L]`.

    Example:
        >>> print(conformal_set(jnp.array([0.125, 0.75, 0.125]), 0.5, kind="aps"))
        [False  True False]

    Source: as for `conformal_scores`.
    """
    values = _checks.probabilities(probabilities, "probabilities")
    terms = _terms(values, kind, key, rank_penalty, unpenalized_ranks, class_counts, class_weights)
    limits = _checks.real_array(quantiles, "quantiles", values.dtype, (), values.shape[-1:])
    if limits.ndim == 0 and kind in _ORDERED:
        return _ordered_set(kind, values, limits, terms)
    scores = _scores(kind, values, terms)
    return scores <= jnp.broadcast_to(limits, scores.shape)


def score_set(scores: ArrayLike, quantiles: ArrayLike) -> jax.Array:
    r"""The classes whose score is at most a quantile.

    .. math:: \Gamma = \{ l : s_l \le q_l \}

    Args:
        scores: floating-point scores that are smaller for classes that fit better, `[..., L]`.
        quantiles: one real number for all classes, or one for each, `[L]`.

    Returns:
        Booleans, `[..., L]`.

    Example:
        >>> print(score_set(jnp.array([0.5, 0.25, 0.75]), jnp.array([0.25, 0.25, jnp.inf])))
        [False  True  True]

    Source: Vovk et al. (2005), "Algorithmic learning in a random world", section 4.5.
    """
    scores = _checks.floating_array(scores, "scores")
    limits = _checks.real_array(quantiles, "quantiles", scores.dtype, (), scores.shape[-1:])
    is_below = scores <= jnp.broadcast_to(limits, scores.shape)
    return is_below & ~jnp.isnan(scores).any(axis=-1, keepdims=True)


def _terms(values: jax.Array, kind: str, *parameters: Any) -> _Terms:
    """The parameters as arrays, or raises if one is wrong or the kind does not have it."""
    kind = _checks.choice(kind, "kind", tuple(_PARAMETERS))
    named = dict(zip(_NAMES, parameters, strict=True))
    needed, possible = _PARAMETERS[kind]
    given = _checks.parameters_of_kind(kind, named, needed=needed, possible=possible)
    num_classes, dtype = values.shape[-1], values.dtype
    uniform = jnp.full(values.shape[:-1], 0.0 if kind == "saps" else 1.0, dtype)
    if "key" in given:
        key = _checks.random_keys(given["key"], "key", ())
        uniform = jax.random.uniform(key, values.shape[:-1], dtype)
    penalty = _checks.scalar(given.get("rank_penalty", 0.0), "rank_penalty", dtype, at_least=0)
    unpenalized = given.get("unpenalized_ranks", 2)
    unpenalized = _checks.static_integer(unpenalized, "unpenalized_ranks", minimum=0)
    penalized = np.maximum(np.arange(1, num_classes + 2) - unpenalized, 0)
    factors = jnp.ones(num_classes, dtype)
    if kind == "pas":
        counts = given["class_counts"]
        counts = _checks.numbers(counts, "class_counts", dtype, ((num_classes,),), above=0)
        weights = given.get("class_weights", 1.0)
        weights = _checks.numbers(weights, "class_weights", dtype, ((), (num_classes,)), at_least=0)
        factors = weights * (counts.sum() / counts)
    shift = (penalty * uniform)[..., None]
    return _Terms(uniform[..., None], shift, penalty * penalized.astype(dtype), factors)


@partial(jax.jit, static_argnums=0)
def _scores(kind: str, values: jax.Array, terms: _Terms) -> jax.Array:
    """The scores of all classes, [..., L]."""
    values, terms = jax.lax.optimization_barrier((values, terms))
    if kind in _ORDERED:
        flushed = _classes.flush(values)
        descending, in_order = _sorted_scores(kind, flushed, terms)
        num_above = _sharding.map_examples(_count_above, values.ndim - 1, descending, flushed)
        scores = take_along(in_order, num_above)
    elif kind == "lac":
        scores = 1.0 - values
    elif kind == "pas":
        scores = -(jnp.broadcast_to(terms.factors, values.shape) * values)
    else:
        is_largest = _classes.is_label(values, values.argmax(axis=-1))
        others = jnp.where(is_largest, -jnp.inf, values).max(axis=-1, keepdims=True)
        scores = jnp.where(is_largest, others, values.max(axis=-1, keepdims=True)) - values
    return jnp.where(_are_plausible(values, kind), scores, jnp.nan)


@partial(jax.jit, static_argnums=0)
def _label_scores(kind: str, values: jax.Array, labels: jax.Array, terms: _Terms) -> jax.Array:
    """The scores of the labels, [...]."""
    values, terms = jax.lax.optimization_barrier((values, terms))
    if kind == "margin":
        # Of the scores of all classes, it would be twice as slow.
        others = jnp.where(_classes.is_label(values, labels), -jnp.inf, values)
        scores = others.max(axis=-1) - _classes.score_of_label(values, labels)
    elif kind not in _ORDERED:
        scores = _classes.score_of_label(_scores(kind, values, terms), labels)
    else:
        own = _classes.score_of_label(values, labels)[..., None]
        likelier = _classes.flush(values) > _classes.flush(own)
        scores = _score_below(kind, values, likelier, own, terms)[..., 0]
    in_range = (labels >= 0) & (labels < values.shape[-1])
    return jnp.where(_are_plausible(values, kind)[..., 0] & in_range, scores, jnp.nan)


@partial(jax.jit, static_argnums=0)
def _ordered_set(kind: str, values: jax.Array, limit: jax.Array, terms: _Terms) -> jax.Array:
    """The classes whose score is at most a limit, [..., L]: those from some probability up."""
    values, terms = jax.lax.optimization_barrier((values, terms))
    flushed = _classes.flush(values)

    def by_search(flushed: jax.Array) -> jax.Array:
        nothing = jnp.zeros_like(flushed[..., :1])

        def is_full(kept: jax.Array) -> jax.Array:
            # No class below has a score less than that of a probability of 0.
            return _score_below(kind, flushed, kept, nothing, terms) > limit

        last = _search.largest_threshold(flushed, is_full, axis=-1)
        belongs = _score_below(kind, flushed, flushed > last, last, terms) <= limit
        return (flushed > last) | ((flushed == last) & belongs)

    def by_sort(flushed: jax.Array) -> jax.Array:
        descending, in_order = _sorted_scores(kind, flushed, terms)
        smallest = jnp.where(in_order <= limit, descending, jnp.inf).min(axis=-1, keepdims=True)
        return flushed >= smallest

    # On the CPU the search takes a quarter of the time of the sort. ONNX does not have the bits.
    found = _compilation.choose(flushed, cpu=by_search, default=by_sort)
    # A traced penalty out of its range is NaN in the shift too.
    return found & _are_plausible(values, kind) & ~jnp.isnan(terms.shift) & ~jnp.isnan(limit)


def _score_below(
    kind: str, values: jax.Array, likelier: jax.Array, probability: jax.Array, terms: _Terms
) -> jax.Array:
    """The score of a class of some probability [..., 1] below others, a mask of [..., L]."""
    units = _units(values, kind)
    num_above, above = (
        jnp.where(likelier, each, 0).sum(axis=-1, keepdims=True, dtype=units.dtype)
        for each in (1, units)
    )
    largest = values.max(axis=-1, keepdims=True)
    return _ordered_scores(kind, probability, num_above, above, largest, terms)


def _sorted_scores(kind: str, flushed: jax.Array, terms: _Terms) -> tuple[jax.Array, jax.Array]:
    """The probabilities, without denormal numbers, in descending order, and their scores."""
    # The first of equal probabilities has the score of all of them.
    descending = sort_descending(flushed)
    places = jnp.broadcast_to(jnp.arange(flushed.shape[-1]), flushed.shape)
    units = _units(descending, kind)
    above = jnp.cumsum(units, axis=-1) - units
    scores = _ordered_scores(kind, descending, places, above, descending[..., :1], terms)
    return descending, scores


def _count_above(descending: jax.Array, values: jax.Array) -> jax.Array:
    """How many of the sorted rows [..., L] exceed each of the values [..., L]."""
    count = partial(jnp.searchsorted, side="left")
    for _ in range(values.ndim - 1):
        count = partial(map_rows, count)
    found: jax.Array = count(-descending, -values)
    return found


def _ordered_scores(
    kind: str,
    probabilities: jax.Array,
    num_above: jax.Array,
    above: jax.Array,
    largest: jax.Array,
    terms: _Terms,
) -> jax.Array:
    """The scores of classes [..., m] with so many likelier ones, of so many units."""
    # No sum has a term that is a product: XLA may fuse both with one rounding, and then a label
    # could miss the set of the quantile that it has determined.
    penalty = _classes.value_of_class(terms.penalties, num_above)
    if kind == "rank":
        return (num_above + 1).astype(probabilities.dtype)
    if kind == "saps":
        later = (largest + terms.shift) + penalty
        return jnp.where(num_above == 0, terms.uniform * largest, later)
    own = _units((1.0 - terms.uniform) * probabilities, kind)
    # Rounded probabilities may add up to more than 1.
    unit = _unit(probabilities.dtype)
    mass = jnp.minimum(above + own, int(unit)).astype(probabilities.dtype) / unit
    return mass if kind == "aps" else mass + penalty


def _units(probabilities: jax.Array, kind: str) -> jax.Array:
    """The probabilities as integers, which have the same sum in any order; or zeros."""
    # They are multiples of 2^-30 (2^-62 in float64), finer than the steps of the sum. An
    # implausible sum could overflow; its scores are NaN.
    dtype = probabilities.dtype
    integer = jnp.dtype(f"int{8 * dtype.itemsize}")
    if kind not in _CUMULATIVE:
        return jnp.zeros(probabilities.shape, integer)
    return jnp.round(probabilities * _unit(dtype)).astype(integer)


def _unit(dtype: jnp.dtype) -> float:
    """How many units add up to 1; a power of two, so that products with it are exact."""
    return 2.0 ** (8 * dtype.itemsize - 2)


def _are_plausible(probabilities: jax.Array, kind: str) -> jax.Array:
    """Whether the scores of examples [..., L] are not NaN, `[..., 1]`."""
    if kind not in _CUMULATIVE:
        return ~jnp.isnan(probabilities).any(axis=-1, keepdims=True)
    # The sum is NaN where a probability is NaN; the smallest one need not be on the CPU.
    total = probabilities.sum(axis=-1, keepdims=True)
    return (probabilities.min(axis=-1, keepdims=True) >= 0.0) & (total <= 1.5)
