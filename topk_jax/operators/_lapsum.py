"""The soft top-k by a sum of Laplace distributions."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax._compilation import compiled
from topk_jax.operators import _memberships
from topk_jax.operators._top_k import move_classes_last

__all__ = ["lapsum_top_k"]


def lapsum_top_k(scores: ArrayLike, k: ArrayLike, *, alpha: ArrayLike, axis: int = -1) -> jax.Array:
    r"""Soft memberships in the k largest scores, which sum to k.

    .. math::
        p_i = F\Bigl(\frac{s_i - b}{\alpha}\Bigr), \qquad \sum_i p_i = k, \qquad
        F(x) = \begin{cases} \frac12 e^x & x \le 0 \\ 1 - \frac12 e^{-x} & x > 0 \end{cases}

    F is the CDF of the Laplace distribution. As alpha goes to 0 the memberships tend to the
    indicator of the k largest scores, and as alpha grows they tend to k / L. They grow with the
    scores, and a number added to all scores changes nothing.

    With the densities :math:`f_i = \min(p_i, 1 - p_i)` and :math:`q = f / \sum_j f_j` the
    derivatives are

    .. math::
        \frac{\partial p_i}{\partial s_j} = \frac{f_i}{\alpha} (\delta_{ij} - q_j), \qquad
        \frac{\partial p_i}{\partial \alpha}
        = -\frac{f_i}{\alpha^2} \Bigl(s_i - \sum_j q_j s_j\Bigr), \qquad
        \frac{\partial p_i}{\partial k} = q_i

    In float32, for alpha from 1e-6 to 1e6, the memberships are right to :math:`2^{-21}`, also with
    ties, clusters and scores of 1e4; at 10,000 classes to :math:`2^{-20}`. With k = L they are 1,
    without a gradient.

    Args:
        scores: floating-point array with L entries along `axis`.
        k: the sum: an integer from 1 to L, or a real scalar greater than 0 and at most L, which may
            be traced and has a gradient. A static integer is faster: the search for the threshold
            starts from a selection, and from a sort otherwise.
        alpha: positive scalar scale, in the units of the scores. May be traced.
        axis: the axis of the classes.

    Returns:
        An array of the scores' shape, in float32 or float64. NaN along `axis` where a score is NaN
        or +inf. A score of -inf gets 0. If fewer than k scores are above -inf, these get 1 each,
        and the others share the rest equally.

    Raises:
        TypeError: `scores` is not floating-point, `axis` is not a static integer, or `k` or `alpha`
            is not real.
        ValueError: `k` is outside its range, `alpha` is not a positive scalar, or `scores` has no
            such axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import operators
        >>> scores = jnp.array([2.0, 0.0, 0.0, -2.0])
        >>> memberships = operators.lapsum_top_k(scores, 2, alpha=1.0)
        >>> print(*(f"{membership:.3f}" for membership in memberships))
        0.932 0.500 0.500 0.068
        >>> memberships = operators.lapsum_top_k(scores, 2.5, alpha=1.0)
        >>> print(*(f"{membership:.3f}" for membership in memberships))
        0.961 0.711 0.711 0.117

    See Also:
        `sigmoid_top_k`, `sinkhorn_top_k`, `p_norm_top_k`.

    Source: Struski, Bednarczyk, Podolak and Tabor (2025), "LapSum: one method to differentiate them
    all: ranking, sorting and top-k selection".
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank_or_sum(k, last.shape[-1], last.dtype)
    alpha = _checks.scalar(alpha, "alpha", last.dtype, above=0)
    distances = distances_from_threshold(last, k, alpha)
    # Not `abs`, whose derivative at 0 is 0.
    tails = jnp.exp(jnp.where(distances > 0, -distances, distances)) / 2
    return jnp.moveaxis(jnp.where(distances > 0, 1 - tails, tails), -1, axis)


def distances_from_threshold(scores: jax.Array, k: int | jax.Array, alpha: jax.Array) -> jax.Array:
    """The distances (s - b) / alpha of scores [..., L] from the threshold; NaN beside a NaN."""
    finite = _numerics.nan_where_invalid_vectors(_numerics.finite_scores(scores), scores)
    rank = k if isinstance(k, int) else None
    return _distances_and_weights(finite, alpha, jnp.asarray(k, scores.dtype), rank)[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
@compiled
def _distances_and_weights(
    scores: jax.Array, alpha: jax.Array, k: jax.Array, rank: int | None
) -> tuple[jax.Array, jax.Array]:
    """The distances r = (s - b) / alpha and the weights q, which are proportional to e^-|r|.

    Identity: once the classes above the threshold are known, let x be e^-|r| of the nearest class
    above it, y be e^-|r| of the nearest class below, and E and E' the sums of e^-|r| relative to x
    and y. Then m = (x E - y E') / 2, and x y follows from the gap between the two: a quadratic
    equation. Hazard: if the scores are far apart, x and y underflow, and so do all weights. Choice:
    logarithms of x and y, and the share of the weights above the threshold, whose odds follow from
    the equation. Cost: two passes after the search.
    """
    distances = _memberships.from_kth_largest(scores, k if rank is None else rank, alpha)
    threshold = _memberships.find_threshold(distances, k, lambda distance: jnp.exp(-distance) / 2)
    is_above = distances >= threshold
    excess = is_above.sum(axis=-1, keepdims=True, dtype=jnp.int32).astype(scores.dtype) - k
    nearest_above, nearest_below = _memberships.nearest(distances, is_above)
    gap = nearest_above - nearest_below
    beyond = jnp.where(is_above, distances - nearest_above, nearest_below - distances)
    relative = jnp.exp(-beyond)
    tiny = jnp.finfo(scores.dtype).tiny
    above = jnp.maximum(jnp.where(is_above, relative, 0).sum(axis=-1, keepdims=True) / 2, tiny)
    below = jnp.maximum(jnp.where(is_above, 0, relative).sum(axis=-1, keepdims=True) / 2, tiny)
    log_above, log_below = jnp.log(above), jnp.log(below)
    log_larger = _memberships.log_larger_root(jnp.abs(excess), above * below * jnp.exp(-gap))
    # The logarithms for the nearest class above and for the nearest class below.
    log_x = jnp.where(
        excess == 0,
        (log_below - log_above - gap) / 2,
        jnp.where(excess > 0, log_larger - log_above, log_below - gap - log_larger),
    )
    log_y = jnp.where(
        excess == 0,
        (log_above - log_below - gap) / 2,
        jnp.where(excess > 0, log_above - gap - log_larger, log_larger - log_below),
    )
    odds = jnp.sign(excess) * (2 * log_larger - log_above - log_below + gap)
    share = jnp.where(
        is_above, jax.nn.sigmoid(odds) / (2 * above), jax.nn.sigmoid(-odds) / (2 * below)
    )
    return jnp.where(is_above, beyond - log_x, log_y - beyond), share * relative


@_distances_and_weights.defjvp
def _distances_and_weights_jvp(
    rank: int | None,
    primals: tuple[jax.Array, jax.Array, jax.Array],
    tangents: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """The sum of the memberships stays k: the mean of dr with weights q is dk over the sum of f.

    Hazard: for an integer k and scores that are far apart, the sum of f underflows. Choice: at
    least the smallest number, so that the memberships do not change, as they do not with the
    scores. Cost: nothing for a static k, whose slope is not used.
    """
    scores, alpha, k = primals
    distances, weights = _distances_and_weights(scores, alpha, k, rank)
    direct = (tangents[0] - distances * tangents[1]) / alpha
    tangent = direct - (weights * direct).sum(axis=-1, keepdims=True)
    if rank is None:
        # Not `abs`, whose derivative at 0 is 0.
        densities = jnp.exp(jnp.where(distances > 0, -distances, distances)) / 2
        total = densities.sum(axis=-1, keepdims=True)
        tangent = tangent + tangents[2] / jnp.maximum(total, jnp.finfo(scores.dtype).tiny)
    outwards = jnp.where(distances > 0, tangent, -tangent)
    mean = (weights * outwards).sum(axis=-1, keepdims=True)
    return (distances, weights), (tangent, weights * (mean - outwards))
