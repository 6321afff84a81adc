"""Softmax losses: for noisy labels, and for classes of very different frequency.

A class without training examples raises: its logarithm and its weight would be infinite.
"""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.nn import softplus
from jax.typing import ArrayLike

from topk_jax._checks import numbers, scalar
from topk_jax._classes import FLOOR, nan_unless
from topk_jax._example import Scores, counts_per_class, per_class

__all__ = [
    "class_balanced_weights",
    "class_margins",
    "cross_entropy",
    "focal",
    "generalized_cross_entropy",
    "ldam",
    "logit_adjusted_cross_entropy",
    "symmetric_cross_entropy",
    "vector_scaling",
]


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

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        label_smoothing: scalar epsilon, at least 0 and less than 1; masked classes get no part.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(cross_entropy(jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])).round(4))
        [0.4076]

    Source: thesis, table 4.1; Szegedy et al. (2016), "Rethinking the Inception architecture".
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    smoothing = scalar(label_smoothing, "label_smoothing", scores.dtype, at_least=0, below=1)
    gaps = scores.gaps()
    losses = softplus(scores.rival(gaps))
    # Without smoothing, the second reduction is left out.
    if not (isinstance(label_smoothing, int | float) and label_smoothing == 0):
        is_free = scores.values > FLOOR
        number = jnp.maximum(scores.sum(is_free.astype(scores.dtype)), 1)
        losses -= smoothing * scores.sum(jnp.where(is_free, gaps, 0)) / number
    return scores.losses(losses)


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

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        gamma: scalar strength of the scaling, at least 0; 0 gives `cross_entropy`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(focal(jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1]), gamma=2.0).round(4))
        [0.0457]

    Source: Lin et al. (2017), "Focal loss for dense object detection"; thesis, table 4.1.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    gamma = scalar(gamma, "gamma", scores.dtype, at_least=0)
    rival = scores.rival(scores.gaps())
    # Not a power of 1 - p = sigmoid(rival), whose derivative is infinite where p rounds to 1.
    return scores.losses(jnp.exp(-gamma * softplus(-rival)) * softplus(rival))


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
        logits, labels, where, class_axis_name: see `topk_jax.losses`; the logits can be cosines.
        margins: m, at least 0: a scalar, or one value per class, `[L]`, as of `class_margins`.
        scale: positive scalar gamma, needed for cosines.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(ldam(jnp.array([[0.5, 0.7]]), jnp.array([1]), margins=0.2, scale=20.0).round(2))
        [0.69]

    Source: Cao et al. (2019), "Learning imbalanced datasets with LDAM loss"; thesis, table 4.1.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    margin = scores.of_label(per_class(margins, "margins", scores))
    scale = scalar(scale, "scale", scores.dtype, above=0)
    return scores.losses(softplus(scores.rival(scale * (scores.gaps() + margin[..., None]))))


def generalized_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    q: ArrayLike,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""A loss between the cross-entropy (q = 0) and the probability of a wrong class (q = 1).

    .. math:: \ell(s, y) = \frac{1 - p_y^q}{q}, \qquad p = \mathrm{softmax}(s)

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        q: scalar from above 0 to 1. A smaller one learns faster, a larger one bears more noise.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> logits = jnp.array([[1.0, 2.0, 0.0]])
        >>> print(generalized_cross_entropy(logits, jnp.array([0]), q=0.7).round(4))
        [0.8953]

    Source: Zhang and Sabuncu (2018), "Generalized cross entropy loss", without its truncation.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    q = scalar(q, "q", scores.dtype, above=0, at_most=1)
    return scores.losses(_one_less_exponential(q * softplus(scores.rival(scores.gaps()))) / q)


def symmetric_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    alpha: ArrayLike,
    beta: ArrayLike,
    log_zero: ArrayLike = -4.0,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The cross-entropy plus the cross-entropy with the roles of label and softmax exchanged.

    .. math:: \ell(s, y) = -\alpha \log p_y - \beta A \, (1 - p_y), \qquad p = \mathrm{softmax}(s)

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        alpha: scalar weight of the cross-entropy, at least 0.
        beta: scalar weight of the reverse cross-entropy, at least 0.
        log_zero: scalar A, less than 0, for the logarithm of 0; -9.21 in the authors' code.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> print(symmetric_cross_entropy(logits, labels, alpha=0.1, beta=1.0).round(4))
        [1.3798]

    Source: Wang et al. (2019), "Symmetric cross entropy for robust learning with noisy labels".
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    alpha = scalar(alpha, "alpha", scores.dtype, at_least=0)
    beta = scalar(beta, "beta", scores.dtype, at_least=0)
    log_zero = scalar(log_zero, "log_zero", scores.dtype, below=0)
    entropy = softplus(scores.rival(scores.gaps()))
    # Not the sigmoid of the rival, whose slope loses the digits of an unlikely label.
    return scores.losses(alpha * entropy - beta * log_zero * _one_less_exponential(entropy))


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
        \ell(s, y) = \mathrm{CE}(s + \tau \log \pi, \, y), \qquad \pi_l = \frac{n_l}{\sum_j n_j}

    With tau = 1 the logits rank the classes by :math:`p(y \mid x) / \pi_y`: use them as they are.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        class_counts: n, the number of training examples of each class, positive, `[L]`.
        tau: scalar strength of the adjustment, at least 0.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> counts = [80, 15, 5]
        >>> print(logit_adjusted_cross_entropy(logits, labels, class_counts=counts).round(4))
        [1.101]

    Source: Menon et al. (2021), "Long-tail learning via logit adjustment", equation 10.
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    tau = scalar(tau, "tau", scores.dtype, at_least=0)
    # Their sum cancels.
    logs = tau * jnp.log(counts_per_class(class_counts, "class_counts", scores))
    return scores.losses(softplus(scores.rival(scores.gaps() + scores.gaps(logs))))


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

    Args:
        logits, labels, where: see `topk_jax.losses`.
        class_counts: n, the number of training examples of each class, positive, `[L]`.
        gamma: scalar strength of the scaling, at least 0; 0 gives `logit_adjusted_cross_entropy`.
        tau: scalar strength of the shift, at least 0.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> options = {"class_counts": [80, 20, 5], "gamma": 0.5, "tau": 0.0}
        >>> print(vector_scaling(logits, labels, **options).round(4))
        [0.862]

    Source: Kini et al. (2021), "Label-imbalanced and group-sensitive classification", VS-loss.
    """
    scores = Scores.of(logits, labels, where)
    counts = counts_per_class(class_counts, "class_counts", scores)
    gamma = scalar(gamma, "gamma", scores.dtype, at_least=0)
    tau = scalar(tau, "tau", scores.dtype, at_least=0)
    factors, logs = (counts / counts.max()) ** gamma, tau * jnp.log(counts)
    is_masked = scores.values <= FLOOR
    known = jnp.where(is_masked, 0, scores.values)
    # Not a difference of products, which loses the digits of a gap between scores of 1e4.
    gaps = scores.spread(factors) * scores.gaps(known)
    gaps += scores.gaps(factors) * scores.of_label(known)[..., None] + scores.gaps(logs)
    floors = jnp.where(is_masked, FLOOR, 0.0).astype(scores.dtype)
    return scores.losses(softplus(scores.rival(gaps + scores.gaps(floors))))


def class_margins(class_counts: ArrayLike, *, max_margin: ArrayLike) -> jax.Array:
    r"""Larger margins for rarer classes, for `ldam` and the imbalanced `noised_top_k_hinge`.

    .. math:: m_c = m_{\max} \left(\frac{\min_j n_j}{n_c}\right)^{1/4}

    Args:
        class_counts: the number of training examples of each class, positive, `[L]`.
        max_margin: scalar margin of the rarest class, at least 0, in the units of the logits.

    Returns:
        One margin per class, `[L]`, in the default floating-point type.

    Example:
        >>> print(class_margins([16, 1, 256], max_margin=0.5).round(4))
        [0.25  0.5   0.125]

    Source: Cao et al. (2019); thesis, equation 4.13.
    """
    dtype = jnp.result_type(float)
    counts = numbers(class_counts, "class_counts", dtype, None, above=0)
    max_margin = scalar(max_margin, "max_margin", dtype, at_least=0)
    return max_margin * (counts.min() / counts) ** 0.25


def class_balanced_weights(class_counts: ArrayLike, *, beta: ArrayLike) -> jax.Array:
    r"""Larger weights for rarer classes, for any loss: one over the effective number of examples.

    .. math:: w_c \propto \frac{1 - \beta}{1 - \beta^{n_c}}, \qquad \frac1L \sum_c w_c = 1

    Multiply the loss of each example by the weight of its label.

    Args:
        class_counts: the number of training examples of each class, positive, `[L]`.
        beta: scalar, at least 0 and less than 1; 0.9999 is common.

    Returns:
        One weight per class, `[L]`, with mean 1, in the default floating-point type.

    Example:
        >>> print(class_balanced_weights([1, 2, 4], beta=0.5).round(4))
        [1.3636 0.9091 0.7273]

    Source: Cui et al. (2019), "Class-balanced loss based on effective number of samples".
    """
    dtype = jnp.result_type(float)
    counts = numbers(class_counts, "class_counts", dtype, None, above=0)
    checked = scalar(beta, "beta", dtype, at_least=0, below=1)
    # float32 has three digits of 1 - 0.9999: so 1 - beta before beta is rounded. 1 - beta^n is
    # -expm1(n log1p(-(1 - beta))), with all digits if n (1 - beta) is small.
    remainder = nan_unless(~jnp.isnan(checked), jnp.asarray(1 - beta, dtype))
    weights = remainder / -jnp.expm1(counts * jnp.log1p(-remainder))
    return weights / weights.mean()


def _one_less_exponential(values: jax.Array) -> jax.Array:
    """1 - exp(-x) for x of at least 0, and its slope exp(-x), with all digits of both."""
    return jnp.where(values < 1, -jnp.expm1(-values), 1 - jnp.exp(-values))
