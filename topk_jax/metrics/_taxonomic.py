"""Hits, sizes and heights in a taxonomy, for genera and families in place of species."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _sharding, _tree
from topk_jax._entries import take_along
from topk_jax.taxonomy import Taxonomy

__all__ = [
    "ancestor_hits",
    "ancestor_ranks",
    "mistake_heights",
    "name_counts",
    "node_counts",
    "set_heights",
]


@_class_axis.refuse_split
def ancestor_ranks(
    probabilities: ArrayLike, labels: ArrayLike, taxonomy: Taxonomy, *, depth: int
) -> jax.Array:
    r"""How many nodes of a depth come before the node of the label by their probabilities.

    .. math::
        r(p, y) = \#\{ v : P_v > P_{a(y)} \text{, or } P_v = P_{a(y)} \text{ and } v < a(y) \},
        \qquad P_v = \sum_{l \text{ below } v} p_l

    with the node :math:`a(y)` at that depth that has the label. So `ancestor_ranks(...) < k` are
    the hits of the top k genera, if these have the depth. A class that hangs higher is a node of
    its own.

    Args:
        probabilities: floating-point, from 0 to 1, `[..., L]`.
        labels: integer classes, `[...]`.
        taxonomy: a tree whose leaves are the L classes.
        depth: static; 1 for the nodes right below the root, `taxonomy.depth` for the classes.

    Returns:
        Integers, `[...]`, from 0. Where a probability is NaN or the label is outside [0, L), it is
        the number of nodes of that depth, which is not less than any k.

    Raises:
        TypeError: `probabilities` is not floating-point, `labels` is not integer, `taxonomy` is not
            a `Taxonomy`, or `depth` is not a static integer.
        ValueError: the shapes do not match, `depth` is outside [1, D], or a concrete probability is
            not from 0 to 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")])
        >>> probabilities, labels = jnp.array([[0.25, 0.35, 0.4]]), jnp.array([0])
        >>> print(metrics.ancestor_ranks(probabilities, labels, taxonomy, depth=1))
        [0]
        >>> print(metrics.label_ranks(probabilities, labels))
        [2]

    See Also:
        `label_ranks`, `ancestor_hits`, `node_probabilities`.

    Source: Mortier et al. (2025), "Conformal prediction in hierarchical classification with
    constrained representation complexity", section 2.
    """
    values = _tree.probabilities_of(probabilities, "probabilities", taxonomy)
    depth = _tree.depth_of(depth, taxonomy)
    labels = _checks.integer_array(labels, "labels", values.shape[:-1])
    return _tree.map_rows(partial(_ancestor_ranks, taxonomy, depth), values, labels)


@_class_axis.refuse_split
def ancestor_hits(
    chosen: ArrayLike, labels: ArrayLike, taxonomy: Taxonomy, *, depth: int
) -> jax.Array:
    r"""Whether a set has a class of the label's genus, or of its node at another depth.

    .. math:: h(S, y) = \mathbf 1[ S \cap a(y) \ne \emptyset ]

    with the classes :math:`a(y)` of the node at that depth that has the label. `accuracy` of these
    hits is the coverage by rank.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        labels: integer classes, `[...]`.
        taxonomy: a tree whose leaves are the L classes.
        depth: static; 1 for the nodes right below the root, `taxonomy.depth` for the classes.

    Returns:
        Booleans, `[...]`. A label outside [0, L) is a miss.

    Raises:
        TypeError: `chosen` is not boolean, `labels` is not integer, `taxonomy` is not a `Taxonomy`,
            or `depth` is not a static integer.
        ValueError: the shapes do not match or `depth` is outside [1, D].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")])
        >>> chosen = jnp.array([[True, False, False], [True, False, False]])
        >>> print(metrics.ancestor_hits(chosen, jnp.array([1, 2]), taxonomy, depth=1))
        [ True False]

    See Also:
        `ancestor_ranks`, `node_counts`, `accuracy`.

    Source: here; the coverage of Mortier et al. (2025) at each rank.
    """
    members, depth = _tree.members_of(chosen, "chosen", taxonomy), _tree.depth_of(depth, taxonomy)
    labels = _checks.integer_array(labels, "labels", members.shape[:-1])
    return _tree.map_rows(partial(_ancestor_hits, taxonomy, depth), members, labels)


@_class_axis.refuse_split
def node_counts(chosen: ArrayLike, taxonomy: Taxonomy, *, depth: int) -> jax.Array:
    r"""How many genera, or nodes of another depth, each set has classes of.

    .. math:: c(S) = \#\{ v : v \cap S \ne \emptyset \}

    over the nodes of that depth; a class that hangs higher is a node of its own.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        taxonomy: a tree whose leaves are the L classes.
        depth: static; 1 for the nodes right below the root, `taxonomy.depth` for the classes.

    Returns:
        Integers, `[...]`.

    Raises:
        TypeError: `chosen` is not boolean, `taxonomy` is not a `Taxonomy`, or `depth` is not a
            static integer.
        ValueError: the numbers of classes differ or `depth` is outside [1, D].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")])
        >>> chosen = jnp.array([[True, True, False], [True, False, True]])
        >>> print(metrics.node_counts(chosen, taxonomy, depth=1))
        [1 2]

    See Also:
        `set_sizes`, `name_counts`, `ancestor_hits`.

    Source: here; the sizes of Mortier et al. (2025) at each rank.
    """
    members, depth = _tree.members_of(chosen, "chosen", taxonomy), _tree.depth_of(depth, taxonomy)
    return _tree.map_rows(partial(_node_counts, taxonomy, depth), members)


@_class_axis.refuse_split
def set_heights(chosen: ArrayLike, taxonomy: Taxonomy) -> jax.Array:
    r"""How far up the answer is: the height of the lowest node that has all classes of a set.

    .. math:: h(S) = \min \{ h(v) : S \subseteq v \}

    The height of a node is the number of nodes below it on the longest way to a class: 0 for a
    class, and 1 for a genus.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        taxonomy: a tree whose leaves are the L classes.

    Returns:
        Integers, `[...]`; -1 for an empty set.

    Raises:
        TypeError: `chosen` is not boolean or `taxonomy` is not a `Taxonomy`.
        ValueError: the numbers of classes differ.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")])
        >>> chosen = jnp.array([[True, False, False], [True, True, False], [True, False, True]])
        >>> print(metrics.set_heights(chosen, taxonomy))
        [0 1 2]

    See Also:
        `mistake_heights`, `name_counts`, `node_scores`.

    Source: Bertinetto et al. (2020), "Making better mistakes: leveraging class hierarchies with
    deep networks", section 3, for the height.
    """
    return _tree.map_rows(
        partial(_set_heights, taxonomy), _tree.members_of(chosen, "chosen", taxonomy)
    )


@_class_axis.refuse_split
def name_counts(chosen: ArrayLike, taxonomy: Taxonomy) -> jax.Array:
    r"""How many names of a taxonomy are needed to describe a set without other classes.

    .. math:: \#\{ v : v \subseteq S, \, \text{the node above } v \not\subseteq S \}

    `fewest_names` with a smaller number has to add classes.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        taxonomy: a tree whose leaves are the L classes.

    Returns:
        Integers, `[...]`; 0 for an empty set.

    Raises:
        TypeError: `chosen` is not boolean or `taxonomy` is not a `Taxonomy`.
        ValueError: the numbers of classes differ.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba"), ("Salix", "nigra")])
        >>> chosen = jnp.array([[True, True, False, True], [True, False, False, True]])
        >>> print(metrics.name_counts(chosen, taxonomy))
        [2 2]

    See Also:
        `fewest_names`, `set_sizes`, `node_counts`.

    Source: Mortier et al. (2025), section 3, the representation complexity.
    """
    return _tree.map_rows(
        partial(_name_counts, taxonomy), _tree.members_of(chosen, "chosen", taxonomy)
    )


@_class_axis.refuse_split
def mistake_heights(predictions: ArrayLike, labels: ArrayLike, taxonomy: Taxonomy) -> jax.Array:
    r"""How bad a mistake is: the height of the lowest node that has the prediction and the label.

    .. math:: h(\hat y, y) = \min \{ h(v) : \hat y \in v, \, y \in v \}

    It is 0 if they are equal, and 1 for two species of a genus. The mean over the mistakes is the
    severity of the mistakes. See `set_heights` for the height.

    Args:
        predictions: integer classes, `[...]`.
        labels: integer classes, `[...]`.
        taxonomy: a tree whose leaves are the L classes.

    Returns:
        Integers, `[...]`; -1 where a class is outside [0, L).

    Raises:
        TypeError: `predictions` or `labels` is not integer, or `taxonomy` is not a `Taxonomy`.
        ValueError: the shapes do not match.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")])
        >>> predictions, labels = jnp.array([0, 0, 0]), jnp.array([0, 1, 2])
        >>> print(metrics.mistake_heights(predictions, labels, taxonomy))
        [0 1 2]

    See Also:
        `set_heights`, `hierarchical_cross_entropy`.

    Source: Bertinetto et al. (2020), section 4.1.
    """
    _tree.check(taxonomy)
    found = _checks.integer_array(predictions, "predictions")
    labels = _checks.integer_array(labels, "labels", found.shape)
    of_batch = partial(_mistake_heights, taxonomy)
    return _sharding.map_examples(of_batch, found.ndim, found, labels)


def _ancestor_ranks(
    taxonomy: Taxonomy, depth: int, rows: jax.Array, labels: jax.Array
) -> jax.Array:
    groups, number = _tree.groups_at(taxonomy, depth)
    sums = _tree.group_sums(taxonomy, depth, rows)
    own = _tree.group_of_label(groups, number, labels)
    of_label = take_along(sums, own[:, None], mode="clip")
    before = jnp.arange(number, dtype=own.dtype)[None] < own[:, None]
    ranks = ((sums > of_label) | ((sums == of_label) & before)).sum(axis=-1, dtype=jnp.int32)
    valid = (own < number) & ~jnp.isnan(rows).any(axis=-1)
    return jnp.where(valid, ranks, number)


def _ancestor_hits(taxonomy: Taxonomy, depth: int, rows: jax.Array, labels: jax.Array) -> jax.Array:
    groups, number = _tree.groups_at(taxonomy, depth)
    own = _tree.group_of_label(groups, number, labels)
    return (rows & (jnp.asarray(groups)[None] == own[:, None])).any(axis=-1)


def _node_counts(taxonomy: Taxonomy, depth: int, rows: jax.Array) -> jax.Array:
    return (_tree.group_sums(taxonomy, depth, rows.astype(jnp.int32)) > 0).sum(
        axis=-1, dtype=jnp.int32
    )


def _set_heights(taxonomy: Taxonomy, rows: jax.Array) -> jax.Array:
    heights, found = jnp.asarray(taxonomy.heights), jnp.full(rows.shape[:1], -1, jnp.int32)
    # From the root down: the last node that all members have.
    for above in taxonomy.ancestors.T[:, None]:
        first = jnp.where(rows, above, taxonomy.num_nodes).min(axis=-1)
        last = jnp.where(rows, above, -1).max(axis=-1)
        found = jnp.where(first == last, heights[jnp.maximum(last, 0)], found)
    return found


def _name_counts(taxonomy: Taxonomy, rows: jax.Array) -> jax.Array:
    counts, is_above = jnp.zeros(rows.shape[:1], jnp.int32), jnp.zeros(rows.shape, jnp.bool_)
    for depth in range(taxonomy.depth + 1):
        groups, _ = _tree.groups_at(taxonomy, depth)
        missing = _tree.group_sums(taxonomy, depth, (~rows).astype(jnp.int32))
        is_whole = missing[:, groups] == 0
        # The first class of a node stands for it.
        _, first = np.unique(groups, return_index=True)
        counts += (is_whole & ~is_above)[:, first].sum(axis=-1, dtype=jnp.int32)
        is_above |= is_whole
    return counts


def _mistake_heights(taxonomy: Taxonomy, found: jax.Array, labels: jax.Array) -> jax.Array:
    ancestors, most = jnp.asarray(taxonomy.ancestors), taxonomy.num_classes
    ways = (ancestors[jnp.clip(classes, 0, most - 1)] for classes in (found, labels))
    shared = jnp.equal(*ways).sum(axis=-1, dtype=jnp.int32)
    heights = _tree.heights_of_ways(taxonomy, labels)
    lowest = take_along(heights, shared[..., None] - 1, mode="fill")[..., 0]
    valid = (found >= 0) & (found < most) & (labels >= 0) & (labels < most)
    return jnp.where(valid, lowest, -1)
