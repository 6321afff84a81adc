"""Losses in a taxonomy: a mistake within the genus of the label costs less than others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _sharding
from topk_jax import taxonomy as _tree
from topk_jax._checks import known_values, numbers, scalar
from topk_jax._classes import FLOOR, nan_unless, take_along
from topk_jax._example import Scores
from topk_jax.taxonomy import Taxonomy

__all__ = [
    "hierarchical_cross_entropy",
    "soft_label_cross_entropy",
    "soft_labels",
    "sum_over_depths",
]


def hierarchical_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    taxonomy: Taxonomy,
    *,
    alpha: ArrayLike,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The sum of the cross-entropies of the choice of a child at each node above the label.

    .. math:: \ell(s, y) = -\sum_{i = 1}^{d} e^{-\alpha h(v_i)} \log \frac{P(v_i)}{P(v_{i - 1})}

    with the nodes :math:`v_0, \dots, v_d` from the root to the label, their heights h (0 of the
    label, see `set_heights`) and their probabilities P, sums of the softmax.

    Args:
        logits, labels, where: see `topk_jax.losses`.
        taxonomy: a tree whose leaves are the L classes.
        alpha: scalar, how fast weights fall with the height, at least 0; 0 gives `cross_entropy`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> paths = [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")]
        >>> tree, logits = Taxonomy.from_paths(paths), jnp.array([[1.0, 2.0, 0.0]])
        >>> print(hierarchical_cross_entropy(logits, jnp.array([1]), tree, alpha=0.5).round(2))
        [0.37]

    Source: Bertinetto et al. (2020), "Making better mistakes", section 3.1.
    """
    scores = Scores.of(logits, labels, where)
    _tree.check_classes(scores.values.shape, "logits", taxonomy)
    alpha = scalar(alpha, "alpha", scores.dtype, at_least=0)
    losses = _sharding.map_examples(
        partial(_hierarchical, taxonomy),
        scores.labels.ndim,
        scores.gaps(),
        scores.labels,
        shared=(alpha,),
    )
    return scores.losses(losses)


def soft_labels(labels: ArrayLike, taxonomy: Taxonomy, *, beta: ArrayLike) -> jax.Array:
    r"""Labels that are spread over the classes by their distances in a taxonomy.

    .. math:: t_l = \frac{e^{-\beta d(l, y)}}{\sum_j e^{-\beta d(j, y)}}

    The distance d is the height of the lowest node that has both classes (see `mistake_heights`),
    divided by the height of the root.

    Args:
        labels: see `topk_jax.losses`.
        taxonomy: a tree whose leaves are the L classes.
        beta: real scalar, how fast the label falls with the distance, at least 0.

    Returns:
        The part of each class, `[..., L]`, in the default floating-point type, for
        `expect_over_labels`; NaN where the label is outside [0, L).

    Example:
        >>> paths = [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")]
        >>> print(soft_labels(jnp.array([0]), Taxonomy.from_paths(paths), beta=4.0).round(2))
        [[0.87 0.12 0.02]]

    Source: Bertinetto et al. (2020), section 3.2.
    """
    _tree.check(taxonomy)
    labels = _checks.integer_array(labels, "labels")
    beta = scalar(beta, "beta", jnp.result_type(float), at_least=0)
    found = _sharding.map_examples(
        partial(_soft_labels, taxonomy), labels.ndim, labels, shared=(beta,)
    )
    in_range = (labels >= 0) & (labels < taxonomy.num_classes)
    return nan_unless(in_range[..., None], found)


def soft_label_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    taxonomy: Taxonomy,
    *,
    beta: ArrayLike,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The cross-entropy with `soft_labels`: a mistake costs less if it is near in the taxonomy.

    .. math:: \ell(s, y) = -\sum_l t_l \log \mathrm{softmax}_l(s)

    Args:
        logits, labels, where: see `topk_jax.losses`. The part of a masked class goes to the label.
        taxonomy, beta: see `soft_labels`.

    Returns:
        One loss per example, `[...]`.

    Example:
        >>> paths = [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")]
        >>> tree, logits = Taxonomy.from_paths(paths), jnp.array([[1.0, 2.0, 0.0]])
        >>> print(soft_label_cross_entropy(logits, jnp.array([1]), tree, beta=4.0).round(2))
        [0.56]

    Source: Bertinetto et al. (2020), section 3.2.
    """
    scores = Scores.of(logits, labels, where)
    _tree.check_classes(scores.values.shape, "logits", taxonomy)
    gaps = scores.gaps()
    targets = soft_labels(scores.labels, taxonomy, beta=beta).astype(scores.dtype)
    # The loss is CE(s, y) + sum_l t_l (s_y - s_l), without masked classes l.
    spread = scores.sum(jnp.where(scores.values > FLOOR, targets * gaps, 0))
    return scores.losses(jax.nn.softplus(scores.rival(gaps)) - spread)


def sum_over_depths(
    logits: ArrayLike,
    labels: ArrayLike,
    taxonomy: Taxonomy,
    *,
    loss: Callable[[jax.Array, jax.Array], jax.Array],
    weights: ArrayLike,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Any loss of single examples at every depth of a taxonomy, with a weight for each.

    .. math::
        \ell(s, y) = \sum_{d = 1}^{D} w_d \, \ell_d(s^{(d)}, a_d(y)),
        \qquad s^{(d)}_v = \log \sum_{l \text{ below } v} e^{s_l}

    A class that hangs higher is a node of its own. A depth whose weight is 0 is not computed.

    Args:
        logits, labels, where: see `topk_jax.losses`.
        taxonomy: a tree whose leaves are the L classes, with the depth D.
        loss: a function of the logits `[..., G]` and labels `[...]` of G nodes to one loss per
            example, `[...]`, as `functools.partial(losses.top_k_hinge, k=5)`.
        weights: real, at least 0, `[D]`: from the nodes right below the root to the classes.

    Returns:
        One loss per example, `[...]`; NaN where the loss of a depth is NaN.

    Example:
        >>> paths = [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")]
        >>> tree, logits = Taxonomy.from_paths(paths), jnp.array([[1.0, 2.0, 0.0]])
        >>> options = {"loss": lambda scores, _: scores.max(axis=-1), "weights": [1, 1]}
        >>> print(sum_over_depths(logits, jnp.array([1]), tree, **options).round(2))
        [4.31]

    Source: here; the sum over ranks is common practice.
    """
    scores = Scores.of(logits, labels, where)
    _tree.check_classes(scores.values.shape, "logits", taxonomy)
    factors = numbers(weights, "weights", scores.dtype, ((taxonomy.depth,),), at_least=0)
    known = known_values(weights)
    total = jnp.zeros(scores.labels.shape, scores.dtype)
    for depth in range(1, taxonomy.depth + 1):
        if known is not None and known[depth - 1] == 0:
            continue
        groups, number = _tree.groups_at(taxonomy, depth)
        of_nodes = scores.given
        # Nodes of one class each may have another order than the classes.
        if not np.array_equal(groups, np.arange(taxonomy.num_classes)):
            log_sums = partial(_log_sums, taxonomy, depth)
            of_nodes = _sharding.map_examples(log_sums, scores.labels.ndim, of_nodes)
        label = _tree.group_of_label(groups, number, scores.labels)
        total += factors[depth - 1] * loss(of_nodes, label)
    return scores.counted(total)


def _hierarchical(
    taxonomy: Taxonomy, gaps: jax.Array, labels: jax.Array, alpha: jax.Array
) -> jax.Array:
    """`hierarchical_cross_entropy`, from the scores minus that of the label, `[..., L]`."""
    shared = _tree.shared_depths(taxonomy, labels)
    heights = _tree.heights_of_ways(taxonomy, labels)

    def log_sum(is_member: jax.Array) -> jax.Array:
        # A finite score: the logarithm of an empty sum has a NaN gradient.
        return jax.nn.logsumexp(jnp.where(is_member, gaps, FLOOR), axis=-1)

    losses = jnp.zeros(labels.shape, gaps.dtype)
    for depth in range(1, taxonomy.depth + 1):
        # The classes that share the way down to the node v, and those that leave it right above:
        # -log(P(v) / P(above)) is the softplus of their difference, with all digits.
        own, others = log_sum(shared > depth), log_sum(shared == depth)
        weights = jnp.exp(-alpha * heights[..., depth].astype(gaps.dtype))
        losses += weights * jax.nn.softplus(others - own)
    return losses


def _soft_labels(taxonomy: Taxonomy, labels: jax.Array, beta: jax.Array) -> jax.Array:
    shared = _tree.shared_depths(taxonomy, labels)
    heights = _tree.heights_of_ways(taxonomy, labels).astype(beta.dtype)
    # If there is only one class, the root is as high as this class.
    heights = heights / max(1, int(taxonomy.heights[-1]))
    distances = take_along(heights, shared - 1, mode="fill")
    return jax.nn.softmax(-beta * distances, axis=-1)


def _log_sums(taxonomy: Taxonomy, depth: int, scores: jax.Array) -> jax.Array:
    """The log-sum-exps of the classes of nodes, `[..., G]`; -inf for a node of masked classes."""
    groups, number = _tree.groups_at(taxonomy, depth)
    # The logarithm of a sum of masked classes has a NaN gradient.
    finite = jnp.maximum(scores, FLOOR)
    largest = jnp.full((*scores.shape[:-1], number), FLOOR, scores.dtype)
    largest = jax.lax.stop_gradient(largest.at[..., groups].max(finite))
    sums = _tree.group_sums(taxonomy, depth, jnp.exp(finite - largest[..., groups]))
    # A NaN may be lost in a maximum.
    masked = ~(largest > FLOOR)
    found = jnp.where(masked, -jnp.inf, largest + jnp.log(sums))
    return nan_unless((scores < jnp.inf).all(axis=-1, keepdims=True), found)
