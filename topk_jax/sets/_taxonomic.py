"""Sets that are nodes of a taxonomy: a genus or a family in place of many species."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes
from topk_jax import taxonomy as _tree
from topk_jax._classes import map_rows, take_along
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
    return _tree.map_rows(partial(_node_probabilities, taxonomy), values)


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
    scores = _tree.map_rows(partial(_node_scores, taxonomy), values, uniform)
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
    return _tree.map_rows(partial(_fewest_names, taxonomy, most), chosen)


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


def _plan(
    taxonomy: Taxonomy,
) -> tuple[list[tuple[np.ndarray, np.ndarray, np.ndarray]], np.ndarray, np.ndarray]:
    """A tree whose nodes are joined two by two, and numbered level by level after the classes."""
    # Returns, of each level, the numbers of its nodes and of the two below each; then the number of
    # classes of each node that has a name, 0 for one that only joins two; then the number of each
    # node of the taxonomy.
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

    for node in sorted(children, key=taxonomy.heights.__getitem__):
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
    levels = [
        (joined[of_level == level], *both[of_level == level].T)
        for level in range(1, max(heights) + 1)
    ]
    order = np.array([numbers[node] for node in range(taxonomy.num_nodes)], np.int32)
    return levels, np.array(sizes, np.int32), order


@partial(jax.jit, static_argnums=(0, 1))
def _fewest_names(taxonomy: Taxonomy, names: int, rows: jax.Array) -> jax.Array:
    levels, sizes, order = _plan(taxonomy)
    of_row = partial(_fewest_names_of_row, names, levels, sizes, order)
    found: jax.Array = map_rows(of_row, rows, block=_BLOCK // (len(sizes) * (names + 1)))
    return found


def _fewest_names_of_row(
    most: int,
    levels: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
    num_classes_below: np.ndarray,
    order: np.ndarray,
    members: jax.Array,
) -> jax.Array:
    """The nodes of one set, `[V]`, by costs that go up the tree and choices that go down."""
    # The cost of a node with k names is the number of classes that they contain, then the number of
    # names: one integer for both, so that among equal sets the one with the fewest names is chosen.
    unit, num_classes = most + 1, len(members)
    sizes = jnp.asarray(num_classes_below)
    own = jnp.where(sizes > 0, unit * sizes + 1, _NEVER).astype(jnp.int32)
    of_classes = jnp.where(members, unit + 1, 0).astype(jnp.int32)
    costs = jnp.zeros((len(sizes), unit), jnp.int32)
    costs = costs.at[:num_classes, 1:].set(of_classes[:, None])
    costs = costs.at[:num_classes, 0].set(jnp.where(members, _NEVER, 0))
    for nodes, left, right in levels:
        shared = _sums(costs[left], costs[right]).min(axis=-1)
        whole = jnp.where(jnp.arange(unit) > 0, own[nodes][:, None], _NEVER)
        costs = costs.at[nodes].set(jnp.minimum(jnp.minimum(shared, whole), _NEVER))
    # How many names each node may use: none if it has no member, or if it is below a name.
    room = jnp.zeros(len(sizes), jnp.int32).at[order[-1]].set(most)
    used = jnp.zeros(len(sizes), jnp.bool_)
    for nodes, left, right in reversed(levels):
        own_room = room[nodes]
        sums = _sums(costs[left], costs[right])
        sums = jnp.take_along_axis(sums, own_room[:, None, None], axis=1)[:, 0]
        is_whole = (own_room > 0) & (own[nodes] < sums.min(axis=-1)) & (costs[nodes, 0] > 0)
        used = used.at[nodes].set(is_whole)
        for_left = jnp.where(is_whole, 0, jax.lax.argmin(sums, 1, jnp.int32))
        for_right = jnp.where(is_whole, 0, own_room - for_left)
        room = room.at[left].set(for_left).at[right].set(for_right)
    used = used.at[:num_classes].set(members & (room[:num_classes] > 0))
    return used[order]


def _sums(left: jax.Array, right: jax.Array) -> jax.Array:
    """The costs of two nodes, `[n, r + 1, r + 1]`, by the names in all and those of the left one.

    A left one with more names than in all never wins.
    """
    size = left.shape[1]
    sums = [
        jnp.pad(
            left[:, : names + 1] + right[:, names::-1],
            ((0, 0), (0, size - names - 1)),
            constant_values=2 * _NEVER,
        )
        for names in range(size)
    ]
    return jnp.stack(sums, axis=1)
