"""The cross-entropy of relaxed top-K sets for several K at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics
from topk_jax._entries import take_entries
from topk_jax.operators._relaxed_ranks import check_relaxation, log_mixture_over_ranks
from topk_jax.operators._top_k import select_largest

__all__ = ["relaxed_top_k_cross_entropy"]


@_class_axis.refuse_split
def relaxed_top_k_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    top_k_weights: ArrayLike,
    method: str,
    tau: ArrayLike,
    swap: str = "cauchy",
    art_lambda: ArrayLike = 0.0,
    num_candidates: int | None = None,
    softmax_top_1: bool = True,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The cross-entropy of the relaxed probability that the label is in a top-K set of random K.

    .. math::
        \ell(s, y) = -\log \sum_k w_k \, q_k, \qquad
        q_1 = \mathrm{softmax}_y(s), \qquad q_k = \sum_{j \le k} P_{j,y}

    P are the `relaxed_ranks` and w the distribution of K. Without `softmax_top_1`, q_1 is
    :math:`P_{1,y}`. With w = [1] the loss is the cross-entropy.

    The loss is computed from logarithms, so that it does not saturate if all q_k underflow. With
    the methods "soft_sort" and "neural_sort", q_k can exceed 1, and the loss can be a little less
    than 0.

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        top_k_weights: w, nonnegative numbers with a sum of 1, the first for K = 1 and the last for
            the largest K: `[K]` with K from 1 to L. Its length is static; its values may be traced.
        method: "soft_sort", "neural_sort", "bitonic" or "odd_even": see `relaxed_ranks`. Networks
            depend on the order of the classes, except with `num_candidates`.
        tau: positive scalar temperature, in the units of the logits (to the power of
            1 - `art_lambda`). May be traced.
        swap: how networks swap: "logistic", "cauchy" or "optimal". Other methods do not use it.
        art_lambda: scalar lambda of the activation replacement trick, at least 0 and less than 1,
            for networks: 0 is without. May be traced.
        num_candidates: static number of classes, from K to L, that take part: the label and the
            classes with the largest other logits, in this order. Others get no gradient. None is
            for all classes, in their own order. The networks need a small number: the paper has 16
            and 50.
        softmax_top_1: static; whether the part of K = 1 is a softmax (of the candidates), which
            makes training more stable.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, `top_k_weights`, `tau`
            or `art_lambda` is not real, or another argument is not static.
        ValueError: the shapes do not match, `top_k_weights` is not a distribution of at most L
            sizes, `method` or `swap` is unknown, `tau` is not a positive scalar, `art_lambda` is
            not a scalar in [0, 1), or `num_candidates` is outside [K, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[1.0, 2.0, 0.0, 1.5]]), jnp.array([3])
        >>> options = {"method": "odd_even", "tau": 0.1, "num_candidates": 3}
        >>> for weights in ([1.0], [0.0, 1.0], [0.5, 0.5]):
        ...     loss = losses.relaxed_top_k_cross_entropy(
        ...         logits, labels, top_k_weights=weights, **options
        ...     )
        ...     print(f"{loss[0]:.4f}")
        1.1803
        0.0628
        0.4729

    See Also:
        `relaxed_ranks`, `cross_entropy`.

    Source: Petersen et al. (2022), "Differentiable top-k classification learning"; the package
    difftopk, whose `top1_mode` is "sm" by default and "sort" without `softmax_top_1`, and which
    adds 1e-7 to the probability, so that its loss is at most 16.1.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    num_classes = scores.shape[-1]
    weights = _checks.weights_of_sizes(top_k_weights, "top_k_weights", num_classes, scores.dtype)
    relaxation = check_relaxation(method, tau, swap, art_lambda, scores.dtype)
    if num_candidates is not None:
        _checks.static_integer(
            num_candidates,
            "num_candidates",
            minimum=len(weights),
            maximum=num_classes,
            reason="the number of classes",
        )
    softmax_top_1 = _checks.static_boolean(softmax_top_1, "softmax_top_1")
    finite = _numerics.finite_scores(scores)
    if num_candidates is None:
        candidates, positions = finite, jnp.clip(labels, 0, num_classes - 1)
    else:
        candidates = _candidates(finite, labels, num_candidates)
        positions = jnp.zeros_like(labels)
    first = weights[:1]
    others = weights.at[0].set(0) if softmax_top_1 else weights
    # The weight of rank j is the weight of all sets with at least j classes.
    rank_weights = jax.lax.cumsum(others, reverse=True)
    log_probability = log_mixture_over_ranks(candidates, positions, rank_weights, relaxation)
    if softmax_top_1:
        log_softmax = jax.nn.log_softmax(candidates, axis=-1)
        log_first = jnp.where(first > 0, jnp.log(jnp.where(first > 0, first, 1)), _numerics.FLOOR)
        log_top_1 = log_first[0] + _numerics.score_of_label(log_softmax, positions)
        log_probability = jnp.logaddexp(log_top_1, log_probability)
    # Logarithms and maxima of the weights may lose the NaN of traced weights outside their range.
    losses = _numerics.nan_unless(~jnp.isnan(weights).any(), -log_probability)
    losses = _numerics.nan_with_slopes_where_invalid(losses, scores, labels)
    return _numerics.zero_left_out(losses, where)


def _candidates(scores: jax.Array, labels: jax.Array, count: int) -> jax.Array:
    """The score of the label, and the largest others in descending order: `[..., count]`."""
    true = _numerics.score_of_label(scores, labels)[..., None]
    if count == 1:
        return true
    others = _numerics.without_label(jax.lax.stop_gradient(scores), labels)
    _, indices = select_largest(others, count - 1)
    rivals = take_entries(scores, indices)
    return jnp.concatenate([true, rivals], axis=-1)
