"""The sparse top-k: the projection of scores onto the convex hull of the sets of k classes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _ordinals, _search
from topk_jax._compilation import compiled
from topk_jax.operators._top_k import move_classes_last

__all__ = ["sparse_top"]


def sparse_top(scores: ArrayLike, k: ArrayLike, *, axis: int = -1) -> jax.Array:
    r"""The projection of the scores onto the vectors with entries in [0, 1] that sum to k.

    .. math::
        \arg\min_q \Bigl\{ \|q - s\|^2 : 0 \le q \le 1, \; \sum_l q_l = k \Bigr\}
        = \min(1, \max(0, s - \lambda)), \qquad
        \frac{\partial q}{\partial s} = \mathrm{diag}(m) - \frac{m m^\top}{|m|}

    Here lambda is the number for which the sum is k, and m indicates the coordinates of q strictly
    between 0 and 1. Without such coordinates the Jacobian is zero. With k = 1 this is the
    sparsemax.

    If the k-th score is at least 1 above the next one, the result is exactly 0 and 1. In float32,
    each coordinate is right to :math:`2^{-21}`, also for 100,000 classes and ties.

    Args:
        scores: floating-point array with L entries along `axis`.
        k: the sum. Either an integer from 1 to L, or one integer per example from 0 to L, in an
            array with the scores' shape without `axis`. An array may be traced.
        axis: the axis of the classes.

    Returns:
        An array of the scores' shape, in float32 or float64. NaN along `axis` where a score is NaN
        or +inf, or a traced k is outside [0, L]. A score of -inf gets 0. If fewer than k scores are
        above -inf, these get 1 each, and the others share the rest equally.

    Raises:
        TypeError: `scores` is not floating-point, `k` is not integer, or `axis` is not a static
            integer.
        ValueError: `k` is outside its range or has the wrong shape, or `scores` has no such axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import operators
        >>> print(operators.sparse_top(jnp.array([2.0, 0.5, 0.5, -1.0]), 2))
        [1.  0.5 0.5 0. ]

    See Also:
        `entmax`, `lapsum_top_k`.

    Source: Garcin (2023), thesis, equations 6.13 to 6.15 and 6.21; for k = 1, Martins and
    Astudillo (2016), "From softmax to sparsemax".
    """
    last = move_classes_last(scores, axis)
    sums = _checks.ranks(k, last.shape[-1], last.shape[:-1])
    return jnp.moveaxis(compute_sparse_top(last, sums), -1, axis)


def compute_sparse_top(scores: jax.Array, sums: jax.Array) -> jax.Array:
    """`sparse_top` of checked scores [..., L] and sums [...]."""
    in_range = ((sums >= 0) & (sums <= scores.shape[-1]))[..., None]
    marked = jnp.where(in_range, scores, jnp.nan)
    finite = _numerics.nan_where_invalid_vectors(_numerics.finite_scores(scores), marked)
    return _project(finite, sums[..., None].astype(scores.dtype))


@jax.custom_jvp
def _project(scores: jax.Array, k: jax.Array) -> jax.Array:
    """The projection of scores [..., L] for sums k [..., 1] of the scores' dtype.

    Hazard: near a threshold of 1e4 float32 has steps of 1e-3, and 1e5 tied classes multiply the
    error by 1e5. Cumulative sums of sorted scores lose as much. Choice: bisection finds the next
    float above lambda. Newton's method on sum q = k then finds the difference between lambda and
    that float, at full precision. Cost: one pass over the scores for each bit, less than a sort.
    """
    above = _float_above_threshold(scores, k)
    # No score is strictly between lambda and the next float above it. So only coordinates that
    # reach 1 can change the slope; these are few and within rounding. The first step is exact, or
    # two more steps correct it.
    shifted = scores - above
    offset = jnp.zeros_like(k)
    for _ in range(3):
        projection = jnp.clip(shifted - offset, 0, 1)
        moving = (shifted >= offset) & (projection < 1)
        offset -= _missing(projection, k) / jnp.maximum(
            moving.sum(axis=-1, keepdims=True), 1
        ).astype(k.dtype)
    projection = jnp.clip(shifted - offset, 0, 1)
    # If the k-th score is at least 1 above the next, q is exactly 0 or 1. A rounded value would
    # make the Jacobian nonzero.
    chosen = projection > 0.5
    lowest_chosen = jnp.where(chosen, scores, jnp.inf).min(axis=-1, keepdims=True)
    highest_other = jnp.where(chosen, -jnp.inf, scores).max(axis=-1, keepdims=True)
    num_chosen = chosen.sum(axis=-1, keepdims=True).astype(k.dtype)
    separated = (num_chosen == k) & (lowest_chosen - highest_other >= 1)
    return jnp.where(separated, chosen.astype(k.dtype), projection)


@_project.defjvp
def _project_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    projection = _project(*primals)
    moving = ((projection > 0) & (projection < 1)).astype(projection.dtype)
    # XLA rewrites a product with converted booleans as a selection, which would lose a NaN tangent.
    moving = jnp.where(jnp.isnan(projection), projection, moving)
    num_moving = jnp.maximum(moving.sum(axis=-1, keepdims=True), 1)
    tangent = moving * tangents[0]
    mean = tangent.sum(axis=-1, keepdims=True) / num_moving
    return projection, tangent - moving * mean


@compiled
def _float_above_threshold(scores: jax.Array, k: jax.Array) -> jax.Array:
    """The smallest float t with sum clip(scores - t, 0, 1) < k, or the largest score: [..., 1].

    A search among the ordinals of the floats takes the same number of passes for any range of the
    scores.
    """
    highest = _ordinals.to_ordinals(scores.max(axis=-1, keepdims=True))
    minus_infinity = jnp.array(-jnp.inf, scores.dtype)
    lowest = jnp.full_like(highest, _ordinals.to_ordinals(minus_infinity))

    def is_not_above(ordinals: jax.Array) -> jax.Array:
        threshold = _ordinals.to_floats(ordinals, scores.dtype)
        return ~(_missing(jnp.clip(scores - threshold, 0, 1), k) > 0)

    not_above = _search.last_where(is_not_above, lowest, highest)
    one = highest.dtype.type(1)
    return _ordinals.to_floats(jnp.minimum(not_above + one, highest), scores.dtype)


def _missing(projection: jax.Array, k: jax.Array) -> jax.Array:
    """The gap k - sum q, [..., 1]. Ones are counted separately to keep the digits of the rest."""
    is_one = projection == 1
    num_ones = is_one.sum(axis=-1, keepdims=True).astype(k.dtype)
    return k - num_ones - jnp.where(is_one, 0, projection).sum(axis=-1, keepdims=True)
