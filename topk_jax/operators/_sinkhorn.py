"""The soft top-k by entropic optimal transport."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax._compilation import compiled
from topk_jax.operators import _memberships
from topk_jax.operators._top_k import move_classes_last

__all__ = ["sinkhorn_top_k"]


def sinkhorn_top_k(scores: ArrayLike, k: int, *, epsilon: ArrayLike, axis: int = -1) -> jax.Array:
    r"""Soft memberships in the k largest scores by entropic optimal transport, which sum to k.

    Superseded by `lapsum_top_k`, which has the same properties, a closed form of the threshold
    between two scores, and takes less time. This function exists for comparisons.

    .. math::
        \min_{\Gamma \ge 0} \; \sum_{ij} (s_i - j)^2 \, \Gamma_{ij}
        + \epsilon \sum_{ij} \Gamma_{ij} \log \Gamma_{ij}, \qquad
        \sum_j \Gamma_{ij} = \frac1L, \quad \sum_i \Gamma_{i1} = \frac kL, \quad j \in \{0, 1\}

    The memberships are :math:`p_i = L \, \Gamma_{i1}`. The costs of the two columns differ by
    :math:`2 s_i - 1`, so that

    .. math::
        p_i = \mathrm{sigmoid}\Bigl(\frac{2 (s_i - b)}\epsilon\Bigr), \qquad \sum_i p_i = k,
        \qquad \frac{\partial p_i}{\partial s_j} = \frac2\epsilon f_i (\delta_{ij} - q_j)

    with :math:`f_i = p_i (1 - p_i)` and :math:`q = f / \sum_j f_j`. Sinkhorn's iterations converge
    to this solution; here Newton's method finds b to rounding, and the gradient is the gradient of
    the solution. The authors' code divides the costs by the largest one in the batch, which makes
    examples depend on each other; this function does not.

    The bounds in float32 are the same as for `lapsum_top_k`.

    Args:
        scores: floating-point array with L entries along `axis`.
        k: the sum, a static integer from 1 to L.
        epsilon: positive scalar, the weight of the entropy relative to squared scores. May be
            traced.
        axis: the axis of the classes.

    Returns:
        An array of the scores' shape, in float32 or float64. NaN along `axis` where a score is NaN
        or +inf. A score of -inf gets 0. If fewer than k scores are above -inf, these get 1 each,
        and the others share the rest equally.

    Raises:
        TypeError: `scores` is not floating-point, `k` or `axis` is not a static integer, or
            `epsilon` is not real.
        ValueError: `k` is outside [1, L], `epsilon` is not a positive scalar, or `scores` has no
            such axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import operators
        >>> scores = jnp.array([2.0, 0.0, 0.0, -2.0])
        >>> memberships = operators.sinkhorn_top_k(scores, 2, epsilon=2.0)
        >>> print(*(f"{membership:.3f}" for membership in memberships))
        0.881 0.500 0.500 0.119

    See Also:
        `lapsum_top_k`, `sigmoid_top_k`, `p_norm_top_k`.

    Source: Xie et al. (2020), "Differentiable top-k with optimal transport" (SOFT).
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    epsilon = _checks.scalar(epsilon, "epsilon", last.dtype, above=0)
    finite = _numerics.nan_where_invalid_vectors(_numerics.finite_scores(last), last)
    memberships = jax.nn.sigmoid(_distances(finite, epsilon / 2, k))
    return jnp.moveaxis(memberships, -1, axis)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
@compiled
def _distances(scores: jax.Array, scale: jax.Array, k: int) -> jax.Array:
    """The distances (s - b) / scale of scores [..., L] from the threshold."""
    distances = _memberships.from_kth_largest(scores, k, scale)
    return distances - _memberships.find_threshold(
        distances, k, lambda distance: jax.nn.sigmoid(-distance), lambda tail: tail * (1 - tail)
    )


@_distances.defjvp
def _distances_jvp(
    k: int, primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """The sum of the memberships stays k, so the mean of dr with their slopes as weights is 0."""
    scores, scale = primals
    distances = _distances(scores, scale, k)
    slopes = jax.nn.sigmoid(distances) * jax.nn.sigmoid(-distances)
    # All slopes are 0 if the scores are far apart.
    total = jnp.maximum(slopes.sum(axis=-1, keepdims=True), jnp.finfo(slopes.dtype).tiny)
    direct = (tangents[0] - distances * tangents[1]) / scale
    mean = (slopes / total * direct).sum(axis=-1, keepdims=True)
    return distances, direct - mean
