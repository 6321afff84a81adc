"""Sets that are nodes of a taxonomy: a genus or a family in place of many species."""

from __future__ import annotations

import dataclasses
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics
from topk_jax import taxonomy as _tree
from topk_jax._entries import map_rows, take_along
from topk_jax.taxonomy import Taxonomy

__all__ = ["fewest_names", "node_probabilities", "node_scores", "node_set"]

# A block of rows has about this many costs in memory.
_BLOCK = 2**22
# The cost of what is not possible. The sum of two of them fits in 32 bits.
_NEVER = 2**29


@_class_axis.refuse_split
def node_probabilities(probabilities: ArrayLike, taxonomy: Taxonomy) -> jax.Array:
    r"""The probability of each node of a taxonomy: the sum over its classes.

    .. math:: P_v = \sum_{l \text{ below } v} p_l

    Args:
        probabilities: floating-point, from 0 to 1, `[..., L]`.
        taxonomy: a tree of V nodes; the first L nodes are the classes.

    Returns:
        One probability for each node, `[..., V]`; the classes come first, and the last one is the
        sum over all classes.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")])
        >>> print(sets.node_probabilities(jnp.array([0.5, 0.25, 0.25]), taxonomy))
        [0.5  0.25 0.25 0.75 0.25 1.  ]

    Source: Mortier et al. (2025), "Conformal prediction in hierarchical classification with
    constrained representation complexity", section 2.
    """
    values = _tree.probabilities_of(probabilities, "probabilities", taxonomy)
    return _tree.map_rows(partial(_node_probabilities, taxonomy), values)


@_class_axis.refuse_split
def node_scores(
    probabilities: ArrayLike, taxonomy: Taxonomy, *, key: jax.Array | None = None
) -> jax.Array:
    r"""Conformal scores whose sets are nodes of a taxonomy.

    The nodes from the likeliest class up to the root, :math:`v_0 \subset v_1 \subset \dots`, are
    the candidate sets of an example:

    .. math::
        s_l = P(v_{i - 1}), \qquad i = \min \{ i : l \in v_i \}, \qquad P(v_{-1}) = 0

    The set :math:`\{ l : s_l \le q \}` is one of these nodes, so it has a name and is never empty.
    With a key the score is uniform between :math:`P(v_{i - 1})` and :math:`P(v_i)`, with one number
    for each example, the coverage is exact, and a set may be empty. Use another key for each batch.

    Args:
        probabilities: floating-point, from 0 to 1, `[..., L]`, with sum 1 over the classes.
        taxonomy: a tree whose leaves are the L classes.
        key: one key of `jax.random.key`, or `None` for scores without randomness.

    Returns:
        Scores, `[..., L]`, for `conformal_quantile` and `score_set`; all NaN where a probability is
        NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")])
        >>> scores = sets.node_scores(jnp.array([0.5, 0.25, 0.25]), taxonomy)
        >>> print(scores, sets.score_set(scores, 0.6))
        [0.   0.5  0.75] [ True  True False]

    Source: Mortier et al. (2025), section 4.
    """
    values = _tree.probabilities_of(probabilities, "probabilities", taxonomy)
    shape = values.shape[:-1]
    if key is None:
        uniform = jnp.zeros(shape, values.dtype)
    else:
        uniform = jax.random.uniform(_checks.random_keys(key, "key", ()), shape, values.dtype)
    scores = _tree.map_rows(partial(_node_scores, taxonomy), values, uniform)
    return _numerics.nan_unless(~jnp.isnan(values).any(axis=-1, keepdims=True), scores)


@_class_axis.refuse_split
def fewest_names(members: ArrayLike, taxonomy: Taxonomy, *, names: int) -> jax.Array:
    r"""At most r nodes of a taxonomy that contain a set, with as few other classes as possible.

    .. math::
        \operatorname*{arg\,min}_{N : |N| \le r, \, S \subseteq \bigcup N}
        \Bigl| \bigcup N \Bigr|

    Among several solutions, one with the fewest names is chosen. A set that contains a valid set is
    valid.

    Args:
        members: the classes of each set, booleans `[..., L]`.
        taxonomy: a tree of V nodes, whose leaves are the L classes.
        names: the static number r of names, at least 1.

    Returns:
        The nodes whose names are used, booleans `[..., V]`; none for an empty set.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba"), ("Salix", "nigra")])
        >>> chosen = sets.fewest_names(jnp.array([True, True, True, False]), taxonomy, names=2)
        >>> print([name for name, used in zip(taxonomy.names, chosen) if used])
        ['alba', 'Quercus']

    Source: Mortier et al. (2025), section 3; "Hierarchical conformal classification"
    (arXiv:2508.13288).
    """
    chosen = _tree.members_of(members, "members", taxonomy)
    names = _checks.static_integer(names, "names", minimum=1)
    # More names than classes are never used.
    plan = _plan(taxonomy, min(names, taxonomy.num_classes))
    return _tree.map_rows(partial(_fewest_names, plan), chosen)


@_class_axis.refuse_split
def node_set(nodes: ArrayLike, taxonomy: Taxonomy) -> jax.Array:
    r"""The classes below some nodes of a taxonomy.

    .. math:: S = \{ l : \text{some } v \in N \text{ is } l \text{ or above } l \}

    Args:
        nodes: which nodes are meant, booleans `[..., V]`, as `fewest_names` returns them.
        taxonomy: a tree of V nodes, whose leaves are the L classes.

    Returns:
        The classes of each set, booleans `[..., L]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba"), ("Salix", "nigra")])
        >>> members = jnp.array([True, True, True, False])
        >>> print(sets.node_set(sets.fewest_names(members, taxonomy, names=1), taxonomy))
        [ True  True  True  True]

    Source: Mortier et al. (2025), section 2.
    """
    used = _checks.boolean_array(nodes, "nodes")
    _tree.check(taxonomy)
    if used.shape[-1:] != (taxonomy.num_nodes,):
        raise ValueError(
            f"nodes must have one entry for each of the {taxonomy.num_nodes} nodes of the "
            f"taxonomy, got shape {used.shape}."
        )
    return _tree.map_rows(partial(_node_set, taxonomy), used)


@partial(jax.jit, static_argnums=0)
def _node_probabilities(taxonomy: Taxonomy, rows: jax.Array) -> jax.Array:
    sums = jnp.zeros((rows.shape[0], taxonomy.num_nodes), rows.dtype)
    sums = sums.at[:, : taxonomy.num_classes].set(rows)
    deepest = taxonomy.ancestors[:, -1]
    for above in taxonomy.ancestors.T[:-1]:
        # A class that hangs higher is at the end of its way more than once.
        inner = np.where(above == deepest, taxonomy.num_nodes, above)
        sums = sums.at[:, inner].add(rows, mode="drop")
    return sums


@partial(jax.jit, static_argnums=0)
def _node_scores(taxonomy: Taxonomy, rows: jax.Array, uniform: jax.Array) -> jax.Array:
    ancestors = jnp.asarray(taxonomy.ancestors)
    likeliest = rows.argmax(axis=-1)
    way = ancestors[likeliest]
    of_nodes = _node_probabilities(taxonomy, rows)
    # From the root down, and then nothing. Sums in another order may be larger than those above.
    descending = jax.lax.cummax(take_along(of_nodes, way), axis=1, reverse=True)
    descending = jnp.pad(descending, ((0, 0), (0, 1)))
    shared = _tree.shared_depths(taxonomy, likeliest)
    below = take_along(descending, shared)
    lowest = take_along(descending, shared - 1)
    return below + uniform[:, None] * (lowest - below)


@partial(jax.jit, static_argnums=0)
def _node_set(taxonomy: Taxonomy, rows: jax.Array) -> jax.Array:
    return jnp.stack([rows[:, above] for above in taxonomy.ancestors.T]).any(axis=0)


@dataclasses.dataclass(frozen=True, eq=False)
class _Plan:
    """How costs go up a taxonomy, whose nodes are joined two by two, and numbered level by level.

    Attributes:
        names: the largest number of names.
        num_classes: the number of classes, which have the first numbers.
        levels: of each level the numbers of its nodes, and of the two nodes below each.
        sizes: the number of classes of each node that has a name, 0 for one that only joins two.
        order: the number of each node of the taxonomy.
    """

    names: int
    num_classes: int
    levels: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]
    sizes: np.ndarray
    order: np.ndarray


@lru_cache(maxsize=8)
def _plan(taxonomy: Taxonomy, names: int) -> _Plan:
    num_classes = taxonomy.num_classes
    children: dict[int, list[int]] = {node: [] for node in range(num_classes, taxonomy.num_nodes)}
    for node, parent in enumerate(taxonomy.parents[:-1]):
        children[parent].append(node)
    # One more class follows, which is in no set, for nodes with one node below.
    nothing = num_classes
    heights, sizes = [0] * (num_classes + 1), [*[1] * num_classes, 0]
    pairs: list[tuple[int, int]] = []
    numbers = {leaf: leaf for leaf in range(num_classes)}

    def join(left: int, right: int, size: int = 0) -> int:
        pairs.append((left, right))
        heights.append(1 + max(heights[left], heights[right]))
        sizes.append(size)
        return len(heights) - 1

    depths = {node: depth for way in taxonomy.ancestors for depth, node in enumerate(way)}
    for node in sorted(children, key=depths.__getitem__, reverse=True):
        below = [numbers[child] for child in children[node]]
        while len(below) > 2:
            # The last of an odd number waits for the next round.
            rest = below[len(below) & ~1 :]
            pairs_below = zip(below[::2], below[1::2], strict=False)
            below = [join(left, right) for left, right in pairs_below] + rest
        left, right = [*below, nothing][:2]
        numbers[node] = join(left, right, int(taxonomy.sizes[node]))
    # Of 32 bits, so that the plan serves with and without x64.
    joined = np.arange(num_classes + 1, len(heights), dtype=np.int32)
    of_level = np.array(heights)[joined]
    both = np.array(pairs, np.int32)
    levels = tuple(
        (joined[of_level == level], *both[of_level == level].T)
        for level in range(1, max(heights) + 1)
    )
    order = np.array([numbers[node] for node in range(taxonomy.num_nodes)], np.int32)
    return _Plan(names, num_classes, levels, np.array(sizes, np.int32), order)


@partial(jax.jit, static_argnums=0)
def _fewest_names(plan: _Plan, rows: jax.Array) -> jax.Array:
    of_row = partial(_fewest_names_of_row, plan)
    block = max(1, _BLOCK // (len(plan.sizes) * (plan.names + 1)))
    # A program of `jax.export` for any number of rows does not have blocks.
    is_any_number = not isinstance(rows.size, int)
    in_blocks = partial(jax.lax.map, of_row, batch_size=block)
    found: jax.Array = (partial(map_rows, of_row) if is_any_number else in_blocks)(rows)
    return found


def _fewest_names_of_row(plan: _Plan, members: jax.Array) -> jax.Array:
    """The nodes of one set, `[V]`, by costs that go up the tree and choices that go down.

    The cost of a node with k names is the number of classes that they contain, then the number of
    names: one integer for both, so that among equal sets the one with the fewest names is chosen.
    """
    most, unit = plan.names, plan.names + 1
    sizes = jnp.asarray(plan.sizes)
    own = jnp.where(sizes > 0, unit * sizes + 1, _NEVER).astype(jnp.int32)
    of_classes = jnp.where(members, unit + 1, 0).astype(jnp.int32)
    costs = jnp.zeros((len(plan.sizes), unit), jnp.int32)
    costs = costs.at[: plan.num_classes, 1:].set(of_classes[:, None])
    costs = costs.at[: plan.num_classes, 0].set(jnp.where(members, _NEVER, 0))
    for nodes, left, right in plan.levels:
        shared = jnp.stack(
            [_sums(costs[left], costs[right], k).min(axis=-1) for k in range(unit)], axis=-1
        )
        whole = jnp.where(jnp.arange(unit) > 0, own[nodes][:, None], _NEVER)
        costs = costs.at[nodes].set(jnp.minimum(jnp.minimum(shared, whole), _NEVER))
    # How many names each node may use: none if it has no member, or if it is below a name.
    room = jnp.zeros(len(plan.sizes), jnp.int32).at[plan.order[-1]].set(most)
    used = jnp.zeros(len(plan.sizes), jnp.bool_)
    for nodes, left, right in reversed(plan.levels):
        own_room = room[nodes]
        # [nodes, names of the left one]: a choice with more names than there is room for never
        # wins.
        sums = jnp.stack([_sums(costs[left], costs[right], k) for k in range(unit)], axis=0)
        sums = jnp.take_along_axis(sums, own_room[None, :, None], axis=0)[0]
        is_whole = (own_room > 0) & (own[nodes] < sums.min(axis=-1)) & (costs[nodes, 0] > 0)
        used = used.at[nodes].set(is_whole)
        for_left = jnp.where(is_whole, 0, jax.lax.argmin(sums, 1, jnp.int32))
        for_right = jnp.where(is_whole, 0, own_room - for_left)
        room = room.at[left].set(for_left).at[right].set(for_right)
    used = used.at[: plan.num_classes].set(members & (room[: plan.num_classes] > 0))
    return used[plan.order]


def _sums(left: jax.Array, right: jax.Array, names: int) -> jax.Array:
    """The costs of two nodes, `[n, r + 1]`, by the names of the left one, for `names` in all."""
    sums = left[:, : names + 1] + right[:, names::-1]
    return jnp.pad(sums, ((0, 0), (0, left.shape[1] - names - 1)), constant_values=2 * _NEVER)
