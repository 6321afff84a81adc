"""Losses of sparse probabilities, and of soft memberships in the k largest scores."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from topk_jax import _checks, _sharding
from topk_jax._checks import scalar
from topk_jax._classes import FLOOR, nan_unless, take_along
from topk_jax._example import Scores, scores_and_targets
from topk_jax.operators import _entmax
from topk_jax.operators._relaxed_ranks import check_relaxation, log_mixture_over_ranks
from topk_jax.operators._rivals import (
    REASON_BETWEEN,
    distances_from_middle,
    log_successive_softmax,
)
from topk_jax.operators._soft_top_k import distances_from_threshold
from topk_jax.operators._top_k import select_largest

__all__ = [
    "entmax_loss",
    "lapsum_top_k_loss",
    "relaxed_top_k_cross_entropy",
    "sigmoid_top_k_loss",
    "sparse_top_loss",
    "sparsemax_loss",
    "successive_softmax_top_k_loss",
]


# Gauss-Legendre on [0, 1]. The singularity of the integrand of `_doubt` is at 2 or beyond, so
# twelve nodes are enough for float64.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2


@_sharding.allow_split()
def entmax_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    alpha: ArrayLike,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The Fenchel-Young loss of `operators.entmax`: cross-entropy at alpha = 1.

    .. math::
        \ell(s, y) = (p - e_y) \cdot s + \frac{1 - \sum_l p_l^\alpha}{\alpha (\alpha - 1)}, \qquad
        p = \mathrm{entmax}_\alpha(s), \qquad \nabla \ell = p - e_y

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        alpha: scalar from 1 to 2; with larger values fewer classes have a gradient.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(entmax_loss(jnp.array([[2.0, 1.0, 0.5]]), jnp.array([2]), alpha=1.5).round(2))
        [1.56]

    Source: Peters, Niculae and Martins (2019), "Sparse sequence-to-sequence models".
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    alpha = scalar(alpha, "alpha", scores.dtype, at_least=1, at_most=2)
    return scores.losses(_loss(class_axis_name, scores.values, alpha, scores.labels)[0])


def sparsemax_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The sparsemax loss: `entmax_loss` at alpha = 2.

    .. math::
        \ell(s, y) = -s_y + \frac12 \sum_{j \in S} (s_j^2 - \lambda^2) + \frac12,
        \qquad \nabla \ell = \mathrm{sparsemax}(s) - e_y

    where lambda solves :math:`\sum_j (s_j - \lambda)_+ = 1`, and S are the classes above it.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> print(sparsemax_loss(jnp.array([[1.0, 0.5, -1.0]]), jnp.array([2])))
        [2.0625]

    Source: Martins and Astudillo (2016), "From softmax to sparsemax"; thesis, equation 6.12.
    """
    return entmax_loss(logits, labels, alpha=2.0, where=where, class_axis_name=class_axis_name)


def sparse_top_loss(
    logits: ArrayLike, targets: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""A multi-label loss that is zero if all targets score at least 1 above all other classes.

    .. math::
        \ell(s, Y) = -\sum_{j \in Y} s_j + \sum_{j \in H} \Bigl(s_j - \frac12\Bigr)
        + \frac12 \sum_{j \in M} (s_j^2 - \lambda^2) + \frac{|Y|}2,
        \qquad \nabla \ell = \mathrm{sparse\text{-}top}(|Y|, s) - 1_Y

    where H are the classes with projection 1, M those with a projection between 0 and 1, and lambda
    is the threshold of the projection.

    Args:
        logits, where: see `topk_jax.losses`.
        targets: 1 (or true) for the classes that are present, 0 for the others, `[..., L]`.

    Returns:
        One loss per example, `[...]`; NaN where a traced target is neither 0 nor 1.

    Example:
        >>> print(sparse_top_loss(jnp.array([[3.0, 2.0, 0.5, 0.0]]), jnp.array([[1, 0, 1, 0]])))
        [1.5]

    Source: thesis, equations 6.24 and 6.25.
    """
    scores, targets = scores_and_targets(logits, targets, where)
    present = (targets == 1).astype(scores.dtype)
    projection = _entmax.compute_sparse_top(scores.values, present.sum(axis=-1))
    # The loss of a projection q and targets t is sum_j (q_j - t_j) (s_j - c - (q_j + t_j) / 2) for
    # any c. Squared scores lose all digits at 1e4; no term is negative if c is the threshold of q.
    below_one = jnp.where(projection < 1, scores.values - projection, FLOOR)
    threshold = jax.lax.stop_gradient(below_one.max(axis=-1, keepdims=True))
    terms = scores.values - threshold - (projection + present) / 2
    return scores.losses(((projection - present) * terms).sum(axis=-1))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _loss(
    class_axis_name: Hashable | None, scores: jax.Array, alpha: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The loss, [...], and the probabilities, [..., L], which its derivatives need.

    With c such that s - c is the deformed logarithm of p, the loss is c - s_y - (1 - sum p^alpha) /
    alpha. This form cancels if the true class is likely; then the loss is the sum of p^alpha /
    alpha over the other classes and of `_doubt` of the true class, which are nonnegative.
    """
    given = Scores(scores, scores, labels, class_axis_name)
    solution = _entmax.solve(scores, alpha, class_axis_name)
    bases, slopes = solution.bases(scores, alpha)
    total, norm = solution.total[..., 0], solution.norm(alpha)[..., 0]
    bases_of_others = jnp.where(given.is_label, 0, bases)
    ratios_of_others = bases_of_others * slopes
    others = given.sum(ratios_of_others) / total
    powers_of_others = given.sum(bases_of_others * ratios_of_others) / (total * norm)
    score = given.of_label(scores)[..., None]
    base, slope = (number[..., 0] for number in solution.bases(score, alpha))
    of_label = base * slope / total
    highest = solution.probabilities(solution.top, alpha)
    unlikely = (solution.top - score - _entmax.deformed_log(highest, alpha))[..., 0] - (
        1 - powers_of_others - of_label * base / norm
    ) / alpha
    likely = powers_of_others / alpha + _doubt(jnp.minimum(others, 0.5), alpha)
    return jnp.where(of_label >= 0.5, likely, unlikely), bases * slopes / solution.total


def _loss_jvp(
    class_axis_name: Hashable | None,
    primals: tuple[jax.Array, jax.Array, jax.Array],
    tangents: tuple[Any, ...],
) -> Any:
    scores, alpha, labels = primals
    of_scores, of_alpha, _ = tangents
    given = Scores(scores, scores, labels, class_axis_name)
    value, probabilities = _loss(class_axis_name, scores, alpha, labels)
    tangent = jnp.zeros_like(value)
    if not isinstance(of_scores, SymbolicZero):
        tangent += given.sum((probabilities - given.is_label.astype(scores.dtype)) * of_scores)
    if not isinstance(of_alpha, SymbolicZero):
        # Of sum_l (p_l - p_l^alpha) / (alpha (alpha - 1)) at fixed p.
        logs = _entmax.deformed_log(probabilities, alpha)
        slopes = _entmax.deformation_slope(probabilities, alpha)
        tangent += given.sum(probabilities * (logs / alpha - slopes)) / alpha * of_alpha
    of_probabilities = _entmax.tangent(probabilities, alpha, of_scores, of_alpha, class_axis_name)
    return (value, probabilities), (tangent, of_probabilities)


_loss.defjvp(_loss_jvp, symbolic_zeros=True)


def _doubt(others: jax.Array, alpha: jax.Array) -> jax.Array:
    """The true class's part of the loss if the others have the probability e <= 1/2, [...].

    (1 - (1 - e)^(alpha - 1) (1 + (alpha - 1) e)) / (alpha (alpha - 1)) loses the digits of a small
    e, and is undefined at alpha = 1. So it is the integral of x (1 - x)^(alpha - 2) from 0 to e.
    """
    shape = (*others.shape, len(_NODES))
    nodes = jnp.broadcast_to(jnp.asarray(_NODES, others.dtype), shape)
    weights = jnp.broadcast_to(jnp.asarray(_WEIGHTS * _NODES, others.dtype), shape)
    powers = jnp.exp((alpha - 2) * jnp.log1p(-others[..., None] * nodes))
    return others**2 * (weights * powers).sum(axis=-1)


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
