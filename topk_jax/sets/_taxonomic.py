"""Sets that are nodes of a taxonomy: a genus or a family in place of many species."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes
from topk_jax import taxonomy as _tree
from topk_jax._classes import map_rows, take_along
from topk_jax._sharding import map_examples
from topk_jax.taxonomy import Taxonomy

__all__ = ["fewest_names", "node_probabilities", "node_scores", "node_set"]

# A block of rows has about this many costs in memory.
_BLOCK = 2**22
# The cost of what is not possible. The sum of two of them fits in 32 bits.
_NEVER = 2**29


def node_probabilities(probabilities: ArrayLike, taxonomy: Taxonomy) -> jax.Array:
    r"""The probability of each node of a taxonomy: the sum over its classes.

    .. math:: P_v = \sum_{l \text{ below } v} p_l

    Args:
        probabilities, taxonomy: see `topk_jax.sets`.

    Returns:
        One probability for each node, `[..., V]`.

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("willow", "alba")])
        >>> print(node_probabilities(jnp.array([0.5, 0.25, 0.25]), tree))
        [0.5  0.25 0.25 0.75 0.25 1.  ]

    Source: Mortier et al. (2025), "Conformal prediction in hierarchical classification [...]".
    """
    values = _tree.probabilities_of(probabilities, "probabilities", taxonomy)
    return _tree.node_sums(taxonomy, values)


def node_scores(
    probabilities: ArrayLike, taxonomy: Taxonomy, *, key: jax.Array | None = None
) -> jax.Array:
    r"""Conformal scores whose sets are nodes of a taxonomy.

    The nodes from the likeliest class up to the root, :math:`v_0 \subset v_1 \subset \dots`, are
    the candidate sets of an example:

    .. math::
        s_l = P(v_{i - 1}), \qquad i = \min \{ i : l \in v_i \}, \qquad P(v_{-1}) = 0

    With a key the score is uniform between :math:`P(v_{i - 1})` and :math:`P(v_i)`, with one number
    for each example, the coverage is exact, and a set may be empty. Use another key for each batch.

    Args:
        probabilities, taxonomy, key: see `topk_jax.sets`.

    Returns:
        Scores, `[..., L]`, for `conformal_quantile` and `score_set`; NaN beside a NaN.

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("willow", "alba")])
        >>> print(node_scores(jnp.array([0.5, 0.25, 0.25]), tree))
        [0.   0.5  0.75]

    Source: Mortier et al. (2025), section 4.
    """
    values = _tree.probabilities_of(probabilities, "probabilities", taxonomy)
    shape = values.shape[:-1]
    if key is None:
        uniform = jnp.zeros(shape, values.dtype)
    else:
        uniform = jax.random.uniform(_checks.random_keys(key, "key", ()), shape, values.dtype)
    scores = map_examples(partial(_node_scores, taxonomy), uniform.ndim, values, uniform)
    return _classes.nan_unless(~jnp.isnan(values).any(axis=-1, keepdims=True), scores)


def fewest_names(members: ArrayLike, taxonomy: Taxonomy, *, names: int) -> jax.Array:
    r"""At most r nodes of a taxonomy that contain a set, with as few other classes as possible.

    .. math::
        \operatorname*{arg\,min}_{N : |N| \le r, \, S \subseteq \bigcup N}
        \Bigl| \bigcup N \Bigr|

    Among several solutions, one with the fewest names is chosen.

    Args:
        taxonomy: see `topk_jax.sets`.
        members: the classes of each set, booleans `[..., L]`.
        names: the static number r of names, at least 1.

    Returns:
        The nodes whose names are used, booleans `[..., V]`; none for an empty set.

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("willow", "alba")])
        >>> print(fewest_names(jnp.array([True, True, False]), tree, names=1))
        [False False False  True False False]

    Source: Mortier et al. (2025), section 3.
    """
    chosen = _tree.members_of(members, "members", taxonomy)
    names = _checks.static_integer(names, "names", minimum=1)
    # More names than classes are never used.
    most = min(names, taxonomy.num_classes)
    return map_examples(partial(_fewest_names, taxonomy, most), chosen.ndim - 1, chosen)


def node_set(nodes: ArrayLike, taxonomy: Taxonomy) -> jax.Array:
    r"""The classes below some nodes of a taxonomy.

    .. math:: S = \{ l : \text{some } v \in N \text{ is } l \text{ or above } l \}

    Args:
        taxonomy: see `topk_jax.sets`.
        nodes: which nodes are meant, booleans `[..., V]`, as from `fewest_names`.

    Returns:
        The classes of each set, booleans `[..., L]`.

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("willow", "alba")])
        >>> print(node_set(jnp.array([False, False, False, True, False, False]), tree))
        [ True  True False]

    Source: Mortier et al. (2025), section 2.
    """
    used = _checks.boolean_array(nodes, "nodes")
    _tree.check(taxonomy)
    if used.shape[-1:] != (taxonomy.num_nodes,):
        raise ValueError(
            f"nodes must have one entry for each of the {taxonomy.num_nodes} nodes of the "
            f"taxonomy, got shape {used.shape}."
        )
    return map_examples(partial(_node_set, taxonomy), used.ndim - 1, used)


@partial(jax.jit, static_argnums=0)
def _node_scores(taxonomy: Taxonomy, values: jax.Array, uniform: jax.Array) -> jax.Array:
    likeliest = values.argmax(axis=-1)
    way = jnp.asarray(taxonomy.ancestors)[likeliest]
    of_way = take_along(_tree.node_sums(taxonomy, values), way)
    # From the root down, and then nothing. Sums in another order may be larger than those above.
    descending = jax.lax.cummax(of_way, axis=values.ndim - 1, reverse=True)
    descending = jnp.concatenate([descending, jnp.zeros_like(descending[..., :1])], axis=-1)
    shared = _tree.shared_depths(taxonomy, likeliest)
    below = take_along(descending, shared)
    lowest = take_along(descending, shared - 1)
    return below + uniform[..., None] * (lowest - below)


@partial(jax.jit, static_argnums=0)
def _node_set(taxonomy: Taxonomy, used: jax.Array) -> jax.Array:
    return jnp.stack([used[..., above] for above in taxonomy.ancestors.T]).any(axis=0)


@partial(jax.jit, static_argnums=(0, 1))
def _fewest_names(taxonomy: Taxonomy, names: int, members: jax.Array) -> jax.Array:
    """The nodes of sets [..., L], by costs from the end of the tree and choices from its start."""
    # The classes of a node are consecutive in this order. From a place on, the first class of the
    # set needs a node that has it and begins at the place or later; then one is after this node.
    order = np.lexsort(taxonomy.ancestors.T[::-1])
    nodes, number, num_nodes = taxonomy.ancestors[order], taxonomy.num_classes, taxonomy.num_nodes
    places, every_node = (np.arange(size, dtype=np.int32) for size in (number + 1, num_nodes))
    starts = np.full(num_nodes, number, np.int32)
    np.minimum.at(starts, nodes, places[:-1, None])
    # The number of classes, then the number of names, in one integer.
    own = (names + 1) * taxonomy.sizes + 1
    # The genus in place of its only species would say less.
    own[np.bincount(taxonomy.parents[:-1], minlength=num_nodes) == 1] = _NEVER
    # By place and depth.
    starts, ends, own = starts[nodes], (starts + taxonomy.sizes)[nodes], own[nodes]

    def of_row(members: jax.Array) -> jax.Array:
        chosen = jnp.pad(members[order], (0, 1))
        first = jax.lax.cummin(jnp.where(chosen, places, number), reverse=True)
        none_left, first = first == number, jnp.minimum(first, number - 1)
        may_name = jnp.asarray(starts)[first] >= places[:, None]
        # The costs from each place on with at most 0, 1, ... names.
        costs = [jnp.where(none_left, 0, _NEVER)]
        for _ in range(names):
            named = jnp.where(may_name, (own + costs[-1][ends])[first], _NEVER)
            costs.append(jnp.where(none_left, 0, named.min(axis=-1)))
        # An array, because ONNX has no window at a computed place.
        place, used = jnp.zeros(1, jnp.int32), jnp.zeros(num_nodes, jnp.bool_)
        for cost in costs[-2::-1]:
            at, is_done = first[place], none_left[place]
            named = jnp.asarray(own)[at] + cost[jnp.asarray(ends)[at]]
            depth = jnp.where(may_name[place], named, _NEVER).argmin(axis=-1)
            used |= (every_node == jnp.asarray(nodes)[at, depth]) & ~is_done
            place = jnp.where(is_done, place, jnp.asarray(ends)[at, depth])
        return used

    block = _BLOCK // (nodes.size * (names + 1))
    found = map_rows(of_row, members.reshape(-1, number), block=block)
    return found.reshape(*members.shape[:-1], num_nodes)
