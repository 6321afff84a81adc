"""Conformal quantiles for new examples whose classes have other frequencies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics
from topk_jax.sets._calibration import Calibration, calibration_by_class

__all__ = ["label_shift_quantiles"]


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

    With :math:`w_c = q_c / p_c` the frequency of class c among new examples divided by its
    frequency among these:

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
        scores: floating-point scores of all classes, `[..., L]`, or of the labels alone, a vector
            `[n]`; at least one example.
        labels: integer classes, `[...]`; `[n]` with scores of the labels alone.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        weights: w above, finite, at least 0 and not all 0: one value per class, `[L]`, or a scalar.
            May be traced.
        num_classes: the static number L of classes; needed with scores of the labels alone.

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
    spare = 1.0 - _numerics.rounding_to_spare(sums.dtype)
    required = coverage.astype(sums.dtype) * (sums[-1] + weights) * spare
    places = jnp.searchsorted(sums, required)
    reached = jnp.append(ascending, jnp.inf)[places]
    have_ratios = (weights >= 0.0).all() & (weights > 0.0).any() & jnp.isfinite(required).all()
    return jnp.where(calibration.valid & have_ratios, reached, jnp.nan)
