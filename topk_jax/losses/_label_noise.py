"""Softmax losses that trust a label less than the cross-entropy does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics
from topk_jax.losses import _softmax

__all__ = ["generalized_cross_entropy", "symmetric_cross_entropy"]


@_class_axis.refuse_split
def generalized_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, q: ArrayLike, where: ArrayLike | None = None
) -> jax.Array:
    r"""A loss between the cross-entropy and the probability of a wrong class, at most 1 / q.

    .. math::
        \ell(s, y) = \frac{1 - p_y^q}{q}, \qquad p = \mathrm{softmax}(s), \qquad
        \nabla \ell = p_y^q \, (p - e_y)

    An example with an unlikely label, which may be wrong, has a small gradient. In the limit q = 0
    the loss is `cross_entropy`, which it equals to a relative 2e-6 in float32 for q down to 1e-30.
    With q = 1 it is :math:`1 - p_y`, half the absolute error :math:`\lVert p - e_y \rVert_1`.

    Args:
        logits: floating-point scores, `[..., L]`.
        labels: integer classes, `[...]`.
        q: scalar, greater than 0 and at most 1; 0.7 is common. May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `q` is not real.
        ValueError: the shapes do not match, or `q` is not a scalar in (0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[1.0, 2.0, 0.0]])
        >>> print(losses.generalized_cross_entropy(logits, jnp.array([0]), q=0.7).round(4))
        [0.8953]

    See Also:
        `symmetric_cross_entropy`, `cross_entropy`.

    Source: Zhang and Sabuncu (2018), "Generalized cross entropy loss for training deep neural
    networks with noisy labels", without its truncation.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    q = _checks.scalar(q, "q", scores.dtype, above=0, at_most=1)
    entropy = _cross_entropy(scores, labels)
    losses = _one_less_exponential(q * entropy) / q
    return _numerics.zero_left_out(_numerics.nan_where_invalid(losses, scores, labels), where)


@_class_axis.refuse_split
def symmetric_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    alpha: ArrayLike,
    beta: ArrayLike,
    log_zero: ArrayLike = -4.0,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The cross-entropy plus the cross-entropy with the roles of label and softmax exchanged.

    .. math::
        \ell(s, y) = \alpha \, \mathrm{CE}(s, y) - \beta \sum_j p_j \log t_j
        = -\alpha \log p_y - \beta A \, (1 - p_y), \qquad p = \mathrm{softmax}(s), \quad t = e_y

    where A stands for the logarithm of 0. The second term is at most :math:`-\beta A`, however
    unlikely the label is.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        alpha: scalar weight of the cross-entropy, at least 0. May be traced.
        beta: scalar weight of the reverse cross-entropy, at least 0. May be traced.
        log_zero: scalar A, less than 0. May be traced. The paper has -4; its authors' code replaces
            0 by 1e-4, which is A = -9.21.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or another argument is
            not real.
        ValueError: the shapes do not match, or another argument is outside its range or not a
            scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[1.0, 2.0, 0.0]])
        >>> print(losses.symmetric_cross_entropy(
        ...     logits, jnp.array([1]), alpha=0.1, beta=1.0).round(4))
        [1.3798]

    See Also:
        `generalized_cross_entropy`, `cross_entropy`.

    Source: Wang et al. (2019), "Symmetric cross entropy for robust learning with noisy labels".
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    alpha = _checks.scalar(alpha, "alpha", scores.dtype, at_least=0)
    beta = _checks.scalar(beta, "beta", scores.dtype, at_least=0)
    log_zero = _checks.scalar(log_zero, "log_zero", scores.dtype, below=0)
    entropy = _cross_entropy(scores, labels)
    # Identity: 1 - p_y = sigmoid(rival) = 1 - e^-CE. Hazard: the slope of the sigmoid, which JAX
    # computes as y (1 - y), loses the digits of an unlikely label, and is 0 if the odds are e^17 or
    # more. Choice: the exponential. Cost: two exponentials per example.
    losses = alpha * entropy - beta * log_zero * _one_less_exponential(entropy)
    return _numerics.zero_left_out(_numerics.nan_where_invalid(losses, scores, labels), where)


def _cross_entropy(scores: jax.Array, labels: jax.Array) -> jax.Array:
    return jax.nn.softplus(
        _softmax.log_odds_of_others(_softmax.gaps_to_label(scores, labels), labels)
    )


def _one_less_exponential(values: jax.Array) -> jax.Array:
    """1 - exp(-x) for x of at least 0, and its slope exp(-x).

    Hazard: the difference loses the digits of a small x. The slope of `expm1`, which JAX computes
    as `expm1 + 1`, loses the digits of a large x. Choice: use each form if the other one fails.
    Cost: one more exponential per example.
    """
    return jnp.where(values < 1, -jnp.expm1(-values), 1 - jnp.exp(-values))
