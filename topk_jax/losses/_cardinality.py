"""The choice of a set size for each example: its costs, and the loss of a network that chooses."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks
from topk_jax._example import (
    FLOOR,
    Scores,
    floating_array,
    nan_unless,
    scalar,
    zero_elsewhere,
    zero_left_out,
)

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
        selector_logits: floating-point scores of the set sizes (r above), `[..., M]`. A size with
            -inf is never chosen, and its cost does not matter.
        costs: the costs of the set sizes, numbers in [0, 1], `[..., M]`; see `cardinality_costs`.
        where: see `topk_jax.losses`.

    Returns:
        One loss per example, `[...]`; NaN where a cost is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> selector_logits = jnp.array([[1.0, 0.0], [1.0, 0.0]])
        >>> costs = jnp.array([[0.0, 0.25], [1.0, 0.25]])
        >>> print(losses.cardinality_aware(selector_logits, costs).round(4))
        [1.2982 0.9849]

    Source: Cortes et al. (2024), "Cardinality-aware set prediction and top-k classification", the
    cost-sensitive comp-sum loss of logistic type.
    """
    scores = floating_array(selector_logits, "selector_logits")
    costs = _checks.real_array(costs, "costs", scores.shape, scores.dtype)
    scores, costs = zero_elsewhere(where, scores, costs)
    finite = jnp.maximum(scores, FLOOR)
    weights = jnp.where(finite > FLOOR, 1 - costs, 0)
    surprises = -jax.nn.log_softmax(finite, axis=-1)
    is_valid = ((scores < jnp.inf) & (costs >= 0) & (costs <= 1)).all(axis=-1)
    values = nan_unless(is_valid, (weights * surprises).sum(axis=-1))
    return zero_left_out(values, where)


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
        logits, labels: see `topk_jax.losses`.
        sizes: the set sizes k, a sequence of M static integers from 1 to L.
        weight: scalar weight of the size (lambda above), at least 0: the increase of the error rate
            that costs as much as a set e times as large.

    Returns:
        One cost per example and size, `[..., M]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.0, 1.0, 0.0]])
        >>> costs = losses.cardinality_costs(logits, jnp.array([1]), sizes=(1, 2, 4), weight=0.05)
        >>> print(costs.round(4))
        [[0.9352 0.0324 0.0648]]

    Source: Cortes et al. (2024), "Cardinality-aware set prediction and top-k classification", the
    cardinality-aware loss with costs log k.
    """
    scores = Scores.of(logits, labels)
    sizes = _checks.set_sizes(sizes, "sizes", scores.num_classes)
    weight = scalar(weight, "weight", scores.dtype, at_least=0)
    above = scores.given > scores.of_label(scores.given)[..., None]
    shape = (*scores.labels.shape, len(sizes))
    is_missed = above.sum(axis=-1, keepdims=True) >= jnp.broadcast_to(jnp.asarray(sizes), shape)
    logs = jnp.asarray(np.log(sizes), scores.dtype)
    penalties = weight * jnp.broadcast_to(logs, shape)
    costs = (is_missed.astype(scores.dtype) + penalties) / (1 + weight * float(np.log(max(sizes))))
    return jax.lax.stop_gradient(nan_unless(scores.is_valid[..., None], costs))
