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

from topk_jax import _checks, _class_axis, _classes, _numerics
from topk_jax._example import FLOOR, Scores, scalar, zero_left_out
from topk_jax.operators import _entmax

__all__ = ["entmax_loss", "sparse_top_loss", "sparsemax_loss"]

# Gauss-Legendre on [0, 1]. The integrand of `_doubt` has its singularity at 2 or beyond, so each
# node adds one and a half digits. Twelve nodes are enough for float64.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2


@_class_axis.allow_split()
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

    At alpha = 2 this is `sparsemax_loss`. For alpha above 1 the loss is zero if the true class
    scores at least :math:`1 / (\alpha - 1)` above all other classes.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.
        alpha: scalar from 1 to 2; with larger values fewer classes have a gradient.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[2.0, 1.0, 0.5, -1.0], [2.0, 1.0, 0.5, -1.0]])
        >>> print(losses.entmax_loss(logits, jnp.array([0, 3]), alpha=1.5).round(4))
        [0.0642 3.0642]

    Source: Peters, Niculae and Martins (2019), "Sparse sequence-to-sequence models";
    Blondel, Martins and Niculae (2020), "Learning with Fenchel-Young losses".
    """
    scores = Scores.of(logits, labels, where, class_axis_name)
    alpha = scalar(alpha, "alpha", scores.dtype, at_least=1, at_most=2)
    return scores.losses(_loss(class_axis_name, scores.values, alpha, scores.labels)[0])


@_class_axis.allow_split()
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

    where lambda solves :math:`\sum_j (s_j - \lambda)_+ = 1`, and S are the classes with scores
    above lambda. This is also `sparse_top_loss` with the true class as the only target.

    Args:
        logits, labels, where, class_axis_name: see `topk_jax.losses`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[1.0, 0.5, -1.0], [1.0, 0.5, -1.0]])
        >>> print(losses.sparsemax_loss(logits, jnp.array([0, 2])))
        [0.0625 2.0625]

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
    is the threshold of the projection. Without targets, or with all classes as targets, the loss
    and its gradient are zero.

    Args:
        logits, where: see `topk_jax.losses`.
        targets: 1 for each class that is present and 0 for the others, booleans or numbers,
            `[..., L]`.

    Returns:
        One loss per example, `[...]`; NaN where a traced target is neither 0 nor 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.0, 0.5, 0.0], [3.0, 2.0, 0.5, 0.0]])
        >>> targets = jnp.array([[1, 1, 0, 0], [1, 0, 1, 0]])
        >>> print(losses.sparse_top_loss(logits, targets))
        [0.  1.5]

    Source: Garcin (2023), thesis, equations 6.24 and 6.25.
    """
    scores, targets = _checks.logits_and_targets(logits, targets, where=where)
    scores = _numerics.finite_scores(scores)
    present = targets == 1
    projection = _entmax.compute_sparse_top(scores, present.sum(axis=-1))
    loss = _projection_loss(scores, present.astype(scores.dtype), projection)
    losses = _numerics.nan_where_invalid_targets(loss, scores, targets)
    return zero_left_out(losses, where)


def _projection_loss(scores: jax.Array, targets: jax.Array, projection: jax.Array) -> jax.Array:
    """The loss of targets t and projection q, which have the same sum, [...].

    It is sum_j (q_j - t_j) (s_j - c - (q_j + t_j) / 2) for any constant c. Squared scores lose all
    digits at 1e4; with the threshold of the projection for c, all terms are nonnegative.
    """
    below_one = jnp.where(projection < 1, scores - projection, FLOOR)
    threshold = jax.lax.stop_gradient(below_one.max(axis=-1, keepdims=True))
    terms = (projection - targets) * (scores - threshold - (projection + targets) / 2)
    return terms.sum(axis=-1)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _loss(
    class_axis_name: Hashable | None, scores: jax.Array, alpha: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The loss, [...], and the probabilities, [..., L], which its derivatives need.

    With c such that s - c is the deformed logarithm of p, the loss is c - s_y - (1 - sum p^alpha) /
    alpha. This form cancels if the true class is likely; then the loss is the sum of p^alpha /
    alpha over the other classes and of `_doubt` of the true class, which are nonnegative.
    """
    solution = _entmax.solve(scores, alpha, class_axis_name)
    bases, slopes = solution.bases(scores, alpha)
    total, norm = solution.total[..., 0], solution.norm(alpha)[..., 0]
    is_label = _numerics.is_label(scores, labels, class_axis_name)
    bases_of_others = jnp.where(is_label, 0, bases)
    ratios_of_others = bases_of_others * slopes
    others = _classes.sum_classes(ratios_of_others, class_axis_name) / total
    powers_of_others = _classes.sum_classes(bases_of_others * ratios_of_others, class_axis_name)
    powers_of_others = powers_of_others / (total * norm)
    score = _numerics.score_of_label(scores, labels, class_axis_name)[..., None]
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
    value, probabilities = _loss(class_axis_name, scores, alpha, labels)
    tangent = jnp.zeros_like(value)
    if not isinstance(of_scores, SymbolicZero):
        target = _numerics.is_label(scores, labels, class_axis_name).astype(scores.dtype)
        terms = (probabilities - target) * of_scores
        tangent = tangent + _classes.sum_classes(terms, class_axis_name)
    if not isinstance(of_alpha, SymbolicZero):
        tangent = tangent + _slope_in_alpha(probabilities, alpha, class_axis_name) * of_alpha
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


def _slope_in_alpha(
    probabilities: jax.Array, alpha: jax.Array, class_axis_name: Hashable | None
) -> jax.Array:
    """The derivative of sum_l (p_l - p_l^alpha) / (alpha (alpha - 1)) at fixed p, [...]."""
    logs = _entmax.deformed_log(probabilities, alpha)
    slopes = _entmax.deformation_slope(probabilities, alpha)
    return _classes.sum_classes(probabilities * (logs / alpha - slopes), class_axis_name) / alpha
