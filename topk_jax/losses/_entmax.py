"""Fenchel-Young losses with sparse gradients: of entmax, and of the sparse top-k."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from topk_jax import _sharding
from topk_jax._checks import scalar
from topk_jax._classes import FLOOR
from topk_jax._example import Scores, scores_and_targets
from topk_jax.operators import _entmax

__all__ = ["entmax_loss", "sparse_top_loss", "sparsemax_loss"]

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


@_sharding.allow_split()
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
