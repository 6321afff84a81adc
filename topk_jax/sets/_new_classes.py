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
        `new_class_threshold`, `good_turing_p_value`, `outlier_scores`.

    Source: Xie et al. (2025), "Conformal inference for open-set and imbalanced classification",
    section 3.
    """
    values = _checks.floating_numbers(outlier_scores, "outlier_scores")
    known, once = _calibration(calibration_outlier_scores, seen_once)
    known = known.astype(values.dtype)
    ascending = jnp.sort(jnp.where(once, known, jnp.inf))

    def count_below(values: jax.Array, ascending: jax.Array) -> jax.Array:
        return jnp.searchsorted(ascending, values, side="right")

    below = _sharding.map_examples(count_below, values.ndim, values, shared=(ascending,))
    # Infinity also stands for the examples of other classes.
    number = jnp.minimum(below, once.sum(dtype=below.dtype)) + 1
    p_values = number.astype(values.dtype) / (known.shape[0] + 1)
    return _numerics.nan_unless(~jnp.isnan(values) & ~jnp.isnan(known).any(), p_values)


def new_class_threshold(
    calibration_outlier_scores: ArrayLike, seen_once: ArrayLike, *, error: float
) -> jax.Array:
    r"""The smallest outlier score of an example that may be of a new class.

    .. math::
        \tau = \text{the } r\text{-th smallest } u(x_i) \text{ of the examples seen once}, \qquad
        r = \lfloor \varepsilon (n + 1) \rfloor

    The scores of at least tau are those whose `new_class_p_values` exceed :math:`\varepsilon`. So
    the probability that a new example is of a new class and has a smaller score is at most
    :math:`\varepsilon`. If r is 0, tau is minus infinity: with so few labels, a new class cannot be
    excluded for any example. If r exceeds the number of examples seen once, it is infinity: new
    classes are rarer than :math:`\varepsilon`, whatever the example.

    Args:
        calibration_outlier_scores: scores of the n calibration examples, floating-point and smaller
            for usual ones, `[n]`. See `new_class_p_values` for what they may depend on.
        seen_once: whether the class of a calibration example is the class of no other one,
            booleans `[n]`.
        error: static rate of new classes that may be missed, a real number in [0, 1), interpreted
            as its shortest decimal.

    Returns:
        A scalar for `open_set`, in float32 or float64; NaN if a score is NaN.

    Raises:
        TypeError: the scores are not floating-point, `seen_once` is not boolean, or `error` is not
            a static real number.
        ValueError: the shapes do not match, there is no example, or `error` is outside [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> known, once = jnp.array([0.125, 0.875, 0.75]), jnp.array([False, True, True])
        >>> print(sets.new_class_threshold(known, once, error=0.5))
        0.875

    See Also:
        `new_class_p_values`, `open_set`, `outlier_scores`, `neighbor_scores`.

    Source: Xie et al. (2025), section 3.
    """
    known, once = _calibration(calibration_outlier_scores, seen_once)
    rank = math.floor(_checks.static_error(error) * (known.shape[0] + 1))
    # Infinity also stands for the examples of other classes.
    ascending = jnp.sort(jnp.where(once, known, jnp.inf))
    from_rank_0 = jnp.pad(ascending, (1, 0), constant_values=-jnp.inf)
    return jnp.where(jnp.isnan(known).any(), jnp.nan, from_rank_0[rank])


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

    An example whose score exceeds :math:`\kappa` is like none of the known ones: its set is only
    "new". From :math:`\tau` on, the set has "new" beside the classes. A set with "new" is right for
    an example of an unseen class. Three errors add up. With a :math:`\Gamma` that misses the labels
    of known classes with a probability of at most :math:`\varepsilon_1`, with the
    `conformal_quantile` of the outlier scores of known classes at :math:`\varepsilon_2` as
    :math:`\kappa`, and with the `new_class_threshold` at :math:`\varepsilon_3` as :math:`\tau`, the
    set of a new example is wrong with a probability of at most
    :math:`\varepsilon_1 + \varepsilon_2 + \varepsilon_3`. With an infinite :math:`\kappa` the
    second is 0. With the default :math:`\tau`, the first two are the error of an example of a known
    class, and nothing is promised for others.

    Args:
        members: whether each class is in the set of an example, booleans, `[..., L]`.
        outlier_scores: floating-point and smaller for usual examples, `[...]`.
        known_to: :math:`\kappa`, the largest score of an example that may be of a known class, a
            real scalar; infinity for no limit.
        new_from: :math:`\tau`, the smallest score of an example that may be of a new class.

    Returns:
        Booleans, `[..., L + 1]`; the last one is "new". A set is empty where a score or a limit is
        NaN.

    Raises:
        TypeError: `members` is not boolean, or the scores or limits are not real.
        ValueError: the shapes do not match, or a limit is not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> members = jnp.array([[True, False], [True, True], [True, False]])
        >>> scores = jnp.array([0.25, 0.5, 2.0])
        >>> print(sets.open_set(members, scores, known_to=1.0, new_from=0.5))
        [[ True False False]
         [ True  True  True]
         [False False  True]]

    See Also:
        `new_class_threshold`, `conformal_quantile`, `outlier_scores`, `neighbor_scores`.

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


def _calibration(scores: ArrayLike, seen_once: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Returns the scores and whether each class was seen once, [n] on each device, or raises."""
    known = _checks.floating_array(scores, "calibration_outlier_scores")
    if known.ndim != 1:
        raise ValueError(
            f"calibration_outlier_scores must be a vector of scores, got shape {known.shape}."
        )
    once = _checks.boolean_array(seen_once, "seen_once", known.shape)
    return _sharding.gather(known), _sharding.gather(once)
