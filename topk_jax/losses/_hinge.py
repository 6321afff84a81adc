"""Hinges on the k-th largest score, and the top-k error that they bound.

Each hinge applies `nan_where_invalid` to its argument. If it were applied to the result, an
inactive hinge would keep the NaN of an invalid example out of the gradient.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax.operators import top_k_sum, top_k_value

__all__ = ["calibrated_top_k_hinge", "convex_top_k_hinge", "top_k_error", "top_k_hinge"]

REASON_WITHOUT_LABEL = "the number of classes without the true one"
REASON_NEXT_RANK = "the number of classes minus one, because rank k + 1 is used"


def top_k_error(logits: ArrayLike, labels: ArrayLike, *, k: int) -> jax.Array:
    r"""Whether the true class is missing from the k highest scores, 1 or 0.

    .. math:: \ell(s, y) = \mathbb 1\{s_{[k]} > s_y\}

    A tie of the true class with the k-th score is not an error. The gradient is zero.

    Args:
        logits: floating-point scores, `[..., L]`.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L.

    Returns:
        0 or 1 for each example, `[...]`, in float32 or float64; NaN where a logit is NaN or the
        label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `k` is not a static
            integer.
        ValueError: the shapes do not match, or `k` is outside [1, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> print(losses.top_k_error(logits, jnp.array([1, 2]), k=2))
        [0. 1.]

    Source: Garcin (2023), thesis, equation 4.3.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    k = _checks.rank(k, scores.shape[-1])
    scores = _numerics.finite_scores(scores)
    gap = top_k_value(scores, k) - _numerics.score_of_label(scores, labels)
    # Hazard: XLA rewrites the product of a comparison and a number as a selection, which loses a
    # NaN. Choice: the sign of a number that is already NaN. Cost: none.
    return jnp.sign(jax.nn.relu(_numerics.nan_where_invalid(gap, scores, labels)))


def top_k_hinge(logits: ArrayLike, labels: ArrayLike, *, k: int) -> jax.Array:
    r"""The hinge on the k-th largest score of the wrong classes.

    .. math:: \ell(s, y) = \bigl(1 + (s_{\setminus y})_{[k]} - s_y\bigr)_+

    Args:
        logits: floating-point scores, `[..., L]`.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L - 1.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or the label
        is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `k` is not a static
            integer.
        ValueError: the shapes do not match, or `k` is outside [1, L - 1].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.5, 1.0], [3.0, 2.5, 1.0]])
        >>> print(losses.top_k_hinge(logits, jnp.array([1, 2]), k=1))
        [1.5 3. ]

    Source: Lapin et al. (2015), "Top-k multiclass SVM"; thesis, equation 4.4.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    k = _checks.rank(k, scores.shape[-1] - 1, reason=REASON_WITHOUT_LABEL)
    scores = _numerics.finite_scores(scores)
    threshold = top_k_value(_numerics.without_label(scores, labels), k)
    gap = _numerics.nan_where_invalid(
        threshold - _numerics.score_of_label(scores, labels), scores, labels
    )
    return jax.nn.relu(1.0 + gap)


def convex_top_k_hinge(logits: ArrayLike, labels: ArrayLike, *, k: int) -> jax.Array:
    r"""The hinge on the mean of the k largest scores, a convex upper bound of `top_k_hinge`.

    .. math:: \ell(s, y) = \Bigl(\frac1k \sum_{i=1}^k (s + 1 - e_y)_{[i]} - s_y\Bigr)_+

    Args:
        logits: floating-point scores, `[..., L]`.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or the label
        is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `k` is not a static
            integer.
        ValueError: the shapes do not match, or `k` is outside [1, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> print(losses.convex_top_k_hinge(logits, jnp.array([1, 2]), k=2))
        [1.  2.5]

    Source: Lapin et al. (2015), "Top-k multiclass SVM"; thesis, table 4.1.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    k = _checks.rank(k, scores.shape[-1])
    scores = _numerics.finite_scores(scores)
    # Identity: a shift of all scores shifts their mean. Hazard: at scores of 1e4 a sum of k scores
    # loses the digits of the margin. Choice: differences to s_y, which are exact for close scores.
    # Cost: one elementwise pass.
    gaps = scores - _numerics.score_of_label(scores, labels)[..., None]
    gaps = jnp.where(_numerics.is_label(scores, labels), 0.0, 1.0 + gaps)
    return jax.nn.relu(_numerics.nan_where_invalid(top_k_sum(gaps, k) / k, scores, labels))


def calibrated_top_k_hinge(logits: ArrayLike, labels: ArrayLike, *, k: int) -> jax.Array:
    r"""The hinge on the (k+1)-th largest score of all classes, calibrated for the top-k error.

    .. math:: \ell(s, y) = \bigl(1 + s_{[k+1]} - s_y\bigr)_+

    Args:
        logits: floating-point scores, `[..., L]`.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L - 1.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or the label
        is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `k` is not a static
            integer.
        ValueError: the shapes do not match, or `k` is outside [1, L - 1].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.5, 1.0], [3.0, 2.5, 1.0]])
        >>> print(losses.calibrated_top_k_hinge(logits, jnp.array([0, 2]), k=1))
        [0.5 2.5]

    Source: Yang and Koyejo (2020), "On the consistency of top-k surrogate losses"; thesis,
    equation 4.5.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    k = _checks.rank(k, scores.shape[-1] - 1, reason=REASON_NEXT_RANK)
    scores = _numerics.finite_scores(scores)
    gap = top_k_value(scores, k + 1) - _numerics.score_of_label(scores, labels)
    return jax.nn.relu(1.0 + _numerics.nan_where_invalid(gap, scores, labels))
