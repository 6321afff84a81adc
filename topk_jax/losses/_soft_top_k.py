"""Cross-entropies of soft memberships in the k largest scores, which the field compares with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks
from topk_jax._checks import scalar
from topk_jax._classes import FLOOR, nan_unless, take_along
from topk_jax._example import Scores
from topk_jax.operators._relaxed_ranks import check_relaxation, log_mixture_over_ranks
from topk_jax.operators._rivals import (
    REASON_BETWEEN,
    distances_from_middle,
    log_successive_softmax,
)
from topk_jax.operators._soft_top_k import distances_from_threshold
from topk_jax.operators._top_k import select_largest

__all__ = [
    "lapsum_top_k_loss",
    "relaxed_top_k_cross_entropy",
    "sigmoid_top_k_loss",
    "successive_softmax_top_k_loss",
]


def lapsum_top_k_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: ArrayLike,
    alpha: ArrayLike,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The negative logarithm of the true class's soft membership in the k largest scores.

    .. math::
        \ell(s, y) = -\log p_y, \qquad
        \frac{\partial \ell}{\partial s_j} = \frac1\alpha \Bigl(\frac1{\max(p_y, 1/2)} - 1\Bigr)
        (q_j - \delta_{jy})

    where p and q are defined in `operators.lapsum_top_k`.

    Args:
        logits, labels, where: see `topk_jax.losses`.
        k: set size K: an integer from 1 to L, or a real scalar greater than 0 and at most L.
        alpha: positive scalar scale, in the units of the logits.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> logits, labels = jnp.array([[2.0, 0.0, 0.0, -2.0]]), jnp.array([3])
        >>> print(lapsum_top_k_loss(logits, labels, k=2, alpha=1.0).round(2))
        [2.69]

    Source: Struski et al. (2025), "LapSum: one method to differentiate them all".
    """
    scores = Scores.of(logits, labels, where)
    k = _checks.rank_or_sum(k, scores.num_classes, scores.dtype)
    alpha = scalar(alpha, "alpha", scores.dtype, above=0)
    distance = scores.of_label(distances_from_threshold(scores.given, k, alpha))
    # The logarithm of the CDF of the Laplace distribution: e^-r overflows for r below -87.
    above = jnp.log1p(-jnp.exp(-jnp.maximum(distance, 0)) / 2)
    # The distances of an invalid example are NaN with all slopes.
    return scores.counted(nan_unless(scores.is_class, -(jnp.minimum(distance, 0) + above)))


def sigmoid_top_k_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    tau: ArrayLike,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The logistic loss of the true class's distance from the middle of s_[k] and s_[k+1].

    .. math::
        \ell(s, y) = \log\Bigl(1 + e^{(\theta - s_y) / \tau}\Bigr), \qquad
        \theta = \frac{s_{[k]} + s_{[k+1]}}2

    Args:
        logits, labels, where: see `topk_jax.losses`.
        k: static set size K, from 1 to L - 1.
        tau: positive scalar temperature, in the units of the logits.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> logits, labels = jnp.array([[2.0, 0.5, -0.5, -2.0]]), jnp.array([3])
        >>> print(sigmoid_top_k_loss(logits, labels, k=2, tau=0.5).round(2))
        [4.02]

    Source: Zhu et al. (2025), "Differentiable fast top-k selection" (DFTopK), loss of one stage.
    """
    scores = Scores.of(logits, labels, where)
    k = _checks.rank(k, scores.num_classes - 1, reason=REASON_BETWEEN)
    tau = scalar(tau, "tau", scores.dtype, above=0)
    distances = distances_from_middle(scores.given, k, tau)
    return scores.losses_of_few(jax.nn.softplus(-scores.of_label(distances)))


def successive_softmax_top_k_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    tau: ArrayLike,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The negative logarithm of the chance that one of k successive softmaxes chooses the label.

    .. math:: \ell(s, y) = -\log \Bigl( 1 - \prod_{j=1}^k \bigl(1 - p^{(j)}_y\bigr) \Bigr)

    where the shares p are defined in `operators.successive_softmax_top_k`.

    Args:
        logits, labels, where: see `topk_jax.losses`.
        k: static set size K, from 1 to L. Time and memory grow with it.
        tau: positive scalar temperature, in the units of the logits.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> logits, labels = jnp.array([[2.0, 0.0, 0.0, -2.0]]), jnp.array([3])
        >>> print(successive_softmax_top_k_loss(logits, labels, k=2, tau=1.0).round(2))
        [2.98]

    Source: here, from the shares of Xie and Ermon (2019), "Reparameterizable subset sampling".
    """
    scores = Scores.of(logits, labels, where)
    k = _checks.rank(k, scores.num_classes)
    tau = scalar(tau, "tau", scores.dtype, above=0)
    rounds = log_successive_softmax(scores.given, k, tau)
    # 1 - prod (1 - p_j) is sum_j p_j prod_{i < j} (1 - p_i), whose logarithms do not round to 0.
    chances = rounds.of_rounds + rounds.left_before
    chosen = jnp.stack([scores.of_label(chance) for chance in chances])
    return scores.losses(jax.nn.relu(-jax.nn.logsumexp(chosen, axis=0)))


def relaxed_top_k_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    top_k_weights: ArrayLike,
    method: str,
    tau: ArrayLike,
    swap: str = "cauchy",
    num_candidates: int | None = None,
    softmax_top_1: bool = True,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The cross-entropy of the relaxed probability that the label is in a top-K set of random K.

    .. math::
        \ell(s, y) = -\log \sum_k w_k \, q_k, \qquad
        q_1 = \mathrm{softmax}_y(s), \qquad q_k = \sum_{j \le k} P_{j,y}

    P are the `relaxed_ranks`. With the method "soft_sort" the loss can be a little less than 0.

    Args:
        logits, labels, where: see `topk_jax.losses`.
        top_k_weights: w, the probabilities of K = 1, 2, ...: at least 0 with a sum of 1, `[K]`.
        method: "soft_sort" or "odd_even": see `relaxed_ranks`.
        tau: positive scalar temperature, in the units of the logits.
        swap: how the network "odd_even" swaps: "logistic" or "cauchy".
        num_candidates: static number of classes, from K to L, that take part: the label and the
            classes with the largest other logits, in this order; `None` for all, in their own
            order. The network needs a small number, such as 16.
        softmax_top_1: static; whether q_1 is a softmax (of the candidates) and not :math:`P_{1,y}`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0, 1.5]]), jnp.array([3])
        >>> options = {"top_k_weights": [0.5, 0.5], "method": "odd_even", "tau": 0.1}
        >>> print(relaxed_top_k_cross_entropy(logits, labels, **options).round(2))
        [0.5]

    Source: Petersen et al. (2022), "Differentiable top-k classification learning".
    """
    scores = Scores.of(logits, labels, where)
    num_classes = scores.num_classes
    weights = _checks.weights_of_sizes(top_k_weights, "top_k_weights", num_classes, scores.dtype)
    relaxation = check_relaxation(method, tau, swap, scores.dtype)
    softmax_top_1 = _checks.static_boolean(softmax_top_1, "softmax_top_1")
    taking_part = scores
    if num_candidates is not None:
        fewest, reason = len(weights), "the number of classes"
        _checks.static_integer(
            num_candidates, "num_candidates", minimum=fewest, maximum=num_classes, reason=reason
        )
        taking_part = _candidates(scores, num_candidates)
    values = taking_part.values
    first = weights[:1]
    others = weights.at[0].set(0) if softmax_top_1 else weights
    # The weight of rank j is the weight of all sets with at least j classes.
    rank_weights = jax.lax.cumsum(others, reverse=True)
    positions = jnp.clip(taking_part.labels, 0, values.shape[-1] - 1)
    log_probability = log_mixture_over_ranks(values, positions, rank_weights, relaxation)
    if softmax_top_1:
        log_first = jnp.where(first > 0, jnp.log(jnp.where(first > 0, first, 1)), FLOOR)
        log_top_1 = log_first[0] + taking_part.of_label(taking_part.log_softmax())
        log_probability = jnp.logaddexp(log_top_1, log_probability)
    # Logarithms and maxima of the weights may lose the NaN of traced weights outside their range.
    return scores.losses_of_few(nan_unless(~jnp.isnan(weights).any(), -log_probability))


def _candidates(scores: Scores, count: int) -> Scores:
    """The scores of the label, and of the largest others in descending order."""
    values = scores.of_label(scores.values)[..., None]
    if count > 1:
        _, indices = select_largest(jax.lax.stop_gradient(scores.others()), count - 1)
        values = jnp.concatenate([values, take_along(scores.values, indices)], axis=-1)
    return Scores(values, values, jnp.zeros_like(scores.labels))
