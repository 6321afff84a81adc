"""Softmax losses, and class margins that are larger for rarer classes."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics

__all__ = ["class_margins", "cross_entropy", "focal", "ldam"]


def cross_entropy(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""The cross-entropy of the softmax.

    .. math:: \ell(s, y) = -\log \mathrm{softmax}_y(s) = \log \sum_j e^{s_j} - s_y

    Args:
        logits: floating-point scores, `[..., L]`.
        labels: integer classes, `[...]`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or the label
        is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point or `labels` is not integer.
        ValueError: the shapes do not match.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> print(losses.cross_entropy(jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])).round(4))
        [0.4076]

    Source: Garcin (2023), thesis, table 4.1.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    return _numerics.nan_where_invalid(jax.nn.softplus(_rival(scores, labels)), scores, labels)


def focal(logits: ArrayLike, labels: ArrayLike, *, gamma: ArrayLike) -> jax.Array:
    r"""The cross-entropy, scaled down where the true class is already likely.

    .. math::
        \ell(s, y) = (1 - p_y)^\gamma \, \mathrm{CE}(s, y), \qquad p_y = e^{-\mathrm{CE}(s, y)}

    Args:
        logits: floating-point scores, `[..., L]`.
        labels: integer classes, `[...]`.
        gamma: scalar strength of the scaling, at least 0; 0 gives `cross_entropy`. May be traced.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or the label
        is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `gamma` is not real.
        ValueError: the shapes do not match, or `gamma` is negative or not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[1.0, 2.0, 0.0]])
        >>> print(losses.focal(logits, jnp.array([1]), gamma=2.0).round(4))
        [0.0457]

    Source: Lin et al. (2017), "Focal loss for dense object detection"; thesis, table 4.1, where
    the formula is misprinted.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    gamma = _checks.scalar(gamma, "gamma", scores.dtype, at_least=0)
    rival = _rival(scores, labels)
    # Identity: (1 - p)^gamma = sigmoid(rival)^gamma = exp(-gamma softplus(-rival)). Hazard: the
    # power has an infinite derivative where p rounds to 1. Choice: the exponential. Cost: one
    # softplus per example.
    damping = jnp.exp(-gamma * jax.nn.softplus(-rival))
    return _numerics.nan_where_invalid(damping * jax.nn.softplus(rival), scores, labels)


def ldam(
    logits: ArrayLike, labels: ArrayLike, *, margins: ArrayLike, scale: ArrayLike = 1.0
) -> jax.Array:
    r"""The label-distribution-aware margin loss: cross-entropy with a margin for the true class.

    .. math:: \ell(s, y) = \mathrm{CE}\bigl(\gamma \, (s - m_y e_y), \, y\bigr)

    Args:
        logits: floating-point scores, `[..., L]`; usually cosines.
        labels: integer classes, `[...]`.
        margins: m, in the units of the logits, at least 0: a scalar, or one value per class,
            `[L]` (see `class_margins`). May be traced.
        scale: positive scalar factor of the logits (gamma above), needed for cosines. May be
            traced.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or the label
        is outside [0, L).

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

    Source: Cao et al. (2019), "Learning imbalanced datasets with label-distribution-aware margin
    loss"; thesis, table 4.1.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    margins = _checks.per_class(margins, "margins", scores.shape[-1], scores.dtype)
    scale = _checks.scalar(scale, "scale", scores.dtype, above=0)
    rival = _rival(scores, labels, _numerics.value_of_class(margins, labels), scale)
    return _numerics.nan_where_invalid(jax.nn.softplus(rival), scores, labels)


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
        ValueError: `class_counts` is not a vector of positive numbers, or `max_margin` is negative
            or not a scalar.

    Example:
        >>> from topk_jax import losses
        >>> print(losses.class_margins([16, 1, 256], max_margin=0.5).round(4))
        [0.25  0.5   0.125]

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
    scale: ArrayLike = 1.0,
) -> jax.Array:
    """Log-odds against the true class, `[...]`: log sum_{j != y} e^(scale (s_j - s_y + margin)).

    Identity: CE = log(1 + e^rival). Hazard: log sum e^s - s_y loses the digits of a small loss; at
    scores of 1e4 only three decimals are left. Choice: differences to s_y, which are exact for
    close scores. The true class is removed with a finite score, because logsumexp of only -inf has
    a NaN gradient. Cost: one elementwise pass, which XLA fuses into the next one.
    """
    scores = _numerics.finite_scores(scores)
    gaps = scores - _numerics.score_of_label(scores, labels)[..., None]
    margin = jnp.broadcast_to(jnp.asarray(margin, scores.dtype), labels.shape)[..., None]
    others = jnp.where(_numerics.is_label(scores, labels), _numerics.FLOOR, scale * (gaps + margin))
    return jax.nn.logsumexp(others, axis=-1)
