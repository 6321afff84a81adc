"""Quantiles of conformal scores: of all examples, of each class, and between the two."""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _sharding

__all__ = [
    "class_conditional_quantiles",
    "conformal_quantile",
    "conformal_threshold",
    "interpolated_quantiles",
    "label_shift_quantiles",
    "rank_calibrated_quantiles",
]


class Calibration(NamedTuple):
    """The scores of the labels, [n], the labels, [n], and whether all of them are valid."""

    scores: jax.Array
    labels: jax.Array
    valid: jax.Array


class Groups(NamedTuple):
    """Scores by group: in ascending order within each, [n], and each group's start and size."""

    ascending: jax.Array
    starts: jax.Array
    sizes: jax.Array


@_class_axis.allow_split(of="batch")
def conformal_threshold(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The threshold of split conformal prediction: its sets miss the label at a given rate.

    .. math::
        \lambda = 1 - \hat q = \text{the } r\text{-th largest } p_{y_i}(x_i), \qquad
        r = \lceil (n + 1)(1 - \varepsilon) \rceil,

    because :math:`\hat q` is a quantile of :math:`1 - p_y`. If r exceeds n it is minus infinity,
    which keeps every class. For an example exchangeable with these,
    :math:`1 - \varepsilon \le P(p_y \ge \lambda)`. If no two examples tie, this probability is at
    most :math:`1 - \varepsilon + 1 / (n + 1)`.

    If the examples are split over devices, each device gets the probabilities of all labels,
    because a quantile needs them in one order.

    Args:
        probabilities: floating-point, from 0 to 1, `[..., L]`, with at least one example. For other
            scores, give `conformal_quantile` their negatives.
        labels: integer classes, `[...]`.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        A scalar for `threshold_set`, in the probabilities' dtype (float32 or float64); NaN if a
        probability is NaN, a traced one is not from 0 to 1, or a label is outside [0, L).

    Raises:
        TypeError: `probabilities` is not floating-point, `labels` is not integer, or `error` is not
            a static real number.
        ValueError: the shapes do not match, there is no example, a concrete probability is not from
            0 to 1, or `error` is outside [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])
        >>> print(sets.conformal_threshold(probabilities, jnp.array([0, 1, 1]), error=0.5))
        0.5

    See Also:
        `threshold_set`, `conformal_quantile`.

    Source: Garcin (2023), thesis, section 2.2.2, equation 2.5.
    """
    values, labels = _checks.logits_and_labels(probabilities, labels, name="probabilities")
    values = _checks.only_probabilities(probabilities, values, "probabilities")
    _checks.some_examples(values, "probabilities")
    rank = _num_covered(labels.size, _checks.static_error(error))
    return _conformal_threshold(values, labels, rank, class_axis_name)


@_class_axis.refuse_split
def conformal_quantile(scores: ArrayLike, labels: ArrayLike, *, error: float) -> jax.Array:
    r"""The quantile of split conformal prediction: its sets miss the label at a given rate.

    .. math::
        \hat q = \text{the } r\text{-th smallest score of a label}, \qquad
        r = \lceil (n + 1)(1 - \varepsilon) \rceil

    If r exceeds n it is infinity, which keeps every class. For an example exchangeable with these,
    :math:`1 - \varepsilon \le P(s_y \le \hat q)`. If no two scores tie, this probability is
    :math:`r / (n + 1)`.

    If the examples are split over devices, each device gets the scores of all labels, and the
    labels, because a quantile needs them in one order.

    Args:
        scores: floating-point scores that are smaller for classes that fit better, of all classes,
            `[..., L]`, or only of the labels, `[...]`, as from `conformal_label_scores`; at least
            one example.
        labels: integer classes, `[...]`.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.

    Returns:
        A scalar for `conformal_set` or `score_set`, in the scores' dtype (float32 or float64); NaN
        if a score is NaN or a label is outside [0, L).

    Raises:
        TypeError: `scores` is not floating-point, `labels` is not integer, or `error` is not a
            static real number.
        ValueError: the shapes do not match, there is no example, or `error` is outside [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])
        >>> labels = jnp.array([0, 1, 1])
        >>> scores = sets.conformal_label_scores(probabilities, labels, kind="lac")
        >>> print(sets.conformal_quantile(scores, labels, error=0.5))
        0.5

    See Also:
        `class_conditional_quantiles`, `clustered_quantiles`, `conformal_set`.

    Source: Vovk et al. (2005), "Algorithmic learning in a random world"; Garcin (2023), thesis,
    section 2.2.2.
    """
    calibration = calibration_of(scores, labels, None)
    rank = _num_covered(calibration.labels.size, _checks.static_error(error))
    return compute_conformal_quantile(calibration, rank)


@_class_axis.refuse_split
def class_conditional_quantiles(
    scores: ArrayLike, labels: ArrayLike, *, error: float, num_classes: int | None = None
) -> jax.Array:
    r"""A conformal quantile for each class: the sets miss each class at a given rate.

    .. math::
        \hat q_c = \text{the } r_c\text{-th smallest score of the } n_c
        \text{ examples of class } c,
        \qquad r_c = \lceil (n_c + 1)(1 - \varepsilon) \rceil

    It is infinity, which keeps the class in every set, if r_c exceeds n_c: for a class with fewer
    than :math:`1 / \varepsilon - 1` examples. For a new example of class c that is exchangeable
    with those here, :math:`1 - \varepsilon \le P(s_c \le \hat q_c)`.

    If the examples are split over devices, each device gets the scores of all labels, and the
    labels, because a quantile needs them in one order.

    Args:
        scores: floating-point scores of all classes, `[..., L]`, or only of the labels, `[...]`; at
            least one example.
        labels: integer classes, `[...]`.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        num_classes: the static number L of classes; needed with scores of the labels only.

    Returns:
        One quantile per class, `[L]`, for `conformal_set` or `score_set`, in the scores' dtype
        (float32 or float64); all are NaN if a score is NaN or a label is outside [0, L).

    Raises:
        TypeError: `scores` is not floating-point, `labels` or `num_classes` is not integer, or
            `error` is not a static real number.
        ValueError: the shapes do not match, there is no example, `num_classes` is missing or does
            not match the scores, or `error` is outside [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, labels = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([0, 0, 0, 1])
        >>> print(sets.class_conditional_quantiles(scores, labels, error=0.25, num_classes=2))
        [0.75  inf]

    See Also:
        `clustered_quantiles`, `interpolated_quantiles`, `conformal_quantile`.

    Source: Vovk et al. (2005), "Algorithmic learning in a random world", section 4.5, where this is
    a Mondrian predictor; Vovk (2012), "Conditional validity of inductive conformal predictors".
    """
    calibration, num_classes = calibration_by_class(scores, labels, num_classes)
    ranks = covered_of_each_size(calibration.labels.size, _checks.static_error(error))
    return _class_conditional_quantiles(calibration, ranks, num_classes)


@_class_axis.refuse_split
def interpolated_quantiles(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    weight: ArrayLike,
    largest_score: ArrayLike = 1.0,
    num_classes: int | None = None,
) -> jax.Array:
    r"""Quantiles between the quantiles of the classes and the quantile of all examples: Interp-Q.

    .. math:: q_c = t \, \min(\hat q_c, s_{\max}) + (1 - t) \, \hat q

    Here :math:`\hat q` is the `conformal_quantile` and :math:`\hat q_c` are the
    `class_conditional_quantiles`. Sets are small at t = 0, and cover each class at t = 1. In
    between, a label is missed with a probability of at most :math:`2 \varepsilon`, because
    :math:`q_c` is at least the smaller of the two.

    If the examples are split over devices, each device gets the scores of all labels, and the
    labels, because a quantile needs them in one order.

    Args:
        scores: floating-point scores of all classes, `[..., L]`, or only of the labels, `[...]`; at
            least one example.
        labels: integer classes, `[...]`.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        weight: a scalar in [0, 1], the weight of the class (t above). May be traced.
        largest_score: a finite scalar that no score exceeds; 1, the default, for "lac" and "aps".
            It replaces infinite quantiles of classes. May be traced.
        num_classes: the static number L of classes; needed with scores of the labels only.

    Returns:
        One quantile per class, `[L]`, for `conformal_set` or `score_set`, in the scores' dtype
        (float32 or float64); all are NaN if a score is NaN or a label is outside [0, L).

    Raises:
        TypeError: an argument has a wrong type, or `error` is not a static real number.
        ValueError: the shapes do not match, there is no example, `num_classes` is missing or does
            not match the scores, `error` is outside [0, 1), `weight` is outside [0, 1], or
            `largest_score` is not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, labels = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([0, 0, 0, 1])
        >>> print(sets.interpolated_quantiles(
        ...     scores, labels, error=0.25, weight=0.5, num_classes=2))
        [0.75  0.875]

    See Also:
        `class_conditional_quantiles`, `clustered_quantiles`.

    Source: Ding, Fermanian and Salmon (2025), "Conformal prediction for long-tailed
    classification", Interp-Q.
    """
    calibration, num_classes = calibration_by_class(scores, labels, num_classes)
    dtype = calibration.scores.dtype
    weight = _checks.scalar(weight, "weight", dtype, at_least=0, at_most=1)
    largest = _checks.scalar(largest_score, "largest_score", dtype)
    num_examples, rate = calibration.labels.size, _checks.static_error(error)
    of_all = compute_conformal_quantile(calibration, _num_covered(num_examples, rate))
    ranks = covered_of_each_size(num_examples, rate)
    of_classes = _class_conditional_quantiles(calibration, ranks, num_classes)
    of_classes = jnp.minimum(of_classes, largest)
    # 0 times an infinite quantile of all examples is NaN.
    between = weight * of_classes + (1.0 - weight) * of_all
    return jnp.where(weight == 1.0, of_classes, between)


@_class_axis.refuse_split
def label_shift_quantiles(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    weights: ArrayLike,
    num_classes: int | None = None,
) -> jax.Array:
    r"""Conformal quantiles for new examples whose classes have other frequencies.

    With :math:`w_c = q_c / p_c` the frequency of class c among new examples over that among these:

    .. math::
        \hat q_c = \min \Big\{ s : \sum_{i : s_i \le s} w_{y_i}
        \ge (1 - \varepsilon) \Big( \sum_i w_{y_i} + w_c \Big) \Big\},

    or infinity if there is none. If new examples have these class weights, and the examples of each
    class are distributed as here, a label is missed with a probability of at most
    :math:`\varepsilon`. A common factor of the weights does not change the result. With equal
    weights, every quantile is the `conformal_quantile`.

    If the examples are split over devices, each device gets the scores of all labels, and the
    labels, because a quantile needs them in one order.

    Args:
        scores: floating-point scores of all classes, `[..., L]`, or only of the labels, `[...]`; at
            least one example.
        labels: integer classes, `[...]`.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        weights: w above, finite, at least 0 and not all 0: one value per class, `[L]`, or a scalar.
            May be traced.
        num_classes: the static number L of classes; needed with scores of the labels only.

    Returns:
        One quantile per class, `[L]`, for `conformal_set` or `score_set`, in the scores' dtype
        (float32 or float64); all are NaN if a score is NaN, a label is outside [0, L), or weights
        are traced and not as above. Weights are added up in this dtype: a sum within 16 roundings
        of the required one suffices, and a sum that overflows makes all quantiles NaN.

    Raises:
        TypeError: an argument has a wrong type, or `error` is not a static real number.
        ValueError: the shapes do not match, there is no example, `num_classes` is missing or does
            not match the scores, `error` is outside [0, 1), or a weight is negative or infinite, or
            all are 0.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, labels = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([0, 0, 0, 1])
        >>> print(sets.label_shift_quantiles(
        ...     scores, labels, error=0.25, weights=jnp.array([1.0, 3.0]), num_classes=2))
        [0.75  inf]

    See Also:
        `conformal_quantile`, `class_conditional_quantiles`.

    Source: Podkopaev and Ramdas (2021), "Distribution-free uncertainty quantification for
    classification under label shift"; Tibshirani et al. (2019), "Conformal prediction under
    covariate shift", for the weighted quantile.
    """
    calibration, num_classes = calibration_by_class(scores, labels, num_classes)
    dtype = calibration.scores.dtype
    of_classes = _checks.relative_weights(weights, "weights", num_classes, dtype)
    rate = _checks.static_error(error)
    return _label_shift_quantiles(calibration, of_classes, float(1 - rate))


@_class_axis.refuse_split
def rank_calibrated_quantiles(
    scores: ArrayLike,
    ranks: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    num_classes: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    r"""Quantiles of the scores and of the ranks of each class: RC3P.

    The set keeps a class if its score is at most :math:`\hat q_c` and its rank is at most
    :math:`k_c`. With :math:`e_c^k` the part of the examples of class c whose label has a rank
    greater than k:

    .. math::
        k_c = \min \{ k : e_c^k < \varepsilon \}, \qquad
        \hat q_c = \text{the } \lceil (n_c + 1)(1 - \varepsilon + e_c^{k_c}) \rceil
        \text{-th smallest score}

    The sets are smaller than with `class_conditional_quantiles`. They would miss each class at a
    rate of at most :math:`\varepsilon` if :math:`e_c^k` were the rates of all examples. They are
    the rates of the given examples, so the rate of a small class can be greater: up to 2/12 at an
    error of 0.1 and 11 examples.

    If the examples are split over devices, each device gets the scores and ranks of all labels, and
    the labels, because a quantile needs them in one order.

    Args:
        scores: floating-point scores of all classes, `[..., L]`, or only of the labels, `[...]`; at
            least one example.
        ranks: their ranks, `conformal_scores` or `conformal_label_scores` of kind "rank", of the
            same shape.
        labels: integer classes, `[...]`.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        num_classes: the static number L of classes; needed with scores of the labels only.

    Returns:
        The quantiles of the scores and of the ranks, both `[L]`, for
        `score_set(scores, quantiles) & score_set(ranks, rank_quantiles)`, in the scores' dtype
        (float32 or float64). They are infinity where the examples are too few. All are NaN if a
        score or a rank is NaN or a label is outside [0, L).

    Raises:
        TypeError: an argument has a wrong type, or `error` is not a static real number.
        ValueError: the shapes do not match, there is no example, `num_classes` is missing or does
            not match the scores, or `error` is outside [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, ranks = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([1.0, 1.0, 2.0, 1.0])
        >>> labels = jnp.array([0, 0, 0, 1])
        >>> quantiles, rank_quantiles = sets.rank_calibrated_quantiles(
        ...     scores, ranks, labels, error=0.5, num_classes=2)
        >>> print(quantiles, rank_quantiles)
        [inf 0.5] [1. 1.]

    See Also:
        `class_conditional_quantiles`, `conformal_set`.

    Source: Shi et al. (2024), "Conformal prediction for class-wise coverage via augmented label
    rank calibration", option II.
    """
    calibration, num_classes = calibration_by_class(scores, labels, num_classes)
    ranks = _checks.floating_array(ranks, "ranks")
    if ranks.shape != np.shape(scores):
        raise ValueError(
            f"ranks must have shape {np.shape(scores)}, as scores has, got shape {ranks.shape}."
        )
    places = calibration_of(ranks, labels, num_classes, name="ranks")
    rate, num_examples = _checks.static_error(error), calibration.labels.size
    return _rank_calibrated_quantiles(
        calibration,
        places._replace(scores=places.scores.astype(calibration.scores.dtype)),
        covered_of_each_size(num_examples, rate),
        _allowed_beyond(num_examples, rate),
        _room_to_round(num_examples, rate),
        num_classes,
    )


def calibration_of(
    scores: ArrayLike, labels: ArrayLike, num_classes: int | None, *, name: str = "scores"
) -> Calibration:
    """The scores of the labels, from the scores of all classes or of the labels, or raises."""
    values = _checks.floating_array(scores, name)
    if _of_labels_alone(values, labels):
        labels = _checks.integer_array(labels, "labels", values.shape, of=(name, values.shape))
        of_labels, known = values, num_classes
    else:
        values, labels = _checks.logits_and_labels(scores, labels, name=name)
        of_labels, known = _numerics.score_of_label(values, labels), values.shape[-1]
    _checks.some_examples(values, name)
    largest = jnp.iinfo(labels.dtype).max if known is None else known - 1
    valid = ~jnp.isnan(values).any() & ((labels >= 0) & (labels <= largest)).all()
    # Quantiles need all of them in one order: a score and a label per example are sent to all
    # devices, and not the scores of all classes.
    of_labels, labels = _sharding.gather(of_labels), _sharding.gather(labels)
    return Calibration(of_labels.reshape(-1), labels.reshape(-1), valid)


def calibration_by_class(
    scores: ArrayLike, labels: ArrayLike, num_classes: int | None
) -> tuple[Calibration, int]:
    """The scores of the labels, and the number of classes, or raises.

    The number has to be given with scores of the labels only.
    """
    values = _checks.floating_array(scores, "scores")
    if num_classes is not None:
        num_classes = _checks.static_integer(num_classes, "num_classes", minimum=1)
    if _of_labels_alone(values, labels):
        if num_classes is None:
            raise ValueError(
                "num_classes must be an integer for the scores of the labels alone, got None."
            )
    elif num_classes not in (None, values.shape[-1]):
        raise ValueError(
            f"num_classes must be {values.shape[-1]} where scores has shape {values.shape}, got "
            f"{num_classes}."
        )
    else:
        num_classes = values.shape[-1]
    return calibration_of(values, labels, num_classes), num_classes


def _of_labels_alone(values: jax.Array, labels: ArrayLike) -> bool:
    """Whether the scores belong to the labels, [...], and not to all classes.

    A vector of labels with a vector of scores of another length is a mistake in either case. It is
    then treated as scores of the labels, so that the message asks for their shape.
    """
    shape = np.shape(labels)
    return shape == values.shape or len(shape) == values.ndim == 1


def covered_of_each_size(num_examples: int, error: Fraction) -> np.ndarray:
    """How many of m examples a quantile must cover, ceil((m + 1)(1 - error)), for m from 0 to n."""
    numerator, denominator = error.numerator, error.denominator
    covered = (m + 1 - (m + 1) * numerator // denominator for m in range(num_examples + 1))
    return np.fromiter(covered, int, num_examples + 1)


def group_scores(calibration: Calibration, groups: jax.Array, num_groups: int) -> Groups:
    """The scores by group [n]; scores of groups from `num_groups` up are at the end.

    No group may be negative. Negative labels, which are not valid, give results without a meaning.
    """
    sizes = jnp.zeros(num_groups, int).at[groups].add(1, mode="drop")
    starts = jnp.cumsum(sizes) - sizes
    _, ascending = jax.lax.sort((groups, calibration.scores), num_keys=2)
    return Groups(ascending, starts, sizes)


def value_of_rank(groups: Groups, ranks: jax.Array) -> jax.Array:
    """The `ranks`-th smallest score of each group, or infinity if it has fewer."""
    places = jnp.clip(groups.starts + ranks - 1, 0, groups.ascending.size - 1)
    return jnp.where(ranks > groups.sizes, jnp.inf, groups.ascending[places])


def _num_covered(num_examples: int, error: Fraction) -> int:
    """How many of n examples the quantile must cover."""
    return math.ceil((num_examples + 1) * (1 - error))


def _allowed_beyond(num_examples: int, error: Fraction) -> np.ndarray:
    """The greatest m with m / n < error, for each n; -1 if there is none."""
    numerator, denominator = error.numerator, error.denominator
    allowed = (-(-n * numerator // denominator) - 1 for n in range(num_examples + 1))
    return np.fromiter(allowed, int, num_examples + 1)


def _room_to_round(num_examples: int, error: Fraction) -> np.ndarray:
    """The greatest m with ceil(x + m / n) = ceil(x), x = (n + 1)(1 - error), for each n."""
    numerator, denominator = error.numerator, error.denominator
    room = (n * ((n + 1) * numerator % denominator) // denominator for n in range(num_examples + 1))
    return np.fromiter(room, int, num_examples + 1)


@partial(jax.jit, static_argnums=3)
def _conformal_threshold(
    probabilities: jax.Array,
    labels: jax.Array,
    rank: jax.Array | int,
    class_axis_name: Hashable | None,
) -> jax.Array:
    """The `rank`-th largest probability of a label, or minus infinity if there are fewer.

    Hazard: 1 - (1 - p) is rounded, so the threshold could exclude the example that it comes from.
    Choice: sort the probabilities themselves. Cost: none.
    """
    of_labels = _numerics.score_of_label(probabilities, labels, class_axis_name)
    of_labels = _sharding.gather(of_labels).reshape(-1)
    ascending = jnp.concatenate([jnp.full(1, -jnp.inf, of_labels.dtype), jnp.sort(of_labels)])
    threshold = ascending[labels.size + 1 - rank]
    valid = _numerics.valid_examples(probabilities, labels, class_axis_name).all()
    return jnp.where(valid, threshold, jnp.nan)


@jax.jit
def compute_conformal_quantile(calibration: Calibration, rank: jax.Array) -> jax.Array:
    """The `rank`-th smallest score, or infinity if there are fewer."""
    scores = calibration.scores
    ascending = jnp.concatenate([jnp.sort(scores), jnp.full(1, jnp.inf, scores.dtype)])
    return jnp.where(calibration.valid, ascending[rank - 1], jnp.nan)


@partial(jax.jit, static_argnames="num_classes")
def _class_conditional_quantiles(
    calibration: Calibration, ranks: jax.Array, num_classes: int
) -> jax.Array:
    groups = group_scores(calibration, calibration.labels, num_classes)
    quantiles = value_of_rank(groups, ranks[groups.sizes])
    return jnp.where(calibration.valid, quantiles, jnp.nan)


@jax.jit
def _label_shift_quantiles(
    calibration: Calibration, weights: jax.Array, coverage: jax.Array
) -> jax.Array:
    """The quantiles of weighted scores. The sums are not exact, so they have 16 roundings to spare.

    Without these, equal weights could give another quantile than `conformal_quantile`. Traced
    weights outside their range give NaN.
    """
    of_examples = _numerics.value_of_class(weights, calibration.labels)
    ascending, of_examples = jax.lax.sort((calibration.scores, of_examples), num_keys=1)
    sums = jnp.cumsum(of_examples)
    spare = 1.0 - 16.0 * float(jnp.finfo(sums.dtype).eps)
    required = coverage.astype(sums.dtype) * (sums[-1] + weights) * spare
    places = jnp.searchsorted(sums, required)
    reached = jnp.append(ascending, jnp.inf)[places]
    have_ratios = (weights >= 0.0).all() & (weights > 0.0).any() & jnp.isfinite(required).all()
    return jnp.where(calibration.valid & have_ratios, reached, jnp.nan)


@partial(jax.jit, static_argnames="num_classes")
def _rank_calibrated_quantiles(
    calibration: Calibration,
    places: Calibration,
    covered: jax.Array,
    allowed: jax.Array,
    room: jax.Array,
    num_classes: int,
) -> tuple[jax.Array, jax.Array]:
    """The quantiles of scores and ranks.

    Identity: with m of n ranks beyond k, ceil((n + 1)(1 - error + m / n)) is m plus
    ceil((n + 1)(1 - error)), and 1 more if m / n does not fit in what that rounds up. Hazard: in
    floating point the sum can round to the other side of an integer. Choice: tables of exact
    integers by the size of a class. Cost: three tables of n + 1 integers.
    """
    labels = calibration.labels
    groups = group_scores(calibration, labels, num_classes)
    ranks = group_scores(places, labels, num_classes)
    sizes = groups.sizes
    # If not even 0 labels may be beyond a rank, -1 labels are allowed, and the limit is infinite.
    limits = value_of_rank(ranks, sizes - allowed[sizes])
    is_beyond = places.scores > _numerics.value_of_class(limits, labels)
    num_beyond = jnp.zeros_like(sizes).at[labels].add(is_beyond.astype(sizes.dtype), mode="drop")
    rounded_up = (num_beyond > room[sizes]).astype(sizes.dtype)
    quantiles = value_of_rank(groups, num_beyond + covered[sizes] + rounded_up)
    valid = calibration.valid & places.valid
    return jnp.where(valid, quantiles, jnp.nan), jnp.where(valid, limits, jnp.nan)
