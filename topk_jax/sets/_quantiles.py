"""Quantiles of conformal scores: of all examples, of each class, and between the two."""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _sharding
from topk_jax.sets._calibration import (
    Calibration,
    calibration_by_class,
    calibration_of,
    covered_of_each_size,
    group_scores,
    value_of_rank,
)

__all__ = [
    "class_conditional_quantiles",
    "conformal_quantile",
    "conformal_threshold",
    "interpolated_quantiles",
]


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
            `[..., L]`, or of the labels alone, a vector `[n]`, as from `conformal_label_scores`; at
            least one example.
        labels: integer classes, `[...]`; `[n]` with scores of the labels alone.
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
        scores: floating-point scores of all classes, `[..., L]`, or of the labels alone, a vector
            `[n]`; at least one example.
        labels: integer classes, `[...]`; `[n]` with scores of the labels alone.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        num_classes: the static number L of classes; needed with scores of the labels alone.

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
        scores: floating-point scores of all classes, `[..., L]`, or of the labels alone, a vector
            `[n]`; at least one example.
        labels: integer classes, `[...]`; `[n]` with scores of the labels alone.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        weight: a scalar in [0, 1], the weight of the class (t above). May be traced.
        largest_score: a finite scalar that no score exceeds; 1, the default, for "lac" and "aps".
            It replaces infinite quantiles of classes. May be traced.
        num_classes: the static number L of classes; needed with scores of the labels alone.

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
    # 0 times an infinite quantile is NaN.
    between = weight * of_classes + (1.0 - weight) * of_all
    # Hazard: the mean of equal numbers can be rounded below them, and then leaves out all scores
    # that are equal to the quantile. Choice: bounds. Cost: none.
    low, high = jnp.minimum(of_classes, of_all), jnp.maximum(of_classes, of_all)
    between = jnp.clip(between, low, high)
    between = jnp.where(weight == 0.0, of_all, between)
    return jnp.where(weight == 1.0, of_classes, between)


def _num_covered(num_examples: int, error: Fraction) -> int:
    """How many of n examples the quantile must cover."""
    return math.ceil((num_examples + 1) * (1 - error))


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
