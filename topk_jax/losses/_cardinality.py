"""The choice of a set size for each example: its costs, and the loss of a network that chooses."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics

__all__ = ["cardinality_aware", "cardinality_costs"]


def cardinality_aware(
    selector_logits: ArrayLike, costs: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""The cost-sensitive logistic loss of a network that chooses one of M set sizes.

    .. math::
        \ell(r, c) = \sum_j (1 - c_j) \log \sum_i e^{r_i - r_j}

    With unlimited data the choice of the minimizer, the size with the largest r, has the smallest
    expected cost.

    Args:
        selector_logits: floating-point scores of the set sizes (r above), `[..., M]`.
        costs: the costs of the set sizes, numbers in [0, 1], `[..., M]`; see `cardinality_costs`.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and costs are.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or a
        cost is outside [0, 1]. A set size with a logit of -inf is never chosen, and its cost does
        not matter.

    Raises:
        TypeError: `selector_logits` is not floating-point, or `costs` is not real.
        ValueError: the shapes do not match.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> selector_logits = jnp.array([[1.0, 0.0], [1.0, 0.0]])
        >>> costs = jnp.array([[0.0, 0.25], [1.0, 0.25]])
        >>> print(losses.cardinality_aware(selector_logits, costs).round(4))
        [1.2982 0.9849]

    See Also:
        `cardinality_costs`.

    Source: Cortes et al. (2024), "Cardinality-aware set prediction and top-k classification", the
    cost-sensitive comp-sum loss of logistic type.
    """
    scores = _checks.floating_array(selector_logits, "selector_logits")
    costs = _checks.real_array(costs, "costs", scores.shape, scores.dtype)
    scores, costs = _checks.zero_elsewhere(where, scores, costs)
    finite = _numerics.finite_scores(scores)
    weights = jnp.where(finite > _numerics.FLOOR, 1 - costs, 0)
    gaps = finite - finite.max(axis=-1, keepdims=True)
    surprises = jnp.log(jnp.exp(gaps).sum(axis=-1, keepdims=True)) - gaps
    values = (weights * surprises).sum(axis=-1)
    in_range = ((costs >= 0) & (costs <= 1)).all(axis=-1, keepdims=True)
    values = _numerics.nan_where_invalid_scores(values, jnp.where(in_range, scores, jnp.nan))
    return _numerics.zero_left_out(values, where)


@_class_axis.refuse_split
def cardinality_costs(
    logits: ArrayLike, labels: ArrayLike, *, sizes: Sequence[int], weight: ArrayLike
) -> jax.Array:
    r"""The cost of each of M set sizes: a missed label, and the logarithm of the size.

    .. math::
        c_j = \frac{\mathbf 1[y \notin \mathrm{top}_{k_j}(s)] + \lambda \log k_j}
        {1 + \lambda \log \max_i k_i}

    The denominator keeps the costs in [0, 1]. A label that ties with other classes is in the set,
    as for `top_k_error`. The costs have no gradient.

    Args:
        logits: floating-point scores of the classifier, `[..., L]`.
        labels: integer classes, `[...]`.
        sizes: the set sizes k, a sequence of M static integers from 1 to L.
        weight: scalar weight of the size (lambda above), at least 0: the increase of the error rate
            that costs as much as a set e times as large. May be traced.

    Returns:
        One cost per example and size, `[..., M]`, in float32 or float64; NaN where a logit is NaN
        or +inf, or the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` or an entry of `sizes` is not integer,
            or `weight` is not real.
        ValueError: the shapes do not match, `sizes` is empty or has an entry outside [1, L], or
            `weight` is negative or not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.0, 1.0, 0.0]])
        >>> costs = losses.cardinality_costs(logits, jnp.array([1]), sizes=(1, 2, 4), weight=0.05)
        >>> print(costs.round(4))
        [[0.9352 0.0324 0.0648]]

    See Also:
        `cardinality_aware`, `top_k_hits`.

    Source: Cortes et al. (2024), "Cardinality-aware set prediction and top-k classification", the
    cardinality-aware loss with costs log k.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    sizes = _checks.set_sizes(sizes, "sizes", scores.shape[-1])
    weight = _checks.scalar(weight, "weight", scores.dtype, at_least=0)
    label_scores = _numerics.score_of_label(scores, labels)[..., None]
    num_above = (scores > label_scores).sum(axis=-1, keepdims=True)
    shape = (*labels.shape, len(sizes))
    is_missed = num_above >= jnp.broadcast_to(jnp.asarray(sizes), shape)
    penalties = weight * jnp.broadcast_to(jnp.asarray(np.log(sizes), scores.dtype), shape)
    largest = 1 + weight * float(np.log(max(sizes)))
    costs = (is_missed.astype(scores.dtype) + penalties) / largest
    is_valid = _numerics.valid_examples(scores, labels)[..., None]
    costs = _numerics.nan_where_invalid_vectors(costs, jnp.where(is_valid, scores, jnp.nan))
    return jax.lax.stop_gradient(costs)
