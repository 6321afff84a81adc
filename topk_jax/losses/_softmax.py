"""Softmax losses, and class margins that are larger for rarer classes."""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics

__all__ = ["class_margins", "cross_entropy", "focal", "ldam"]


@_class_axis.allow_split()
def cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    label_smoothing: ArrayLike = 0.0,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The cross-entropy of the softmax, with the true class or with a smoothed label.

    .. math::
        \ell(s, y) = -(1 - \varepsilon) \log \mathrm{softmax}_y(s)
        - \frac{\varepsilon}{L} \sum_j \log \mathrm{softmax}_j(s)

    Without smoothing this is :math:`-\log \mathrm{softmax}_y(s) = \log \sum_j e^{s_j} - s_y`.

    A tiny loss keeps its digits: in float32 its relative error is at most 2e-6, also for scores of
    1e4. With a single class the loss is 0.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        label_smoothing: scalar part of the label, at least 0 and less than 1, that is spread over
            all classes (epsilon above); classes with a logit of -inf get nothing. May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `label_smoothing` is
            not real.
        ValueError: the shapes do not match, or `label_smoothing` is not a scalar in [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> print(losses.cross_entropy(logits, labels).round(4))
        [0.4076]
        >>> print(losses.cross_entropy(logits, labels, label_smoothing=0.1).round(4))
        [0.5076]

    See Also:
        `focal`, `generalized_cross_entropy`, `heads.cross_entropy`.

    Source: Garcin (2023), thesis, table 4.1; Szegedy et al. (2016), "Rethinking the Inception
    architecture for computer vision", section 7, for smoothed labels.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    smoothing = _checks.scalar(
        label_smoothing, "label_smoothing", scores.dtype, at_least=0, below=1
    )
    # Without smoothing, the second reduction is left out.
    if isinstance(label_smoothing, int | float) and label_smoothing == 0:
        losses = compute_cross_entropy(scores, labels, class_axis_name)
        return _numerics.zero_left_out(losses, where)
    losses = jax.nn.softplus(_rival(scores, labels, class_axis_name=class_axis_name))
    losses = losses + smoothing * _mean_gap(scores, labels, class_axis_name)
    losses = _numerics.nan_where_invalid(losses, scores, labels, class_axis_name)
    return _numerics.zero_left_out(losses, where)


def compute_cross_entropy(
    scores: jax.Array, labels: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """`cross_entropy` of checked arguments, without smoothing."""
    losses = jax.nn.softplus(_rival(scores, labels, class_axis_name=class_axis_name))
    return _numerics.nan_where_invalid(losses, scores, labels, class_axis_name)


@_class_axis.allow_split()
def focal(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    gamma: ArrayLike,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The cross-entropy, scaled down if the true class is already likely.

    .. math::
        \ell(s, y) = (1 - p_y)^\gamma \, \mathrm{CE}(s, y), \qquad p_y = e^{-\mathrm{CE}(s, y)}

    The gradient is finite at :math:`p_y = 1`.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        gamma: scalar strength of the scaling, at least 0; 0 gives `cross_entropy`. May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `gamma` is not real.
        ValueError: the shapes do not match, or `gamma` is negative or not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[1.0, 2.0, 0.0]])
        >>> print(losses.focal(logits, jnp.array([1]), gamma=2.0).round(4))
        [0.0457]

    See Also:
        `cross_entropy`, `ldam`.

    Source: Lin et al. (2017), "Focal loss for dense object detection"; thesis, table 4.1, where
    the formula is misprinted.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    gamma = _checks.scalar(gamma, "gamma", scores.dtype, at_least=0)
    rival = _rival(scores, labels, class_axis_name=class_axis_name)
    # Identity: (1 - p)^gamma = sigmoid(rival)^gamma = exp(-gamma softplus(-rival)). Hazard: the
    # power has an infinite derivative if p rounds to 1. Choice: the exponential. Cost: one softplus
    # per example.
    damping = jnp.exp(-gamma * jax.nn.softplus(-rival))
    losses = damping * jax.nn.softplus(rival)
    losses = _numerics.nan_where_invalid(losses, scores, labels, class_axis_name)
    return _numerics.zero_left_out(losses, where)


@_class_axis.allow_split()
def ldam(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    margins: ArrayLike,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The label-distribution-aware margin loss: cross-entropy with a margin for the true class.

    .. math:: \ell(s, y) = \mathrm{CE}\bigl(\gamma \, (s - m_y e_y), \, y\bigr)

    Args:
        logits: floating-point scores, `[..., L]`, usually cosines; -inf masks a class. The label
            of a masked class costs about 1e30.
        labels: integer classes, `[...]`.
        margins: m, in the units of the logits, at least 0: a scalar, or one value per class,
            `[L]` (see `class_margins`). May be traced.
        scale: positive scalar factor of the logits (gamma above), needed for cosines. May be
            traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `margins` or `scale`
            is not real.
        ValueError: the shapes do not match, or `scale` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[0.5, 0.75, 0.0]])
        >>> print(losses.ldam(logits, jnp.array([1]), margins=0.25, scale=20.0).round(4))
        [0.6932]

    See Also:
        `class_margins`, `logit_adjusted_cross_entropy`.

    Source: Cao et al. (2019), "Learning imbalanced datasets with label-distribution-aware margin
    loss"; thesis, table 4.1.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    margins = _checks.per_class(margins, "margins", scores.shape[-1], scores.dtype, class_axis_name)
    scale = _checks.scalar(scale, "scale", scores.dtype, above=0)
    margin = _numerics.value_of_class(margins, labels, class_axis_name)
    losses = jax.nn.softplus(_rival(scores, labels, margin, scale, class_axis_name))
    losses = _numerics.nan_where_invalid(losses, scores, labels, class_axis_name)
    return _numerics.zero_left_out(losses, where)


def class_margins(class_counts: ArrayLike, *, max_margin: ArrayLike) -> jax.Array:
    r"""Larger margins for rarer classes, for `ldam` and the imbalanced `noised_top_k_hinge`.

    .. math:: m_c = m_{\max} \left(\frac{\min_j n_j}{n_c}\right)^{1/4}

    Args:
        class_counts: the number of training examples of each class, positive, `[L]`.
        max_margin: scalar margin of the rarest class, at least 0, in the units of the logits.

    Returns:
        One margin per class, `[L]`, in the default floating-point type.

    Raises:
        TypeError: an argument is not real.
        ValueError: `class_counts` is not a vector of positive and finite numbers, or `max_margin`
            is negative or not a scalar.

    Example:
        >>> from topk_jax import losses
        >>> print(losses.class_margins([16, 1, 256], max_margin=0.5).round(4))
        [0.25  0.5   0.125]

    See Also:
        `ldam`, `noised_top_k_hinge`, `class_balanced_weights`.

    Source: Cao et al. (2019); thesis, equation 4.13, with its constant C given by `max_margin`.
    """
    dtype = jnp.result_type(float)
    counts = _checks.class_counts(class_counts, "class_counts").astype(dtype)
    max_margin = _checks.scalar(max_margin, "max_margin", dtype, at_least=0)
    return max_margin * (counts.min() / counts) ** 0.25


def _rival(
    scores: jax.Array,
    labels: jax.Array,
    margin: ArrayLike = 0.0,
    scale: jax.Array | float = 1.0,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """Log-odds against the true class, `[...]`: log sum_{j != y} e^(scale (s_j - s_y + margin))."""
    gaps = gaps_to_label(scores, labels, class_axis_name)
    margin = jnp.broadcast_to(jnp.asarray(margin, scores.dtype), labels.shape)[..., None]
    return log_odds_of_others(scale * (gaps + margin), labels, class_axis_name)


def gaps_to_label(
    scores: jax.Array, labels: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The scores minus the true class's score, `[..., L]`; masked classes have finite values."""
    scores = _numerics.finite_scores(scores)
    return scores - _numerics.score_of_label(scores, labels, class_axis_name)[..., None]


def log_odds_of_others(
    gaps: jax.Array, labels: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """Log-odds against the true class, `[...]`: log sum_{j != y} e^(gap_j), of `[..., L]`.

    Identity: CE = log(1 + e^rival), where the gaps are s_j - s_y and the result is the rival.
    Hazard: log sum e^s - s_y loses the digits of a small loss; at scores of 1e4 only three decimals
    are left. Choice: differences to s_y, which are exact for close scores. The true class is
    removed with a finite score, because logsumexp of only -inf has a NaN gradient. Cost: one
    elementwise pass, which XLA fuses into the next one.
    """
    is_label = _numerics.is_label(gaps, labels, class_axis_name)
    return _classes.log_sum_exp(jnp.where(is_label, _numerics.FLOOR, gaps), class_axis_name)


def _mean_gap(scores: jax.Array, labels: jax.Array, class_axis_name: Hashable | None) -> jax.Array:
    """The score of the true class minus the mean of all scores above -inf, `[...]`.

    Identity: this is the mean of -log softmax_j, minus its value for the true class. Hazard: a
    masked class would make the mean infinite. Choice: leave it out, as the softmax does. Cost: one
    more reduction over the logits.
    """
    scores = _numerics.finite_scores(scores)
    is_finite = scores > _numerics.FLOOR
    gaps = _numerics.score_of_label(scores, labels, class_axis_name)[..., None] - scores
    count = jnp.maximum(_classes.sum_classes(is_finite, class_axis_name, dtype=scores.dtype), 1)
    return _classes.sum_classes(jnp.where(is_finite, gaps, 0), class_axis_name) / count
