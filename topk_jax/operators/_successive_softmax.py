"""The soft top-k by k softmaxes in succession, each without the share that was chosen before."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax._compilation import compiled
from topk_jax.operators._top_k import move_classes_last

__all__ = ["successive_softmax_top_k"]


def successive_softmax_top_k(
    scores: ArrayLike, k: int, *, tau: ArrayLike, axis: int = -1
) -> jax.Array:
    r"""Soft memberships in the k largest scores: the sum of k successive softmaxes.

    .. math::
        p^{(j)} = \mathrm{softmax}\bigl(a^{(j)} / \tau\bigr), \qquad
        a^{(1)} = s, \qquad a^{(j + 1)} = a^{(j)} + \log(1 - p^{(j)}), \qquad
        m = \sum_{j=1}^k p^{(j)}

    The memberships add up to k. A single one can exceed 1 if tau is large enough that a class
    which was chosen almost surely still has a share afterwards. As tau goes to 0, they tend to the
    indicator of the k largest scores. Time and memory grow with k L.

    Args:
        scores: floating-point array with L entries along `axis`.
        k: static size of the set, from 1 to L.
        tau: positive scalar temperature, in the units of the scores. May be traced.
        axis: the axis of the classes.

    Returns:
        An array of the scores' shape, in float32 or float64. NaN along `axis` where a score is NaN
        or +inf. A score of -inf gets 0 if at least k others are above -inf.

    Raises:
        TypeError: `scores` is not floating-point, `k` or `axis` is not a static integer, or `tau`
            is not real.
        ValueError: `k` is outside [1, L], `tau` is not a positive scalar, or `scores` has no such
            axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import operators
        >>> scores = jnp.array([2.0, 0.5, -0.5, -2.0])
        >>> memberships = operators.successive_softmax_top_k(scores, 2, tau=0.5)
        >>> print(*(f"{membership:.3f}" for membership in memberships))
        0.999 0.868 0.127 0.006

    See Also:
        `lapsum_top_k`, `sigmoid_top_k`, `sinkhorn_top_k`.

    Source: Plötz and Roth (2018), "Neural nearest neighbors networks"; Xie and Ermon (2019),
    "Reparameterizable subset sampling via continuous relaxations"; Garcin (2023), thesis, section
    4.2.
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    tau = _checks.scalar(tau, "tau", last.dtype, above=0)
    memberships = jnp.exp(log_successive_softmax(last, k, tau).of_rounds).sum(axis=0)
    return jnp.moveaxis(_numerics.nan_where_invalid_vectors(memberships, last), -1, axis)


class Rounds(NamedTuple):
    """The logarithms of the shares of each round, and of what is left before it, [k, ..., L]."""

    of_rounds: jax.Array
    left_before: jax.Array


@compiled
def log_successive_softmax(scores: jax.Array, k: int, tau: jax.Array) -> Rounds:
    """The k rounds for scores [..., L].

    Identity: 1 - p is the share of all other classes. Hazard: if p rounds to 1, log(1 - p) is
    infinite, and all later rounds are NaN; this is the instability that the thesis names. Choice:
    for the largest share, the log-sum-exp of the other classes minus the log-sum-exp of all; other
    shares are at most 1/2. Cost: two log-sum-exps a round.

    Hazard: with a small tau, log(1 - p) / tau is infinite, and the derivative in tau NaN. Choice: a
    bound on what is divided. Cost: a comparison.
    """

    def advance(logits: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        first = logits.argmax(axis=-1)
        largest = _numerics.is_label(logits, first)
        others = jax.nn.logsumexp(
            jnp.where(largest, _numerics.FLOOR, logits), axis=-1, keepdims=True
        )
        log_shares = jax.nn.log_softmax(logits, axis=-1)
        # Not the maximum, whose derivative several equal logits share.
        top = _numerics.score_of_label(logits, first)[..., None]
        of_largest = -jax.nn.softplus(top - others)
        small = jnp.where(largest, _numerics.FLOOR, log_shares)
        log_left = jnp.where(largest, of_largest, jnp.log1p(-jnp.exp(small)))
        is_far = log_left < _numerics.FLOOR * jax.lax.stop_gradient(tau)
        fall = jnp.where(is_far, _numerics.FLOOR, jnp.where(is_far, 0, log_left) / tau)
        return jnp.maximum(logits + fall, _numerics.FLOOR), (log_shares, log_left)

    finite = _numerics.finite_scores(scores)
    shifted = finite - jax.lax.stop_gradient(finite.max(axis=-1, keepdims=True))
    start = jnp.maximum(shifted / tau, _numerics.FLOOR)
    _, (of_rounds, left) = jax.lax.scan(advance, start, length=k)
    return Rounds(of_rounds, jnp.cumsum(left, axis=0) - left)
