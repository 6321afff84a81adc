"""Logits and losses adjusted by the frequencies of the classes in training."""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes

__all__ = ["adjust_logits"]


def adjust_logits(logits: ArrayLike, *, class_counts: ArrayLike, tau: ArrayLike = 1.0) -> jax.Array:
    r"""Subtracts the logarithms of the class frequencies from the logits of a trained classifier.

    .. math:: s_l - \tau \log \pi_l, \qquad \pi_l = \frac{n_l}{\sum_j n_j}

    A classifier trained on frequent and rare classes prefers the frequent ones. If the softmax of
    its logits is p(y | x), the adjusted logits with tau = 1 rank the classes by
    :math:`p(y \mid x) / \pi_y`. This order has the highest top-k accuracy on average over the
    classes.

    Args:
        logits: floating-point scores, `[..., L]`. Probabilities must be given as logarithms.
        class_counts: the number of training examples of each class, positive, `[L]`. May be
            traced.
        tau: scalar strength of the adjustment, at least 0; 0 returns the logits. May be traced.

    Returns:
        Adjusted logits, `[..., L]`, in float32 or float64. A logit of -inf stays -inf, and NaN
        stays NaN.

    Raises:
        TypeError: `logits` is not floating-point, or `class_counts` or `tau` is not real.
        ValueError: `class_counts` is not one positive and finite number per class, or `tau` is
            negative or not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> logits = jnp.log(jnp.array([0.6, 0.3, 0.1]))
        >>> adjusted = sets.adjust_logits(logits, class_counts=[80, 15, 5])
        >>> print(jnp.exp(adjusted).round(2))
        [0.75 2.   2.  ]
        >>> print(sets.top_k_set(adjusted, k=2))
        [False  True  True]

    See Also:
        `logit_adjusted_cross_entropy`, `temperature`.

    Source: Menon et al. (2021), "Long-tail learning via logit adjustment", equation 9.
    """
    scores = _checks.floating_array(logits, "logits")
    counts = _checks.class_counts(class_counts, "class_counts", scores.shape[-1])
    tau = _checks.scalar(tau, "tau", scores.dtype, at_least=0)
    return scores - jnp.broadcast_to(
        tau * log_frequencies(counts.astype(scores.dtype)), scores.shape
    )


def log_frequencies(counts: jax.Array, class_axis_name: Hashable | None = None) -> jax.Array:
    """The logarithms of the classes' shares of the examples, `[L]`."""
    return jnp.log(counts / _classes.sum_classes(counts, class_axis_name))
