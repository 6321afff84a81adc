"""Whether an example is of a class that no label of the calibration examples has."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _sharding

__all__ = ["good_turing_p_value", "new_class_p_values", "new_class_threshold", "open_set"]


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

    Example:
        >>> from topk_jax import sets
        >>> print(sets.good_turing_p_value([4, 1, 3, 1, 0]))
        0.3

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

    An example of a class that was seen once was of a new class when it came. The probability that
    an example is of a new class and that its p-value is at most :math:`\varepsilon` is at most
    :math:`\varepsilon`, if u does not depend on the examples of classes that were seen once: fit it
    with the others.

    Args:
        outlier_scores: u, floating-point and smaller for usual examples, `[...]`.
        calibration_outlier_scores: u of the n calibration examples, `[n]`.
        seen_once: whether the class of a calibration example is the class of no other one,
            booleans `[n]`.

    Returns:
        One p-value per example, `[...]`; NaN where a score is NaN. All are NaN if a calibration
        score is NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> known, once = jnp.array([0.1, 0.9, 0.7]), jnp.array([False, True, True])
        >>> print(sets.new_class_p_values(jnp.array([0.3, 0.8, 1.0]), known, once))
        [0.25 0.5  0.75]

    Source: Xie et al. (2025), section 3.
    """
    values = _checks.floating_numbers(outlier_scores, "outlier_scores")
    ascending, number, valid = _seen_once(calibration_outlier_scores, seen_once)
    ascending = ascending.astype(values.dtype)

    def count_below(values: jax.Array, ascending: jax.Array) -> jax.Array:
        return jnp.searchsorted(ascending, values, side="right")

    below = _sharding.map_examples(count_below, values.ndim, values, shared=(ascending,))
    p_values = (jnp.minimum(below, number.astype(below.dtype)) + 1).astype(values.dtype) / (
        ascending.shape[0] + 1
    )
    return _numerics.nan_unless(~jnp.isnan(values) & valid, p_values)


def new_class_threshold(
    calibration_outlier_scores: ArrayLike, seen_once: ArrayLike, *, error: float
) -> jax.Array:
    r"""The smallest outlier score of an example that may be of a new class.

    .. math::
        \tau = \text{the } r\text{-th smallest } u(x_i) \text{ of the examples seen once}, \qquad
        r = \lfloor \varepsilon (n + 1) \rfloor

    The scores of at least tau are those whose `new_class_p_values` exceed :math:`\varepsilon`. If r
    is 0, tau is minus infinity: with so few labels, a new class cannot be excluded. If r exceeds
    the number of examples seen once, it is infinity: new classes are rarer than the error.

    Args:
        error: see `topk_jax.sets`; the rate of new classes that may be missed.
        calibration_outlier_scores, seen_once: as for `new_class_p_values`, `[n]`.

    Returns:
        A scalar for `open_set`; NaN if a score is NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> known, once = jnp.array([0.125, 0.875, 0.75]), jnp.array([False, True, True])
        >>> print(sets.new_class_threshold(known, once, error=0.5))
        0.875

    Source: Xie et al. (2025), section 3.
    """
    ascending, _, valid = _seen_once(calibration_outlier_scores, seen_once)
    rank = math.floor(_checks.static_error(error) * (ascending.shape[0] + 1))
    from_rank_0 = jnp.pad(ascending, (1, 0), constant_values=-jnp.inf)
    return jnp.where(valid, from_rank_0[rank], jnp.nan)


@_class_axis.refuse_split
def open_set(
    members: ArrayLike,
    outlier_scores: ArrayLike,
    *,
    known_to: ArrayLike,
    new_from: ArrayLike = jnp.inf,
) -> jax.Array:
    r"""Sets of classes and of one more symbol, which stands for a class that is not among them.

    .. math::
        \Gamma'(x) = \{ l \in \Gamma(x) : u(x) \le \kappa \} \cup
        \{ \text{new} : u(x) \ge \tau \text{ or } u(x) > \kappa \}

    A set with "new" is right for an example of an unseen class. With sets that miss the labels of
    known classes at :math:`\varepsilon_1`, the `conformal_quantile` of outlier scores at
    :math:`\varepsilon_2` as :math:`\kappa`, and the `new_class_threshold` at :math:`\varepsilon_3`
    as :math:`\tau`, a set is wrong with a probability of at most the sum of the three. With an
    infinite :math:`\kappa` the second is 0. With an infinite :math:`\tau`, the first two are the
    error of an example of a known class, and nothing is promised for others.

    Args:
        members: whether each class is in the set of an example, booleans, `[..., L]`.
        outlier_scores: floating-point and smaller for usual examples, `[...]`.
        known_to: :math:`\kappa`, the largest score of an example that may be of a known class, a
            real scalar; infinity for no limit.
        new_from: :math:`\tau`, the smallest score of an example that may be of a new class.

    Returns:
        Booleans, `[..., L + 1]`; the last one is "new". A set is empty where a score or a limit is
        NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> members = jnp.array([[True, False], [True, True], [True, False]])
        >>> scores = jnp.array([0.25, 0.5, 2.0])
        >>> print(sets.open_set(members, scores, known_to=1.0, new_from=0.5))
        [[ True False False]
         [ True  True  True]
         [False False  True]]

    Source: Xie et al. (2025), section 3, for the symbol and the sum of the errors; Bates et al.
    (2023), "Testing for outliers with conformal p-values", for the limit of known examples.
    """
    chosen = _checks.boolean_array(members, "members")
    values = _checks.floating_numbers(outlier_scores, "outlier_scores")[..., None]
    if chosen.ndim == 0 or values.shape[:-1] != chosen.shape[:-1]:
        raise ValueError(
            f"outlier_scores must have the shape of members {chosen.shape} without its classes, "
            f"got shape {values.shape[:-1]}."
        )
    most = _checks.real_array(known_to, "known_to", (), values.dtype)
    least = _checks.real_array(new_from, "new_from", (), values.dtype)
    is_number = ~(jnp.isnan(values) | jnp.isnan(most) | jnp.isnan(least))
    is_known, may_be_new = values <= most, (values >= least) | (values > most)
    return jnp.concatenate([chosen & is_known & is_number, may_be_new & is_number], axis=-1)


def _seen_once(scores: ArrayLike, seen_once: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The ascending scores of classes seen once, then infinity, [n]; their number; no NaN."""
    known = _checks.floating_array(scores, "calibration_outlier_scores")
    if known.ndim != 1:
        raise ValueError(
            f"calibration_outlier_scores must be a vector of scores, got shape {known.shape}."
        )
    once = _checks.boolean_array(seen_once, "seen_once", known.shape)
    known, once = _sharding.gather(known), _sharding.gather(once)
    return jnp.sort(jnp.where(once, known, jnp.inf)), once.sum(), ~jnp.isnan(known).any()
