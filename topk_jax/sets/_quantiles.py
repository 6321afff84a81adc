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
from topk_jax._entries import add_by_group

__all__ = [
    "class_conditional_quantiles",
    "conformal_quantile",
    "conformal_threshold",
    "interpolated_quantiles",
    "rank_calibrated_quantiles",
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
    which keeps every class. For a new example, :math:`1 - \varepsilon \le P(p_y \ge \lambda)`.

    Args:
        labels, error, class_axis_name: see `topk_jax.sets`.
        probabilities: floating-point, from 0 to 1, `[..., L]`, with at least one example. For other
            scores, give `conformal_quantile` their negatives.

    Returns:
        A scalar for `threshold_set`; NaN if a traced probability is not from 0 to 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])
        >>> print(sets.conformal_threshold(probabilities, jnp.array([0, 1, 1]), error=0.5))
        0.5

    Source: Garcin (2023), thesis, section 2.2.2, equation 2.5.
    """
    values, labels = _checks.logits_and_labels(probabilities, labels, name="probabilities")
    values = _checks.only_probabilities(probabilities, values, "probabilities")
    _checks.some_examples(values, "probabilities")
    rank = num_covered(labels.size, _checks.static_error(error))
    return _conformal_threshold(values, labels, rank, class_axis_name)


@_class_axis.refuse_split
def conformal_quantile(scores: ArrayLike, labels: ArrayLike, *, error: float) -> jax.Array:
    r"""The quantile of split conformal prediction: its sets miss the label at a given rate.

    .. math::
        \hat q = \text{the } r\text{-th smallest score of a label}, \qquad
        r = \lceil (n + 1)(1 - \varepsilon) \rceil

    If r exceeds n it is infinity, which keeps every class. For an example exchangeable with these,
    :math:`1 - \varepsilon \le P(s_y \le \hat q)`, and without ties it is :math:`r / (n + 1)`.

    Args:
        scores, labels, error: see `topk_jax.sets`.

    Returns:
        A scalar for `conformal_set` or `score_set`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> probabilities = jnp.array([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])
        >>> labels = jnp.array([0, 1, 1])
        >>> scores = sets.conformal_label_scores(probabilities, labels, kind="lac")
        >>> print(sets.conformal_quantile(scores, labels, error=0.5))
        0.5

    Source: Vovk et al. (2005), "Algorithmic learning in a random world"; Garcin (2023), thesis,
    section 2.2.2.
    """
    calibration = calibration_of(scores, labels)
    return quantile_of(calibration, num_covered(calibration.size, _checks.static_error(error)))


@_class_axis.refuse_split
def class_conditional_quantiles(
    scores: ArrayLike, labels: ArrayLike, *, error: float, num_classes: int | None = None
) -> jax.Array:
    r"""A conformal quantile for each class: the sets miss each class at a given rate.

    .. math::
        \hat q_c = \text{the } r_c\text{-th smallest score of the } n_c
        \text{ examples of class } c,
        \qquad r_c = \lceil (n_c + 1)(1 - \varepsilon) \rceil

    It is infinity for a class with fewer than :math:`1 / \varepsilon - 1` examples.

    Args:
        scores, labels, error, num_classes: see `topk_jax.sets`.

    Returns:
        One quantile per class, `[L]`, for `conformal_set` or `score_set`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, labels = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([0, 0, 0, 1])
        >>> print(sets.class_conditional_quantiles(scores, labels, error=0.25, num_classes=2))
        [0.75  inf]

    Source: Vovk et al. (2005), section 4.5, where this is a Mondrian predictor; Vovk (2012),
    "Conditional validity of inductive conformal predictors".
    """
    calibration, num_classes = calibration_by_class(scores, labels, num_classes)
    ranks = covered_of_each_size(calibration.size, _checks.static_error(error))
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
    between, a label is missed with a probability of at most :math:`2 \varepsilon`.

    Args:
        scores, labels, error, num_classes: see `topk_jax.sets`.
        weight: a scalar in [0, 1], the weight of the class (t above).
        largest_score: a finite scalar that no score exceeds; 1, the default, for "lac" and "aps".
            It replaces infinite quantiles of classes.

    Returns:
        One quantile per class, `[L]`, for `conformal_set` or `score_set`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, labels = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([0, 0, 0, 1])
        >>> print(sets.interpolated_quantiles(
        ...     scores, labels, error=0.25, weight=0.5, num_classes=2))
        [0.75  0.875]

    Source: Ding, Fermanian and Salmon (2025), "Conformal prediction for long-tailed
    classification", Interp-Q.
    """
    calibration, num_classes = calibration_by_class(scores, labels, num_classes)
    dtype, rate = calibration.scores.dtype, _checks.static_error(error)
    weight = _checks.scalar(weight, "weight", dtype, at_least=0, at_most=1)
    largest = _checks.scalar(largest_score, "largest_score", dtype)
    of_all = quantile_of(calibration, num_covered(calibration.size, rate))
    ranks = covered_of_each_size(calibration.size, rate)
    of_classes = _class_conditional_quantiles(calibration, ranks, num_classes)
    of_classes = jnp.minimum(of_classes, largest)
    between = weight * of_classes + (1.0 - weight) * of_all
    # The mean of equal numbers can round below them, and would leave out scores that equal them.
    low, high = jnp.minimum(of_classes, of_all), jnp.maximum(of_classes, of_all)
    between = jnp.clip(between, low, high)
    # 0 times an infinite quantile is NaN.
    between = jnp.where(weight == 0.0, of_all, between)
    return jnp.where(weight == 1.0, of_classes, between)


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

    The sets are smaller than with `class_conditional_quantiles`, but :math:`e_c^k` is the rate of
    these examples and not of all: with 11 of a class, an error of 0.1 can become 2/12.

    Args:
        scores, labels, error, num_classes: see `topk_jax.sets`.
        ranks: their ranks, `conformal_scores` or `conformal_label_scores` of kind "rank", of the
            same shape.

    Returns:
        The quantiles of the scores and of the ranks, both `[L]`, for
        `score_set(scores, quantiles) & score_set(ranks, rank_quantiles)`. They are infinity for
        classes with too few examples.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, ranks = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([1.0, 1.0, 2.0, 1.0])
        >>> labels = jnp.array([0, 0, 0, 1])
        >>> quantiles, rank_quantiles = sets.rank_calibrated_quantiles(
        ...     scores, ranks, labels, error=0.5, num_classes=2)
        >>> print(quantiles, rank_quantiles)
        [inf 0.5] [1. 1.]

    Source: Shi et al. (2024), "Conformal prediction for class-wise coverage via augmented label
    rank calibration", option II.
    """
    calibration, num_classes = calibration_by_class(scores, labels, num_classes)
    if np.shape(ranks) != np.shape(scores):
        raise ValueError(
            f"ranks must have shape {np.shape(scores)}, as scores has, got {np.shape(ranks)}."
        )
    places = calibration_of(ranks, labels, num_classes, name="ranks")
    places = places._replace(scores=places.scores.astype(calibration.scores.dtype))
    rate, sizes = _checks.static_error(error), range(calibration.size + 1)
    # Tables of exact integers by the size n of a class, because sums of floats can round to the
    # other side of an integer: the greatest m with m / n < error, and, as m beyond the rank make
    # ceil((n + 1)(1 - error) + m + m / n), the greatest m whose m / n adds nothing to the ceiling.
    part, whole = rate.numerator, rate.denominator
    allowed = np.array([-(-n * part // whole) - 1 for n in sizes])
    room = np.array([n * ((n + 1) * part % whole) // whole for n in sizes])
    covered = covered_of_each_size(calibration.size, rate)
    return _rank_calibrated_quantiles(calibration, places, covered, allowed, room, num_classes)


class Calibration(NamedTuple):
    """The scores of the labels, [n], the labels, [n], and whether all of them are valid."""

    scores: jax.Array
    labels: jax.Array
    valid: jax.Array

    @property
    def size(self) -> int:
        """The number of examples."""
        return self.labels.size


class Groups(NamedTuple):
    """Scores by group: in ascending order within each, [n], and each group's start and size."""

    ascending: jax.Array
    starts: jax.Array
    sizes: jax.Array


def calibration_of(
    scores: ArrayLike, labels: ArrayLike, num_classes: int | None = None, *, name: str = "scores"
) -> Calibration:
    """The scores of the labels, from the scores of all classes or of the labels, or raises.

    One-hot labels have the shape of the scores of all classes: scores of labels must be a vector.
    """
    values = _checks.floating_array(scores, name)
    if values.ndim == 1 and np.shape(labels) != ():
        labels = _checks.integer_array(labels, "labels", values.shape, of=(name, values.shape))
        _checks.some_examples(values, name)
        of_labels, known = values, num_classes
    else:
        values, labels = _checks.logits_and_labels(
            scores,
            labels,
            name=name,
            hint="sets.vote_quantile takes one-hot and soft labels; scores of the labels alone, "
            "and their labels, have to be vectors",
        )
        _checks.some_examples(values, name)
        of_labels, known = _numerics.score_of_label(values, labels), values.shape[-1]
    largest = jnp.iinfo(labels.dtype).max if known is None else known - 1
    valid = ~jnp.isnan(values).any() & ((labels >= 0) & (labels <= largest)).all()
    # A score and a label of each example are sent to all devices, not the scores of all classes.
    of_labels, labels = _sharding.gather(of_labels), _sharding.gather(labels)
    return Calibration(of_labels.reshape(-1), labels.reshape(-1), valid)


def calibration_by_class(
    scores: ArrayLike, labels: ArrayLike, num_classes: int | None
) -> tuple[Calibration, int]:
    """The scores of the labels, and the number of classes, or raises."""
    shape = np.shape(scores)
    is_of_labels = len(shape) == 1 and np.shape(labels) != ()
    if num_classes is not None or is_of_labels:
        num_classes = _checks.static_integer(num_classes, "num_classes", minimum=1)
    calibration = calibration_of(scores, labels, num_classes)
    if not is_of_labels and num_classes not in (None, shape[-1]):
        raise ValueError(
            f"num_classes must be {shape[-1]} for scores of shape {shape}, got {num_classes}."
        )
    return calibration, shape[-1] if num_classes is None else num_classes


def group_scores(calibration: Calibration, groups: jax.Array, num_groups: int) -> Groups:
    """The scores by group [n], none of them negative; those from `num_groups` up are at the end."""
    sizes = add_by_group(num_groups, groups, 1)
    _, ascending = jax.lax.sort((groups, calibration.scores), num_keys=2)
    return Groups(ascending, jnp.cumsum(sizes) - sizes, sizes)


def value_of_rank(groups: Groups, ranks: jax.Array) -> jax.Array:
    """The `ranks`-th smallest score of each group, or infinity if it has fewer."""
    places = jnp.clip(groups.starts + ranks - 1, 0, groups.ascending.size - 1)
    return jnp.where(ranks > groups.sizes, jnp.inf, groups.ascending[places])


def num_covered(num_examples: int, error: Fraction) -> int:
    """How many of n examples the quantile must cover."""
    return math.ceil((num_examples + 1) * (1 - error))


def covered_of_each_size(num_examples: int, error: Fraction) -> np.ndarray:
    """How many of m examples a quantile must cover, for m from 0 to n."""
    part, whole = error.numerator, error.denominator
    return np.array([m - m * part // whole for m in range(1, num_examples + 2)])


@jax.jit
def quantile_of(calibration: Calibration, rank: jax.Array | int) -> jax.Array:
    """The `rank`-th smallest score, or infinity if there are fewer."""
    ascending = jnp.append(jnp.sort(calibration.scores), jnp.inf)
    return jnp.where(calibration.valid, ascending[rank - 1], jnp.nan)


@partial(jax.jit, static_argnums=3)
def _conformal_threshold(
    probabilities: jax.Array,
    labels: jax.Array,
    rank: jax.Array | int,
    class_axis_name: Hashable | None,
) -> jax.Array:
    """The `rank`-th largest probability of a label, or minus infinity if there are fewer.

    It is not 1 minus the quantile of 1 - p, whose rounding could exclude an example.
    """
    of_labels = _numerics.score_of_label(probabilities, labels, class_axis_name)
    valid = _numerics.valid_examples(probabilities, labels, class_axis_name).all()
    of_labels = -_sharding.gather(of_labels).reshape(-1)
    return -quantile_of(Calibration(of_labels, labels, valid), rank)


@partial(jax.jit, static_argnames="num_classes")
def _class_conditional_quantiles(
    calibration: Calibration, ranks: jax.Array, num_classes: int
) -> jax.Array:
    groups = group_scores(calibration, calibration.labels, num_classes)
    quantiles = value_of_rank(groups, ranks[groups.sizes])
    return jnp.where(calibration.valid, quantiles, jnp.nan)


@partial(jax.jit, static_argnames="num_classes")
def _rank_calibrated_quantiles(
    calibration: Calibration,
    places: Calibration,
    covered: jax.Array,
    allowed: jax.Array,
    room: jax.Array,
    num_classes: int,
) -> tuple[jax.Array, jax.Array]:
    """The quantiles of scores and ranks, by tables of n + 1 integers."""
    labels = calibration.labels
    groups = group_scores(calibration, labels, num_classes)
    ranks = group_scores(places, labels, num_classes)
    sizes = groups.sizes
    # If not even 0 labels may be beyond a rank, -1 labels are allowed, and the limit is infinite.
    limits = value_of_rank(ranks, sizes - allowed[sizes])
    is_beyond = places.scores > _numerics.value_of_class(limits, labels)
    num_beyond = add_by_group(num_classes, labels, is_beyond.astype(sizes.dtype))
    rounded_up = (num_beyond > room[sizes]).astype(sizes.dtype)
    quantiles = value_of_rank(groups, num_beyond + covered[sizes] + rounded_up)
    valid = calibration.valid & places.valid
    return jnp.where(valid, quantiles, jnp.nan), jnp.where(valid, limits, jnp.nan)
