"""Whether an example is of a class that no label of the calibration examples has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _sharding

__all__ = ["good_turing_p_value", "new_class_p_values"]


def good_turing_p_value(class_counts: ArrayLike) -> jax.Array:
    r"""A p-value for "the next label is of a new class", from how often each class was seen.

    .. math:: p = \frac{M_1 + 1}{n + 1}

    :math:`M_1` is the number of classes that were seen exactly once, and n the number of labels.
    If the next label is exchangeable with these, the probability that it is of a new class and that
    p is at most :math:`\varepsilon` is at most :math:`\varepsilon`.

    Args:
        class_counts: the number of labels of each class, integers of at least 0, `[L]`.

    Returns:
        The p-value, a scalar in the default floating-point type; NaN if a traced count is negative.

    Raises:
        TypeError: `class_counts` is not integer.
        ValueError: `class_counts` is not a vector, is empty, or a concrete count is negative.

    Example:
        >>> from topk_jax import sets
        >>> print(sets.good_turing_p_value([4, 1, 3, 1, 0]))
        0.3

    See Also:
        `new_class_p_values`.

    Source: Xie et al. (2025), "Conformal inference for open-set and imbalanced classification",
    equation 5; Good (1953), "The population frequencies of species".
    """
    counts = _checks.training_counts(class_counts, "class_counts")
    dtype = jnp.result_type(float)
    p_value = ((counts == 1).sum() + 1).astype(dtype) / (counts.astype(dtype).sum() + 1)
    return _numerics.nan_unless((counts >= 0).all(), p_value)


def new_class_p_values(
    outlier_scores: ArrayLike, calibration_outlier_scores: ArrayLike, seen_once: ArrayLike
) -> jax.Array:
    r"""P-values for "this example is of a new class", from scores of how unusual it is.

    .. math::
        p(x) = \frac{1 + |\{ i : y_i \text{ was seen once}, \; u(x_i) \le u(x) \}|}{n + 1}

    An example of a class that was seen once was of a new class when it came. So a new class is
    unlikely if the example is more usual than most of those. The probability that an example is of
    a new class and that its p-value is at most :math:`\varepsilon` is at most :math:`\varepsilon`.
    The score u must not depend on the examples of classes that were seen once: fit it with the
    others. With one score for all examples this is `good_turing_p_value`.

    Args:
        outlier_scores: u, floating-point and smaller for usual examples, `[...]`: for example minus
            the largest logit, or the distance to the nearest training features.
        calibration_outlier_scores: u of the n calibration examples, `[n]`.
        seen_once: whether the class of a calibration example is the class of no other one,
            booleans `[n]`.

    Returns:
        One p-value per example, `[...]`, in float32 or float64; NaN where a score is NaN. All are
        NaN if a calibration score is NaN.

    Raises:
        TypeError: the scores are not floating-point or `seen_once` is not boolean.
        ValueError: the shapes of the calibration arrays do not match, or there is no example.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> known, once = jnp.array([0.1, 0.9, 0.7]), jnp.array([False, True, True])
        >>> print(sets.new_class_p_values(jnp.array([0.3, 0.8, 1.0]), known, once))
        [0.25 0.5  0.75]

    See Also:
        `good_turing_p_value`.

    Source: Xie et al. (2025), "Conformal inference for open-set and imbalanced classification",
    section 3.
    """
    values = _checks.floating_array(jnp.asarray(outlier_scores)[..., None], "outlier_scores")[
        ..., 0
    ]
    known = _checks.floating_array(calibration_outlier_scores, "calibration_outlier_scores")
    if known.ndim != 1:
        raise ValueError(
            f"calibration_outlier_scores must be a vector of scores, got shape {known.shape}."
        )
    once = _checks.boolean_array(seen_once, "seen_once", known.shape)
    known, once = _sharding.gather(known.astype(values.dtype)), _sharding.gather(once)
    ascending = jnp.sort(jnp.where(once, known, jnp.inf))

    def count_below(values: jax.Array, ascending: jax.Array) -> jax.Array:
        return jnp.searchsorted(ascending, values, side="right")

    below = _sharding.map_examples(count_below, values.ndim, values, shared=(ascending,))
    # Infinity also stands for the examples of other classes.
    number = jnp.minimum(below, once.sum()) + 1
    p_values = number.astype(values.dtype) / (known.shape[0] + 1)
    return _numerics.nan_unless(~jnp.isnan(values) & ~jnp.isnan(known).any(), p_values)
