"""Hits, sizes and heights in a taxonomy, for genera and families in place of species."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _example
from topk_jax import taxonomy as trees
from topk_jax.metrics._hits import label_ranks
from topk_jax.taxonomy import Taxonomy

__all__ = [
    "ancestor_hits",
    "ancestor_ranks",
    "mistake_heights",
    "name_counts",
    "node_counts",
    "set_heights",
]


def ancestor_ranks(
    probabilities: ArrayLike, labels: ArrayLike, taxonomy: Taxonomy, *, depth: int
) -> jax.Array:
    r"""How many nodes of a depth come before the node of the label by their probabilities.

    .. math::
        r(p, y) = \#\{ v : P_v > P_{a(y)} \text{, or } P_v = P_{a(y)} \text{ and } v < a(y) \},
        \qquad P_v = \sum_{l \text{ below } v} p_l

    with the node :math:`a(y)` at that depth that has the label. So `ancestor_ranks(...) < k` are
    the hits of the top k genera, if these have the depth.

    Args:
        probabilities, labels, taxonomy, depth: see `topk_jax.metrics`.

    Returns:
        Integers, `[...]`, from 0. Where a probability is NaN or the label is outside [0, L), it is
        the number of nodes of that depth, which is not less than any k.

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("alba",)])
        >>> probabilities = jnp.array([0.25, 0.35, 0.4])
        >>> print(ancestor_ranks(probabilities, jnp.array(0), tree, depth=1))
        0

    Source: Mortier et al. (2025), "Conformal prediction in hierarchical classification", section 2.
    """
    _example.check_classes("probabilities", probabilities, labels, None)
    values = trees.probabilities_of(probabilities, "probabilities", taxonomy)
    depth = trees.depth_of(depth, taxonomy)
    labels = _checks.integer_array(labels, "labels", values.shape[:-1])
    groups, number = trees.groups_at(taxonomy, depth)
    sums = trees.group_sums(taxonomy, depth, values)
    own = trees.group_of_label(groups, number, labels)
    return label_ranks(sums, own).astype(jnp.int32)


def ancestor_hits(
    chosen: ArrayLike, labels: ArrayLike, taxonomy: Taxonomy, *, depth: int
) -> jax.Array:
    r"""Whether a set has a class of the label's genus, or of its node at another depth.

    .. math:: h(S, y) = \mathbf 1[ S \cap a(y) \ne \emptyset ]

    with the classes :math:`a(y)` of the node at that depth that has the label.

    Args:
        chosen, labels, taxonomy, depth: see `topk_jax.metrics`.

    Returns:
        Booleans, `[...]`. A label outside [0, L) is a miss.

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("alba",)])
        >>> chosen = jnp.array([[True, False, False], [True, False, False]])
        >>> print(ancestor_hits(chosen, jnp.array([1, 2]), tree, depth=1))
        [ True False]

    Source: here; the coverage of Mortier et al. (2025) at each rank.
    """
    _example.check_classes("chosen", chosen, labels, None)
    members = trees.members_of(chosen, "chosen", taxonomy)
    labels = _checks.integer_array(labels, "labels", members.shape[:-1])
    groups, number = trees.groups_at(taxonomy, trees.depth_of(depth, taxonomy))
    own = trees.group_of_label(groups, number, labels)
    return (members & (trees.along_classes(groups, members.ndim) == own[..., None])).any(axis=-1)


def node_counts(chosen: ArrayLike, taxonomy: Taxonomy, *, depth: int) -> jax.Array:
    r"""How many genera, or nodes of another depth, each set has classes of.

    .. math:: c(S) = \#\{ v \text{ at the depth} : v \cap S \ne \emptyset \}

    Args:
        chosen, taxonomy, depth: see `topk_jax.metrics`.

    Returns:
        Integers, `[...]`.

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("alba",)])
        >>> chosen = jnp.array([[True, True, False], [True, False, True]])
        >>> print(node_counts(chosen, tree, depth=1))
        [1 2]

    Source: here; the sizes of Mortier et al. (2025) at each rank.
    """
    members = trees.members_of(chosen, "chosen", taxonomy).astype(jnp.int32)
    sums = trees.group_sums(taxonomy, trees.depth_of(depth, taxonomy), members)
    return (sums > 0).sum(axis=-1, dtype=jnp.int32)


def set_heights(chosen: ArrayLike, taxonomy: Taxonomy) -> jax.Array:
    r"""How far up the answer is: the height of the lowest node that has all classes of a set.

    .. math:: h(S) = \min \{ h(v) : S \subseteq v \}

    The height of a node is the number of nodes below it on the longest way to a class.

    Args:
        chosen, taxonomy: see `topk_jax.metrics`.

    Returns:
        Integers, `[...]`: 0 for one class, 1 for classes of a genus; -1 for an empty set.

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("alba",)])
        >>> chosen = jnp.array([[True, False, False], [True, True, False], [True, False, True]])
        >>> print(set_heights(chosen, tree))
        [0 1 2]

    Source: Bertinetto et al. (2020), "Making better mistakes", section 3, for the height.
    """
    members = trees.members_of(chosen, "chosen", taxonomy)
    sizes = trees.node_sums(taxonomy, members.astype(jnp.int32))
    has_all = sizes == sizes[..., -1:]
    heights = jnp.where(has_all, taxonomy.heights, taxonomy.num_nodes).min(axis=-1)
    return jnp.where(sizes[..., -1] > 0, heights, -1)


def name_counts(chosen: ArrayLike, taxonomy: Taxonomy) -> jax.Array:
    r"""How many names of a taxonomy are needed to describe a set without other classes.

    .. math:: \#\{ v : v \subseteq S, \, \text{the node above } v \not\subseteq S \}

    Args:
        chosen, taxonomy: see `topk_jax.metrics`.

    Returns:
        Integers, `[...]`; 0 for an empty set.

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("alba",)])
        >>> chosen = jnp.array([[True, True, False], [True, False, True]])
        >>> print(name_counts(chosen, tree))
        [1 2]

    Source: Mortier et al. (2025), section 3, the representation complexity.
    """
    members = trees.members_of(chosen, "chosen", taxonomy)
    is_whole = trees.node_sums(taxonomy, (~members).astype(jnp.int32)) == 0
    # No node is above the root.
    is_above = is_whole[..., np.array(taxonomy.parents)].at[..., -1].set(False)
    return (is_whole & ~is_above).sum(axis=-1, dtype=jnp.int32)


def mistake_heights(predictions: ArrayLike, labels: ArrayLike, taxonomy: Taxonomy) -> jax.Array:
    r"""How bad a mistake is: the height of the lowest node that has the prediction and the label.

    .. math:: h(\hat y, y) = \min \{ h(v) : \hat y \in v, \, y \in v \}

    Args:
        labels, taxonomy: see `topk_jax.metrics`.
        predictions: integer classes, `[...]`.

    Returns:
        Integers, `[...]`: 0 where they are equal, 1 for two species of a genus (see `set_heights`),
        and -1 where a class is outside [0, L).

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("alba",)])
        >>> predictions, labels = jnp.array([0, 0, 0]), jnp.array([0, 1, 2])
        >>> print(mistake_heights(predictions, labels, tree))
        [0 1 2]

    Source: Bertinetto et al. (2020), section 4.1.
    """
    trees.check(taxonomy)
    found = _checks.integer_array(predictions, "predictions")
    labels = _checks.integer_array(labels, "labels", found.shape)
    ways = [trees.look_up(taxonomy.ancestors, classes) for classes in (found, labels)]
    heights = trees.heights_of_ways(taxonomy, labels)
    lowest = jnp.where(jnp.equal(*ways), heights, taxonomy.num_nodes).min(axis=-1)
    are_classes = [(each >= 0) & (each < taxonomy.num_classes) for each in (found, labels)]
    return jnp.where(are_classes[0] & are_classes[1], lowest, -1)
