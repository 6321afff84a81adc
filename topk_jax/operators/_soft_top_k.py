"""Soft memberships in the k largest scores with a sum of k: LapSum, and Sinkhorn for comparison.

Both solve sum F(z - u) = k for one threshold u, where z are the distances from the
k-th largest score in steps of a scale, and F is the CDF of a symmetric distribution.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes
from topk_jax._compilation import compiled
from topk_jax.operators._top_k import move_classes_last, select_kth

__all__ = ["lapsum_top_k", "sinkhorn_top_k"]


def lapsum_top_k(scores: ArrayLike, k: ArrayLike, *, alpha: ArrayLike, axis: int = -1) -> jax.Array:
    r"""Soft memberships in the k largest scores, which sum to k.

    .. math::
        p_i = F\Bigl(\frac{s_i - b}{\alpha}\Bigr), \qquad \sum_i p_i = k, \qquad
        F(x) = \begin{cases} \frac12 e^x & x \le 0 \\ 1 - \frac12 e^{-x} & x > 0 \end{cases}

    F is the CDF of the Laplace distribution. As alpha goes to 0 the memberships tend to the
    indicator of the k largest scores, and as alpha grows they tend to k / L. With k = L they are 1,
    without a gradient.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: the sum: an integer from 1 to L, or a real scalar greater than 0 and at most L, which may
            be traced and has a gradient. A static integer is faster: it needs no sort.
        alpha: positive scalar scale, in the units of the scores.

    Returns:
        An array of the scores' shape. A score of -inf gets 0. If fewer than k scores are above
        -inf, these get 1 each, and the others share the rest equally.

    Example:
        >>> scores = jnp.array([2.0, 0.0, 0.0, -2.0])
        >>> memberships = lapsum_top_k(scores, 2, alpha=1.0)
        >>> print(*(f"{membership:.3f}" for membership in memberships))
        0.932 0.500 0.500 0.068

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


def sinkhorn_top_k(scores: ArrayLike, k: int, *, epsilon: ArrayLike, axis: int = -1) -> jax.Array:
    r"""Soft memberships in the k largest scores by entropic optimal transport, which sum to k.

    .. math::
        \min_{\Gamma \ge 0} \; \sum_{ij} (s_i - j)^2 \, \Gamma_{ij}
        + \epsilon \sum_{ij} \Gamma_{ij} \log \Gamma_{ij}, \qquad
        \sum_j \Gamma_{ij} = \frac1L, \quad \sum_i \Gamma_{i1} = \frac kL, \quad j \in \{0, 1\}

    The memberships :math:`p_i = L \, \Gamma_{i1} = \mathrm{sigmoid}(2 (s_i - b) / \epsilon)` are
    the solution that Sinkhorn's iterations converge to. The authors' code divides the costs by the
    largest one in the batch; this function does not.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: the sum, a static integer from 1 to L.
        epsilon: positive scalar, the weight of the entropy relative to squared scores.

    Returns:
        As `lapsum_top_k`.

    Example:
        >>> scores = jnp.array([2.0, 0.0, 0.0, -2.0])
        >>> memberships = sinkhorn_top_k(scores, 2, epsilon=2.0)
        >>> print(*(f"{membership:.3f}" for membership in memberships))
        0.881 0.500 0.500 0.119

    Source: Xie et al. (2020), "Differentiable top-k with optimal transport" (SOFT).
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    epsilon = _checks.scalar(epsilon, "epsilon", last.dtype, above=0)
    finite = _classes.nan_where_invalid_scores(_classes.finite_scores(last), last)
    distances, _ = from_kth_largest(finite, k, epsilon / 2)
    threshold = logistic_threshold(distances, jnp.asarray(k, last.dtype))
    return jnp.moveaxis(jax.nn.sigmoid(distances - threshold), -1, axis)


def distances_from_threshold(scores: jax.Array, k: int | jax.Array, alpha: jax.Array) -> jax.Array:
    """LapSum's (s - b) / alpha of scores [..., L]; NaN beside a NaN."""
    finite = _classes.nan_where_invalid_scores(_classes.finite_scores(scores), scores)
    rank = k if isinstance(k, int) else None
    return _laplace_distances(finite, alpha, jnp.asarray(k, scores.dtype), rank)[0]


@jax.custom_jvp
@compiled
def logistic_threshold(distances: jax.Array, k: jax.Array) -> jax.Array:
    """The u with sum sigmoid(z - u) = k for distances z from the k-th largest, [..., 1]."""
    return _find_threshold(
        distances, k, lambda distance: jax.nn.sigmoid(-distance), lambda tail: tail * (1 - tail)
    )


@logistic_threshold.defjvp
def _logistic_threshold_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Returns du = (sum f dz - dk) / sum f, with the slopes f.

    All slopes may round to 0. So they are relative to about the largest one, and an infinite slope
    in k is finite.
    """
    distances, _ = primals
    threshold = logistic_threshold(*primals)
    magnitudes = jnp.abs(distances - threshold)
    nearest = magnitudes.min(axis=-1, keepdims=True)
    relative = jnp.exp(nearest - magnitudes)
    slopes = relative / jnp.square(1 + relative * jnp.exp(-nearest))
    total = slopes.sum(axis=-1, keepdims=True)
    moved = (slopes / total * tangents[0]).sum(axis=-1, keepdims=True)
    largest = float(jnp.finfo(distances.dtype).max) / distances.shape[-1]
    return threshold, moved - jnp.minimum(jnp.exp(nearest) / total, largest) * tangents[1]


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
@compiled
def _laplace_distances(
    scores: jax.Array, alpha: jax.Array, k: jax.Array, rank: int | None
) -> tuple[jax.Array, jax.Array]:
    """The distances r = (s - b) / alpha and the weights q, which are proportional to e^-|r|.

    Once the classes above the threshold are known, let x be e^-|r| of the nearest class above it, y
    of the nearest below, and E and E' the sums of e^-|r| relative to x and y. Then the excess is
    (x E - y E') / 2, and x y follows from their gap: a quadratic equation. Its roots, and the odds
    of the weights above the threshold, are logarithms, because x and y may underflow.
    """
    distances, _ = from_kth_largest(scores, k if rank is None else rank, alpha)
    threshold = _find_threshold(distances, k, lambda distance: jnp.exp(-distance) / 2)
    is_above = distances >= threshold
    excess = is_above.sum(axis=-1, keepdims=True, dtype=jnp.int32).astype(scores.dtype) - k
    nearest_above, nearest_below = _nearest(distances, is_above)
    gap = nearest_above - nearest_below
    beyond = jnp.where(is_above, distances - nearest_above, nearest_below - distances)
    relative = jnp.exp(-beyond)
    tiny = jnp.finfo(scores.dtype).tiny
    above = jnp.maximum(jnp.where(is_above, relative, 0).sum(axis=-1, keepdims=True) / 2, tiny)
    below = jnp.maximum(jnp.where(is_above, 0, relative).sum(axis=-1, keepdims=True) / 2, tiny)
    log_above, log_below = jnp.log(above), jnp.log(below)
    log_larger = _log_larger_root(jnp.abs(excess), above * below * jnp.exp(-gap))
    # The logarithms for the nearest class above and for the nearest class below.
    log_x = _root(excess, log_above, log_below - gap, log_larger)
    log_y = _root(-excess, log_below, log_above - gap, log_larger)
    odds = jnp.sign(excess) * (2 * log_larger - log_above - log_below + gap)
    share = jnp.where(
        is_above, jax.nn.sigmoid(odds) / (2 * above), jax.nn.sigmoid(-odds) / (2 * below)
    )
    return jnp.where(is_above, beyond - log_x, log_y - beyond), share * relative


@_laplace_distances.defjvp
def _laplace_distances_jvp(
    rank: int | None,
    primals: tuple[jax.Array, jax.Array, jax.Array],
    tangents: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """The sum of the memberships stays k: the mean of dr with weights q is dk over the sum of f."""
    scores, alpha, k = primals
    distances, weights = _laplace_distances(scores, alpha, k, rank)
    direct = (tangents[0] - distances * tangents[1]) / alpha
    tangent = direct - (weights * direct).sum(axis=-1, keepdims=True)
    if rank is None:
        # Not `abs`, whose derivative at 0 is 0. The sum underflows if the scores are far apart.
        densities = jnp.exp(jnp.where(distances > 0, -distances, distances)) / 2
        total = densities.sum(axis=-1, keepdims=True)
        tangent = tangent + tangents[2] / jnp.maximum(total, jnp.finfo(scores.dtype).tiny)
    outwards = jnp.where(distances > 0, tangent, -tangent)
    mean = (weights * outwards).sum(axis=-1, keepdims=True)
    return (distances, weights), (tangent, weights * (mean - outwards))


def from_kth_largest(
    scores: jax.Array, k: int | jax.Array, scale: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The distances of the scores [..., L] from the k-th largest, in steps of the scale, and this.

    The k-th largest, [..., 1], is a constant: a threshold of the distances moves with it.

    A real k is rounded up. The threshold is within log L of it, or in the gap below it, so that the
    digits that count are kept: scores of 1e4 over a scale of 1e-6 are 1e10.
    """
    if isinstance(k, int):
        kth = jax.lax.stop_gradient(select_kth(scores, k)[0])
    else:
        place = scores.shape[-1] - jnp.ceil(k).astype(jnp.int32)
        ascending = jnp.sort(jax.lax.stop_gradient(scores), axis=-1)
        kth = jax.lax.dynamic_slice_in_dim(ascending, place, 1, axis=-1)
    distances = (scores - kth) / scale
    return jnp.clip(distances, _classes.FLOOR, -_classes.FLOOR), kth


def _find_threshold(
    distances: jax.Array,
    k: int | jax.Array,
    tail: Callable[[jax.Array], jax.Array],
    density: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """The threshold u with sum F(z - u) = k for distances z from the k-th largest score, [..., 1].

    Let m be the number of distances above u minus k, a the sum of 1 - F over these, and b the sum
    of F over the others. When u grows by d, a grows at most by e^d, b shrinks at most by e^-d, and
    so does the slope. So neither the root of m - a e^d + b e^-d nor log(1 + error / slope) is
    beyond the threshold, and the longer of these two steps is taken: Newton's method would diverge
    at a plateau. 2.1 log L + 10 steps are enough.

    `tail` takes magnitudes of z - u and returns 1 - F there. `density` takes tails and returns f
    there, with |f'| <= f; it is None for an exponential tail, where a step that passes no distance
    is exact.
    """
    limits = jnp.finfo(distances.dtype)
    max_steps = 10 + int(2.1 * math.log(distances.shape[-1]))

    def is_searching(state: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        _, is_found, num_steps = state
        return ~is_found.all() & (num_steps < max_steps)

    def step(
        state: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        threshold, _, num_steps = state
        is_above = distances >= threshold
        tails = tail(jnp.abs(distances - threshold))
        above = jnp.where(is_above, tails, 0).sum(axis=-1, keepdims=True)
        below = jnp.where(is_above, 0, tails).sum(axis=-1, keepdims=True)
        num_above = is_above.sum(axis=-1, keepdims=True, dtype=jnp.int32)
        excess = num_above.astype(distances.dtype) - k
        positive = jnp.maximum(above, limits.tiny), jnp.maximum(below, limits.tiny)
        log_larger = _log_larger_root(jnp.abs(excess), positive[0] * positive[1])
        change = _root(excess, jnp.log(positive[0]), jnp.log(positive[1]), log_larger)
        if density is None:
            nearest_above, nearest_below = _nearest(distances, is_above)
            moved = threshold + change
            is_exact = (moved <= nearest_above) & (moved >= nearest_below)
            # The sum changes by the square of the step times the slope.
            is_found = is_exact | ~(jnp.abs(change) > 0.3 * limits.eps**0.5)
            return moved, is_found, num_steps + 1
        slope = density(tails).sum(axis=-1, keepdims=True)
        error = excess - above + below
        newton = jnp.sign(error) * jnp.log1p(jnp.abs(error) / jnp.maximum(slope, limits.tiny))
        change = jnp.where(jnp.abs(newton) > jnp.abs(change), newton, change)
        # The step after this one would be about its square.
        resolution = jnp.maximum((limits.eps / 8) ** 0.5, 2 * limits.eps * jnp.abs(threshold))
        return threshold + change, ~(jnp.abs(change) > resolution), num_steps + 1

    start = jnp.zeros_like(distances[..., :1])
    return jax.lax.while_loop(is_searching, step, (start, start > 0, jnp.int32(0)))[0]


def _nearest(distances: jax.Array, is_above: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The smallest distance of those above and the largest of the others, [..., 1] both, finite."""
    above = jnp.where(is_above, distances, -_classes.FLOOR).min(axis=-1, keepdims=True)
    below = jnp.where(is_above, _classes.FLOOR, distances).max(axis=-1, keepdims=True)
    return above, below


def _root(
    excess: jax.Array, log_above: jax.Array, log_below: jax.Array, log_larger: jax.Array
) -> jax.Array:
    """The root d of m - a e^d + b e^-d, for positive a and b; the form for the sign of m."""
    if_positive = jnp.where(excess > 0, log_larger - log_above, log_below - log_larger)
    return jnp.where(excess == 0, (log_below - log_above) / 2, if_positive)


def _log_larger_root(excess: jax.Array, product: jax.Array) -> jax.Array:
    """The logarithm of the larger root x of x^2 - m x - c, finite for m = c = 0."""
    larger = (excess + jnp.sqrt(excess * excess + 4 * product)) / 2
    return jnp.log(jnp.maximum(larger, jnp.finfo(larger.dtype).tiny))
