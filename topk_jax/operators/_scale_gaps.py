"""A map of scores that keeps their order: the gaps between neighbours are scaled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax._entries import take_along
from topk_jax.operators._top_k import move_classes_last

__all__ = ["scale_gaps"]


def scale_gaps(scores: ArrayLike, weights: ArrayLike, *, axis: int = -1) -> jax.Array:
    r"""The scores with the gap below each rank multiplied by a weight of the rank.

    .. math::
        s'_{[1]} = s_{[1]}, \qquad
        s'_{[j + 1]} = s'_{[j]} - w_j \bigl(s_{[j]} - s_{[j + 1]}\bigr)

    With positive weights the order of the classes stays, and so does every top-K answer. The
    confidence changes by rank, and with it the sets of a threshold that examples share. Equal
    weights are the inverse of a temperature. Weights that are trained with `size_over_errors` make
    the adapter of C-Adapter; see [Losses of sets](../sets_losses.md).

    Args:
        scores: floating-point array with L entries along `axis`.
        weights: w, `[L - 1]`, finite and at least 0. May be traced, and has a gradient.
        axis: the axis of the classes.

    Returns:
        An array of the scores' shape, in float32 or float64. NaN along `axis` where a score is NaN
        or +inf. A score of -inf stays -inf.

    Raises:
        TypeError: `scores` is not floating-point, `weights` is not real, or `axis` is not a static
            integer.
        ValueError: `weights` has another shape or a negative or infinite entry, or `scores` has no
            such axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import operators
        >>> print(operators.scale_gaps(jnp.array([1.0, 4.0, 2.0]), jnp.array([0.5, 2.0])))
        [1. 4. 3.]

    See Also:
        `temperature`, `relaxed_ranks`.

    Source: Rahimi et al. (2020), "Intra order-preserving functions for calibration of multi-class
    neural networks"; Liu et al. (2024), "C-Adapter: adapting deep classifiers for efficient
    conformal prediction sets".
    """
    last = move_classes_last(scores, axis)
    size = last.shape[-1]
    factors = _checks.finite_vector(weights, "weights", size - 1, last.dtype)
    factors = _checks.within(weights, factors, "weights", (0.0, float("inf")))
    finite = _numerics.finite_scores(last)
    order = jnp.argsort(-jax.lax.stop_gradient(finite), axis=-1, stable=True)
    descending = take_along(finite, order)
    # Beside a masked class the gap is about 1e30, which no weight may make infinite.
    gaps = jnp.where(
        descending[..., 1:] > _numerics.FLOOR, descending[..., :-1] - descending[..., 1:], 0
    )
    falls = jnp.cumsum(gaps * jnp.broadcast_to(factors, gaps.shape), axis=-1)
    falls = jnp.pad(falls, [(0, 0)] * (falls.ndim - 1) + [(1, 0)])
    ranks = jnp.argsort(order, axis=-1)
    fall = take_along(falls, ranks)
    scaled = jnp.where(finite <= _numerics.FLOOR, last, descending[..., :1] - fall)
    # No gap is above the largest score.
    scaled = _numerics.nan_unless(~jnp.isnan(factors).any(), scaled)
    return jnp.moveaxis(_numerics.nan_where_invalid_vectors(scaled, last), -1, axis)
