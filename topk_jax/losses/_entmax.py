"""The losses of the entmax family, from cross-entropy to the sparsemax loss."""

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
from topk_jax.operators import _entmax

__all__ = ["entmax_loss", "sparsemax_loss"]

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
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        alpha: scalar from 1 to 2; with larger values fewer classes have a gradient. May be traced.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `alpha` is not real.
        ValueError: the shapes do not match, or `alpha` is not a scalar in [1, 2].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[2.0, 1.0, 0.5, -1.0], [2.0, 1.0, 0.5, -1.0]])
        >>> print(losses.entmax_loss(logits, jnp.array([0, 3]), alpha=1.5).round(4))
        [0.0642 3.0642]

    See Also:
        `sparsemax_loss`, `entmax`.

    Source: Peters, Niculae and Martins (2019), "Sparse sequence-to-sequence models";
    Blondel, Martins and Niculae (2020), "Learning with Fenchel-Young losses".
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    alpha = _checks.scalar(alpha, "alpha", scores.dtype, at_least=1, at_most=2)
    losses = _compute_entmax_loss(scores, labels, alpha, class_axis_name)
    return _numerics.zero_left_out(losses, where)


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
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point or `labels` is not integer.
        ValueError: the shapes do not match.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[1.0, 0.5, -1.0], [1.0, 0.5, -1.0]])
        >>> print(losses.sparsemax_loss(logits, jnp.array([0, 2])))
        [0.0625 2.0625]

    See Also:
        `entmax_loss`, `sparse_top_loss`.

    Source: Martins and Astudillo (2016), "From softmax to sparsemax"; thesis, equation 6.12.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    alpha = jnp.asarray(2, scores.dtype)
    losses = _compute_entmax_loss(scores, labels, alpha, class_axis_name)
    return _numerics.zero_left_out(losses, where)


def _compute_entmax_loss(
    scores: jax.Array, labels: jax.Array, alpha: jax.Array, class_axis_name: Hashable | None
) -> jax.Array:
    loss, _ = _loss(class_axis_name, _numerics.finite_scores(scores), alpha, labels)
    return _numerics.nan_where_invalid(loss, scores, labels, class_axis_name)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _loss(
    class_axis_name: Hashable | None, scores: jax.Array, alpha: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The loss, [...], and the probabilities, [..., L], which its derivatives need.

    Identity: with c such that s - c is the deformed logarithm of p, the loss is c - s_y - (1 - sum
    p^alpha) / alpha. It is also the sum of p^alpha / alpha over the other classes and of `_doubt`
    of the true class. Hazard: the first form cancels if the true class is almost certain, and both
    divide by alpha - 1. Choice: the second form, whose terms are all nonnegative, if the true class
    has at least half of the probability. Cost: two sums over the classes.
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

    Identity: (1 - (1 - e)^(alpha - 1) (1 + (alpha - 1) e)) / (alpha (alpha - 1)) is the integral
    of x (1 - x)^(alpha - 2) from 0 to e. Hazard: the closed form loses the digits of a small e, and
    is undefined at alpha = 1. Choice: quadrature, whose terms are positive. Cost: twelve powers per
    example.
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
