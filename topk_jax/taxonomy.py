"""Trees whose leaves are the classes: species, genera, families.

`topk_jax.sets` has the sets, scores and probabilities of the nodes of such a tree.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes

__all__ = ["Taxonomy"]

# The name of the node that has all classes.
_ROOT = "all"


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Taxonomy:
    """A tree whose leaves are the classes.

    It is static: a function that is compiled for one taxonomy is compiled again for another one.

    Attributes:
        names: the name of each of the V nodes. The classes 0 to L - 1 are the first ones, and the
            root, which has all classes, is the last one.
        parents: the parent of each node, V integers. The parent of the root is the root.

    Example:
        >>> tree = Taxonomy.from_paths([("oak", "robur"), ("oak", "ilex"), ("willow", "alba")])
        >>> print(tree.names, tree.parents)
        ('robur', 'ilex', 'alba', 'oak', 'willow', 'all') (3, 3, 4, 5, 5, 5)
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, values, kind in (("names", self.names, str), ("parents", self.parents, int)):
            if not isinstance(values, tuple) or not all(isinstance(one, kind) for one in values):
                raise TypeError(f"{name} must be a tuple of {kind.__name__}, got {values!r:.60}.")
        size, inner = len(self.names), {*self.parents}
        # The nodes above others are the last ones.
        is_tree = size == len(self.parents) >= 2 and inner == {*range(size - len(inner), size)}
        if is_tree:
            # After twice as many steps each time, all ways have come to the root.
            reached = self.parents
            for _ in range(size.bit_length()):
                reached = tuple(reached[node] for node in reached)
            is_tree = {*reached} == {size - 1}
        if not is_tree:
            raise ValueError(
                f"parents must be those of the {size} names in a tree whose classes come first, "
                f"and whose root comes last and is its own parent, got {self.parents!r:.60}."
            )

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[str]]) -> Self:
        """The taxonomy of classes by their paths: names from the top down, the class at the end.

        Paths may have different lengths. Nodes are the same if their names and all names above are.
        """
        leaves: Counter[tuple[str, ...]] = Counter()
        for path in paths:
            if isinstance(path, str) or not all(isinstance(name, str) for name in path):
                raise TypeError(f"paths must be sequences of names, got {path!r}.")
            leaves[tuple(path)] += 1
        inner = dict.fromkeys(path[:depth] for path in leaves for depth in range(1, len(path)))
        wrong = [path for path, times in leaves.items() if times > 1 or not path or path in inner]
        if wrong or not leaves:
            got = repr("/".join(wrong[0])) if wrong else "none"
            raise ValueError(f"paths must name each class once, and none above another, got {got}.")
        nodes = {path: place for place, path in enumerate([*leaves, *inner])}
        parents = (nodes.get(path[:-1], len(nodes)) for path in nodes)
        return cls((*(path[-1] for path in nodes), _ROOT), (*parents, len(nodes)))

    @property
    def num_nodes(self) -> int:
        """The number of nodes V."""
        return len(self.parents)

    @cached_property
    def num_classes(self) -> int:
        """The number of classes L."""
        return self.num_nodes - len({*self.parents})

    @cached_property
    def ancestors(self) -> np.ndarray:
        """The nodes on the way from the root to each class, `[L, D + 1]`; its end is the class."""
        parents, root = np.array(self.parents, np.int32), self.num_nodes - 1
        ways = [np.arange(self.num_classes, dtype=np.int32)]
        while (ways[-1] != root).any():
            ways.append(parents[ways[-1]])
        down = np.stack(ways[::-1], axis=1)
        # Short ways begin at the root several times; they end at the class several times instead.
        places = np.arange(len(ways)) + (down == root).sum(axis=1, keepdims=True) - 1
        return np.take_along_axis(down, np.minimum(places, len(ways) - 1), axis=1)

    @property
    def depth(self) -> int:
        """The number of nodes below the root on the longest way to a class, D."""
        return int(self.ancestors.shape[1]) - 1

    @cached_property
    def heights(self) -> np.ndarray:
        """How many nodes are below each on the longest way to a class, `[V]`; 0 for classes."""
        is_above = self.ancestors >= self.num_classes
        below = is_above.sum(axis=1, keepdims=True) - np.arange(self.depth + 1)
        heights = np.zeros(self.num_nodes, np.int32)
        np.maximum.at(heights, self.ancestors, below)
        return heights

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of classes of each node, `[V]`."""
        sizes = np.bincount(self.ancestors.ravel(), minlength=self.num_nodes).astype(np.int32)
        sizes[: self.num_classes] = 1
        return sizes


def check(taxonomy: Taxonomy, num_classes: int | None = None) -> None:
    """Raises if an argument is not a taxonomy, or has another number of classes."""
    if not isinstance(taxonomy, Taxonomy):
        raise TypeError(f"taxonomy must be a Taxonomy, got {_checks.describe(taxonomy)}.")
    if num_classes not in (None, taxonomy.num_classes):
        raise ValueError(
            f"taxonomy must have the {num_classes} classes, got {taxonomy.num_classes}."
        )


def check_classes(shape: tuple[int, ...], name: str, taxonomy: Taxonomy) -> None:
    """Raises if an array does not have the classes of a taxonomy as its last axis."""
    check(taxonomy)
    if shape[-1:] != (taxonomy.num_classes,):
        raise ValueError(
            f"{name} must have one entry for each of the {taxonomy.num_classes} classes of the "
            f"taxonomy, got shape {shape}."
        )


def members_of(members: ArrayLike, name: str, taxonomy: Taxonomy) -> jax.Array:
    """Returns sets of the classes of a taxonomy, booleans [..., L], or raises."""
    found = _checks.boolean_array(members, name)
    check_classes(found.shape, name, taxonomy)
    return found


def probabilities_of(probabilities: ArrayLike, name: str, taxonomy: Taxonomy) -> jax.Array:
    """Returns probabilities of the classes of a taxonomy, [..., L], or raises."""
    found = _checks.probabilities(probabilities, name)
    check_classes(found.shape, name, taxonomy)
    return found


def depth_of(depth: int, taxonomy: Taxonomy) -> int:
    """Returns the depth of nodes below the root, or raises."""
    check(taxonomy)
    return _checks.static_integer(
        depth, "depth", minimum=1, maximum=taxonomy.depth, reason="the depth of the taxonomy"
    )


def along_classes(values: np.ndarray, ndim: int) -> np.ndarray:
    """Values of the classes, [L], beside arrays [..., L] of so many axes."""
    return values.astype(np.int32).reshape((1,) * (ndim - 1) + (-1,))


def look_up(table: np.ndarray, labels: jax.Array) -> jax.Array:
    """The entries, or rows, of a table [L, ...] at labels [...]; some one if it is out of range."""
    return _classes.value_of_class(jnp.asarray(table), labels)


def groups_at(taxonomy: Taxonomy, depth: int) -> tuple[np.ndarray, int]:
    """The number of the node at a depth of each class, from 0, int32 [L], and how many there are.

    A class that hangs higher is a node of its own.
    """
    nodes, groups = np.unique(taxonomy.ancestors[:, depth], return_inverse=True)
    return groups.astype(np.int32), len(nodes)


def group_of_label(groups: np.ndarray, number: int, labels: jax.Array) -> jax.Array:
    """The group of each label, [...]; `number`, which no group has, for a label out of range."""
    in_range = (labels >= 0) & (labels < len(groups))
    return jnp.where(in_range, look_up(groups, labels), number)


@partial(jax.jit, static_argnums=(0, 1))
def group_sums(taxonomy: Taxonomy, depth: int, rows: jax.Array) -> jax.Array:
    """The sums of rows [..., L] over the classes of each group of `groups_at`, [..., G]."""
    groups, number = groups_at(taxonomy, depth)
    if number == 1:
        # For integers and n = L, XLA on the CPU (JAX 0.10) shares one buffer between the places,
        # all 0, and the sums.
        return rows.sum(axis=-1, keepdims=True, dtype=rows.dtype)
    return jnp.zeros_like(rows[..., :number]).at[..., groups].add(rows)


@partial(jax.jit, static_argnums=0)
def node_sums(taxonomy: Taxonomy, values: jax.Array) -> jax.Array:
    """The sums of values [..., L] over the classes of each node, [..., V]."""
    num_inner = taxonomy.num_nodes - taxonomy.num_classes
    sums = jnp.pad(values, (*[(0, 0)] * (values.ndim - 1), (0, num_inner)))
    for above in taxonomy.ancestors.T[:-1]:
        # A class that hangs higher is at the end of its way more than once.
        inner = np.where(above < taxonomy.num_classes, taxonomy.num_nodes, above)
        sums = sums.at[..., inner].add(values, mode="drop")
    return sums


def shared_depths(taxonomy: Taxonomy, labels: jax.Array) -> jax.Array:
    """How many nodes the ways from the root to labels and to each class share, int32 [..., L].

    A way is filled up with its class, so that a class shares all of its way with itself.
    """
    ways, shape = look_up(taxonomy.ancestors, labels), (*labels.shape, taxonomy.num_classes)
    shared = jnp.zeros(shape, jnp.int32)
    for depth, nodes in enumerate(taxonomy.ancestors.T):
        is_shared = ways[..., depth, None] == along_classes(nodes, len(shape))
        shared += is_shared.astype(jnp.int32)
    return shared


def heights_of_ways(taxonomy: Taxonomy, labels: jax.Array) -> jax.Array:
    """The heights of the nodes from the root to labels, int32 [..., D + 1]."""
    return look_up(taxonomy.heights[taxonomy.ancestors], labels)
