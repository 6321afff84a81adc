"""The soft top-k by sigmoids of the distances from the middle between two order statistics."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax.operators._top_k import move_classes_last, select_kth

__all__ = ["sigmoid_top_k"]

REASON_BETWEEN = "the number of classes without one"


def sigmoid_top_k(scores: ArrayLike, k: int, *, tau: ArrayLike, axis: int = -1) -> jax.Array:
    r"""Soft memberships in the k largest scores, without a constraint on their sum.

    .. math::
        p_i = \mathrm{sigmoid}\Bigl(\frac{s_i - \theta}{\tau}\Bigr), \qquad
        \theta = \frac{s_{[k]} + s_{[k+1]}}2

    As tau goes to 0 the memberships tend to the indicator of the k largest scores; as tau grows
    they tend to 1/2, so that they sum to L / 2 and not to k. The gradient includes the gradient of
    the threshold: half of it goes to the k-th largest score and half to the next. Among equal
    scores the one with the lower index ranks first.

    Args:
        scores: floating-point array with L entries along `axis`.
        k: static size of the set, from 1 to L - 1.
        tau: positive scalar temperature, in the units of the scores. May be traced.
        axis: the axis of the classes.

    Returns:
        An array of the scores' shape, in float32 or float64. NaN along `axis` where a score is NaN
        or +inf. A score of -inf gets 0. If fewer than k scores are above -inf, these get 1, and the
        others 1/2.

    Raises:
        TypeError: `scores` is not floating-point, `k` or `axis` is not a static integer, or `tau`
            is not real.
        ValueError: `k` is outside [1, L - 1], `tau` is not a positive scalar, or `scores` has no
            such axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import operators
        >>> scores = jnp.array([2.0, 0.5, -0.5, -2.0])
        >>> memberships = operators.sigmoid_top_k(scores, 2, tau=0.5)
        >>> print(*(f"{membership:.3f}" for membership in memberships))
        0.982 0.731 0.269 0.018

    See Also:
        `lapsum_top_k`, `sinkhorn_top_k`, `p_norm_top_k`.

    Source: Zhu et al. (2025), "Differentiable fast top-k selection for large-scale recommendation"
    (DFTopK).
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1] - 1, reason=REASON_BETWEEN)
    tau = _checks.scalar(tau, "tau", last.dtype, above=0)
    memberships = jax.nn.sigmoid(distances_from_middle(last, k, tau))
    return jnp.moveaxis(memberships, -1, axis)


def distances_from_middle(scores: jax.Array, k: int, tau: jax.Array) -> jax.Array:
    """The distances (s - theta) / tau of scores [..., L] from the threshold; NaN beside a NaN.

    Hazard: at 1e4 the middle of two neighbouring floats is rounded to one of them. Choice: the mean
    of the differences to both. Cost: one more subtraction.

    Hazard: some selections rank -0 below 0, though both are equal. The classes before the k-th
    would then be more than k. Choice: no -0. Cost: none.
    """
    finite = _numerics.nan_where_invalid_vectors(_numerics.finite_scores(scores), scores)
    finite = _numerics.with_slope_of(jnp.where(finite == 0, 0, finite), finite)
    kth, index = select_kth(finite, k)
    classes = jax.lax.broadcasted_iota(index.dtype, finite.shape, finite.ndim - 1)
    before = (finite > kth) | ((finite == kth) & (classes <= index))
    # The floor of masked classes is above -inf, so that these can be next too.
    following, _ = select_kth(jnp.where(before, -jnp.inf, finite), 1)
    return ((finite - kth) + (finite - following)) / (2 * tau)
