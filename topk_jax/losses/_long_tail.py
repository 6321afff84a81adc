"""Softmax losses for long tails, and class weights, from the frequencies of the classes.

A class without training examples raises: its logarithm and its weight would be infinite.
"""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _adjustment, _checks, _class_axis, _numerics
from topk_jax.losses import _softmax

__all__ = ["class_balanced_weights", "logit_adjusted_cross_entropy", "vector_scaling"]


@_class_axis.allow_split()
def logit_adjusted_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    class_counts: ArrayLike,
    tau: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The cross-entropy of logits to which the logarithms of the class frequencies are added.

    .. math::
        \ell(s, y) = \mathrm{CE}(s + \tau \log \pi, \, y)
        = \log \Bigl( 1 + \sum_{j \ne y} \Bigl(\frac{\pi_j}{\pi_y}\Bigr)^{\tau} e^{s_j - s_y}
        \Bigr), \qquad \pi_l = \frac{n_l}{\sum_j n_j}

    The network learns what the frequencies do not explain. With tau = 1, which is the balanced
    softmax, the expected loss is smallest if the softmax of s is in proportion to
    :math:`p(y \mid x) / \pi_y`. Rank the classes by s itself, without an adjustment. This order has
    the highest top-k accuracy on average over the classes. `sets.adjust_logits` adjusts a
    classifier that was trained without it.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        class_counts: the number of training examples of each class, positive, `[L]`. May be
            traced.
        tau: scalar strength of the adjustment, at least 0; 0 gives `cross_entropy`. May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `class_counts` or
            `tau` is not real.
        ValueError: the shapes do not match, a count is not positive and finite, or `tau` is
            negative or not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> print(losses.logit_adjusted_cross_entropy(
        ...     logits, labels, class_counts=[80, 15, 5]).round(4))
        [1.101]

    See Also:
        `vector_scaling`, `adjust_logits`.

    Source: Menon et al. (2021), "Long-tail learning via logit adjustment", equation 10; Ren et al.
    (2020), "Balanced meta-softmax for long-tailed visual recognition", for tau = 1.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    counts = _counts(class_counts, scores)
    tau = _checks.scalar(tau, "tau", scores.dtype, at_least=0)
    gaps = _softmax.gaps_to_label(scores, labels, class_axis_name)
    gaps = gaps + _prior_gaps(counts, tau, labels, class_axis_name)
    losses = jax.nn.softplus(_softmax.log_odds_of_others(gaps, labels, class_axis_name))
    losses = _numerics.nan_where_invalid(losses, scores, labels, class_axis_name)
    return _numerics.zero_left_out(losses, where)


@_class_axis.refuse_split
def vector_scaling(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    class_counts: ArrayLike,
    gamma: ArrayLike,
    tau: ArrayLike,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The cross-entropy of logits that are scaled and shifted by the class frequencies.

    .. math::
        \ell(s, y) = \mathrm{CE}(\Delta \odot s + \iota, \, y), \qquad
        \Delta_l = \Bigl(\frac{n_l}{\max_j n_j}\Bigr)^{\gamma}, \qquad
        \iota_l = \tau \log \frac{n_l}{\sum_j n_j}

    The product :math:`\Delta \odot s` is taken class by class. A rare class has a factor below 1,
    so its logit has to be larger for the same loss; this moves the margins also after all training
    examples are classified correctly. As with `logit_adjusted_cross_entropy`, rank the classes by s
    itself.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        class_counts: the number of training examples of each class, positive, `[L]`. May be
            traced.
        gamma: scalar exponent of the factors, at least 0; 0 gives `logit_adjusted_cross_entropy`.
            May be traced.
        tau: scalar strength of the shift, at least 0. May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `class_counts`,
            `gamma` or `tau` is not real.
        ValueError: the shapes do not match, a count is not positive and finite, or `gamma` or
            `tau` is negative or not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> print(losses.vector_scaling(
        ...     logits, labels, class_counts=[80, 20, 5], gamma=0.5, tau=0.0).round(4))
        [0.862]

    See Also:
        `logit_adjusted_cross_entropy`, `ldam`.

    Source: Kini et al. (2021), "Label-imbalanced and group-sensitive classification under
    overparameterization", the VS-loss without its weights. With tau = 0 it is the loss with
    class-dependent temperatures of Ye et al. (2020), "Identifying and compensating for feature
    deviation in imbalanced deep learning".
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    counts = _counts(class_counts, scores)
    gamma = _checks.scalar(gamma, "gamma", scores.dtype, at_least=0)
    tau = _checks.scalar(tau, "tau", scores.dtype, at_least=0)
    factors = (counts / counts.max()) ** gamma
    # Hazard: a floor that is multiplied by the factor of a rare class is not far below the other
    # scores any more. Choice: the floor is added after the products. Cost: two selections.
    is_masked = scores <= _numerics.FLOOR
    known = jnp.where(is_masked, 0, scores)
    floors = jnp.where(is_masked, _numerics.FLOOR, 0).astype(scores.dtype)
    of_label = _numerics.score_of_label(known, labels)[..., None]
    # Identity: Delta_j s_j - Delta_y s_y = Delta_j (s_j - s_y) + (Delta_j - Delta_y) s_y. Hazard:
    # at scores of 1e4 the difference of the products loses the digits of a gap of 1, even if both
    # factors are the same. Choice: the sum, whose terms are small if scores and factors are close.
    # Cost: one product and one sum per class, in the same pass.
    scaled = jnp.broadcast_to(factors, scores.shape) * _softmax.gaps_to_label(known, labels)
    gaps = scaled + _class_gaps(factors, labels) * of_label + _prior_gaps(counts, tau, labels)
    gaps = gaps + _softmax.gaps_to_label(floors, labels)
    losses = jax.nn.softplus(_softmax.log_odds_of_others(gaps, labels))
    return _numerics.zero_left_out(_numerics.nan_where_invalid(losses, scores, labels), where)


def class_balanced_weights(class_counts: ArrayLike, *, beta: ArrayLike) -> jax.Array:
    r"""Larger weights for rarer classes, for any loss: one over the effective number of examples.

    .. math::
        w_c \propto \frac{1 - \beta}{1 - \beta^{n_c}}, \qquad \frac1L \sum_c w_c = 1

    Multiply the loss of each example by the weight of its label. With beta = 0 the weights are all
    1. In the limit beta = 1 they are in proportion to :math:`1 / n_c`.

    In float32, the weights are right to 1e-6 for beta up to :math:`1 - 2^{-52}`.

    Args:
        class_counts: the number of training examples of each class, positive, `[L]`. May be
            traced.
        beta: scalar, at least 0 and less than 1; 0.9999 is common. May be traced. A Python number
            may be closer to 1 than the floating-point type of the result resolves.

    Returns:
        One weight per class, `[L]`, with mean 1, in the default floating-point type.

    Raises:
        TypeError: an argument is not real.
        ValueError: `class_counts` is not a vector of positive and finite numbers, or `beta` is not
            a scalar in [0, 1).

    Example:
        >>> from topk_jax import losses
        >>> print(losses.class_balanced_weights([1, 2, 4], beta=0.5).round(4))
        [1.3636 0.9091 0.7273]

    See Also:
        `class_margins`, `logit_adjusted_cross_entropy`.

    Source: Cui et al. (2019), "Class-balanced loss based on effective number of samples", with the
    scaling of its section 4.
    """
    dtype = jnp.result_type(float)
    counts = _checks.class_counts(class_counts, "class_counts").astype(dtype)
    checked = _checks.scalar(beta, "beta", dtype, at_least=0, below=1)
    # Identity: 1 - beta^n = -expm1(n log1p(-(1 - beta))). Hazard: float32 keeps three digits of 1 -
    # 0.9999, and none of 1 - beta^n if n (1 - beta) is small. Choice: 1 - beta of the number as it
    # was given, before it is rounded to float32. Cost: none.
    remainder = _numerics.nan_unless(~jnp.isnan(checked), jnp.asarray(1 - beta, dtype))
    weights = remainder / -jnp.expm1(counts * jnp.log1p(-remainder))
    return weights / weights.mean()


def _counts(class_counts: ArrayLike, scores: jax.Array) -> jax.Array:
    """The checked counts in the type of the scores, [L]."""
    return _checks.class_counts(class_counts, "class_counts", scores.shape[-1]).astype(scores.dtype)


def _prior_gaps(
    counts: jax.Array,
    tau: jax.Array,
    labels: jax.Array,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """The shifts tau log(pi_j / pi_y) of every class and every example, [..., L]."""
    frequencies = _adjustment.log_frequencies(counts, class_axis_name)
    return _class_gaps(tau * frequencies, labels, class_axis_name)


def _class_gaps(
    values: jax.Array, labels: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The values [L] of the classes minus the label's value, [..., L]."""
    of_label = _numerics.value_of_class(values, labels, class_axis_name)[..., None]
    return jnp.broadcast_to(values, (*labels.shape, values.shape[0])) - of_label
