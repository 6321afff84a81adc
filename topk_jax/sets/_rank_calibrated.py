"""Conformal quantiles of the scores and of the ranks of each class: RC3P."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics
from topk_jax._entries import add_by_group
from topk_jax.sets._calibration import (
    Calibration,
    calibration_by_class,
    calibration_of,
    covered_of_each_size,
    group_scores,
    value_of_rank,
)

__all__ = ["rank_calibrated_quantiles"]


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
        scores: floating-point scores of all classes, `[..., L]`, or of the labels alone, a vector
            `[n]`; at least one example.
        ranks: their ranks, `conformal_scores` or `conformal_label_scores` of kind "rank", of the
            same shape.
        labels: integer classes, `[...]`; `[n]` with scores of the labels alone.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        num_classes: the static number L of classes; needed with scores of the labels alone.

    Returns:
        The quantiles of the scores and of the ranks, both `[L]`, for
        `score_set(scores, quantiles) & score_set(ranks, rank_quantiles)`, in the scores' dtype
        (float32 or float64). They are infinity for classes with too few examples. All are NaN if a
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
    num_beyond = add_by_group(num_classes, labels, is_beyond.astype(sizes.dtype))
    rounded_up = (num_beyond > room[sizes]).astype(sizes.dtype)
    quantiles = value_of_rank(groups, num_beyond + covered[sizes] + rounded_up)
    valid = calibration.valid & places.valid
    return jnp.where(valid, quantiles, jnp.nan), jnp.where(valid, limits, jnp.nan)
