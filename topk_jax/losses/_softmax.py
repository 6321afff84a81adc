"""Softmax losses: for noisy labels, and for classes of very different frequency.

A class without training examples raises: its logarithm and its weight would be infinite.
"""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.nn import softplus
from jax.typing import ArrayLike

from topk_jax._example import (
    FLOOR,
    Scores,
    counts_per_class,
    nan_unless,
    numbers,
    per_class,
    scalar,
)

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

    A tiny loss keeps its digits: in float32 its relative error is at most 2e-6, also for scores of
    1e4. With a single class the loss is 0.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        label_smoothing: scalar part of the label, at least 0 and less than 1, that is spread over
            all classes (epsilon above); classes with a logit of -inf get nothing.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> print(losses.cross_entropy(logits, labels).round(4))
        [0.4076]

    Source: Garcin (2023), thesis, table 4.1; Szegedy et al. (2016), "Rethinking the Inception
    architecture for computer vision", section 7, for smoothed labels.
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

    The gradient is finite at :math:`p_y = 1`.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        gamma: scalar strength of the scaling, at least 0; 0 gives `cross_entropy`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[1.0, 2.0, 0.0]])
        >>> print(losses.focal(logits, jnp.array([1]), gamma=2.0).round(4))
        [0.0457]

    Source: Lin et al. (2017), "Focal loss for dense object detection"; thesis, table 4.1, where
    the formula is misprinted.
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
        logits, labels, where, class_axis_name: see `topk_jax.losses`. The logits are usually
            cosines.
        margins: m, in the units of the logits, at least 0: a scalar, or one value per class,
            `[L]` (see `class_margins`).
        scale: positive scalar factor of the logits (gamma above), needed for cosines.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[0.5, 0.75, 0.0]])
        >>> print(losses.ldam(logits, jnp.array([1]), margins=0.25, scale=20.0).round(4))
        [0.6932]

    Source: Cao et al. (2019), "Learning imbalanced datasets with label-distribution-aware margin
    loss"; thesis, table 4.1.
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

    The loss is at most 1/q, so a wrong label costs little.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        q: scalar from above 0 to 1. A smaller one learns faster, a larger one bears more noise.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[1.0, 2.0, 0.0]])
        >>> print(losses.generalized_cross_entropy(logits, jnp.array([0]), q=0.7).round(4))
        [0.8953]

    Source: Zhang and Sabuncu (2018), "Generalized cross entropy loss for training deep neural
    networks with noisy labels", without its truncation.
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

    .. math::
        \ell(s, y) = -\alpha \log p_y - \beta A \, (1 - p_y), \qquad p = \mathrm{softmax}(s)

    where A stands for the logarithm of 0. The second term is at most :math:`-\beta A`, however
    unlikely the label is.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        alpha: scalar weight of the cross-entropy, at least 0.
        beta: scalar weight of the reverse cross-entropy, at least 0.
        log_zero: scalar A, less than 0. The paper has -4; its authors' code replaces 0 by 1e-4,
            which is A = -9.21.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[1.0, 2.0, 0.0]])
        >>> print(losses.symmetric_cross_entropy(
        ...     logits, jnp.array([1]), alpha=0.1, beta=1.0).round(4))
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

    The network learns what the frequencies do not explain. With tau = 1, which is the balanced
    softmax, its logits rank the classes by :math:`p(y \mid x) / \pi_y`: use them as they are.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        class_counts: n, the number of training examples of each class, positive, `[L]`.
        tau: scalar strength of the adjustment, at least 0.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> print(losses.logit_adjusted_cross_entropy(
        ...     logits, labels, class_counts=[80, 15, 5]).round(4))
        [1.101]

    Source: Menon et al. (2021), "Long-tail learning via logit adjustment", equation 10; Ren et al.
    (2020), "Balanced meta-softmax for long-tailed visual recognition", for tau = 1.
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
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0]]), jnp.array([1])
        >>> print(losses.vector_scaling(
        ...     logits, labels, class_counts=[80, 20, 5], gamma=0.5, tau=0.0).round(4))
        [0.862]

    Source: Kini et al. (2021), "Label-imbalanced and group-sensitive classification under
    overparameterization", the VS-loss without its weights. With tau = 0 it is the loss with
    class-dependent temperatures of Ye et al. (2020).
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
        >>> from topk_jax import losses
        >>> print(losses.class_margins([16, 1, 256], max_margin=0.5).round(4))
        [0.25  0.5   0.125]

    Source: Cao et al. (2019); thesis, equation 4.13, with its constant C given by `max_margin`.
    """
    dtype = jnp.result_type(float)
    counts = numbers(class_counts, "class_counts", dtype, None, above=0)
    max_margin = scalar(max_margin, "max_margin", dtype, at_least=0)
    return max_margin * (counts.min() / counts) ** 0.25


def class_balanced_weights(class_counts: ArrayLike, *, beta: ArrayLike) -> jax.Array:
    r"""Larger weights for rarer classes, for any loss: one over the effective number of examples.

    .. math::
        w_c \propto \frac{1 - \beta}{1 - \beta^{n_c}}, \qquad \frac1L \sum_c w_c = 1

    Multiply the loss of each example by the weight of its label. With beta = 0 the weights are all
    1. In the limit beta = 1 they are in proportion to :math:`1 / n_c`.

    In float32, the weights are right to 1e-6 for beta up to :math:`1 - 2^{-52}`.

    Args:
        class_counts: the number of training examples of each class, positive, `[L]`.
        beta: scalar, at least 0 and less than 1; 0.9999 is common. A Python number
            may be closer to 1 than the floating-point type of the result resolves.

    Returns:
        One weight per class, `[L]`, with mean 1, in the default floating-point type.

    Example:
        >>> from topk_jax import losses
        >>> print(losses.class_balanced_weights([1, 2, 4], beta=0.5).round(4))
        [1.3636 0.9091 0.7273]

    Source: Cui et al. (2019), "Class-balanced loss based on effective number of samples", with the
    scaling of its section 4.
    """
    dtype = jnp.result_type(float)
    counts = numbers(class_counts, "class_counts", dtype, None, above=0)
    checked = scalar(beta, "beta", dtype, at_least=0, below=1)
    # Identity: 1 - beta^n = -expm1(n log1p(-(1 - beta))). Hazard: float32 keeps three digits of 1 -
    # 0.9999, and none of 1 - beta^n if n (1 - beta) is small. Choice: 1 - beta of the number as it
    # was given, before it is rounded to float32. Cost: none.
    remainder = nan_unless(~jnp.isnan(checked), jnp.asarray(1 - beta, dtype))
    weights = remainder / -jnp.expm1(counts * jnp.log1p(-remainder))
    return weights / weights.mean()


def _one_less_exponential(values: jax.Array) -> jax.Array:
    """1 - exp(-x) for x of at least 0, and its slope exp(-x), with all digits of both."""
    return jnp.where(values < 1, -jnp.expm1(-values), 1 - jnp.exp(-values))
