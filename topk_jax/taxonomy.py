"""Trees whose leaves are the classes: species, genera, families.

`topk_jax.sets` has the sets, scores and probabilities of the nodes of such a tree.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from functools import cached_property

import jax
import numpy as np

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

    Raises:
        TypeError: `names` or `parents` is not a tuple, a name is not a string, or a parent is not
            an integer.
        ValueError: the parents are not a tree: there are several roots or a circle, or the root is
            not the last node; or the classes do not come before the other nodes.

    Example:
        >>> from topk_jax.taxonomy import Taxonomy
        >>> taxonomy = Taxonomy.from_paths(
        ...     [("Quercus", "robur"), ("Quercus", "ilex"), ("Salix", "alba")])
        >>> taxonomy.names
        ('robur', 'ilex', 'alba', 'Quercus', 'Salix', 'all')
        >>> taxonomy.parents
        (3, 3, 4, 5, 5, 5)
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.names, tuple) or not isinstance(self.parents, tuple):
            raise TypeError(
                f"names and parents must be tuples, got {type(self.names).__name__} and "
                f"{type(self.parents).__name__}."
            )
        if not all(isinstance(name, str) for name in self.names):
            raise TypeError("names must be strings.")
        if not all(isinstance(parent, int) for parent in self.parents):
            raise TypeError("parents must be integers.")
        size = len(self.names)
        if size < 2 or len(self.parents) != size:
            raise ValueError(
                "names and parents must have one entry for each class, each node above and the "
                f"root, got {size} names and {len(self.parents)} parents."
            )
        for node, parent in enumerate(self.parents):
            if not 0 <= parent < size:
                raise ValueError(f"parents must be from 0 to {size - 1}, got {parent}.")
            if (parent == node) != (node == size - 1):
                roots = [other for other, above in enumerate(self.parents) if other == above]
                raise ValueError(
                    f"parents must have one root, the last node {size - 1}, got the roots {roots}."
                )
        inner = {*self.parents}
        num_classes = size - len(inner)
        if inner != {*range(num_classes, size)}:
            raise ValueError("parents must be nodes that come after all classes.")
        # A circle is not connected to the root.
        reached = {size - 1}
        for start in range(size):
            node, way = start, set[int]()
            while node not in reached:
                if node in way:
                    raise ValueError(f"parents must be a tree, got a circle through node {node}.")
                way.add(node)
                node = self.parents[node]
            reached |= way

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[str]]) -> "Taxonomy":
        """The taxonomy of classes that are given by their paths.

        Args:
            paths: for each class its names from the top down; the last one is the class. Paths may
                have different lengths. Nodes are the same if their names and all names above are.

        Raises:
            TypeError: a path is a string, or a name is not.
            ValueError: there is no path, a path is empty, two classes have one path, or a class is
                above another class.
        """
        leaves: dict[tuple[str, ...], int] = {}
        for path in paths:
            if isinstance(path, str) or not all(isinstance(name, str) for name in path):
                raise TypeError(f"paths must be sequences of names, got {path!r}.")
            one = tuple(path)
            if not one or one in leaves:
                what = f"{'/'.join(one)} twice" if one else "an empty one"
                raise ValueError(f"paths must name each class once, got {what}.")
            leaves[one] = len(leaves)
        if not leaves:
            raise ValueError("paths must name at least one class, got none.")
        inner: dict[tuple[str, ...], int] = {}
        for path in leaves:
            for depth in range(1, len(path)):
                inner.setdefault(path[:depth], len(leaves) + len(inner))
        if above := [path for path in leaves if path in inner]:
            raise ValueError(
                f"paths must end at classes, got the class {'/'.join(above[0])} above others."
            )
        nodes, root = leaves | inner, len(leaves) + len(inner)
        parents = (nodes.get(path[:-1], root) for path in nodes)
        return cls((*(path[-1] for path in nodes), _ROOT), (*parents, root))

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
        ways = []
        for leaf in range(self.num_classes):
            way = [leaf]
            while way[-1] != self.num_nodes - 1:
                way.append(self.parents[way[-1]])
            ways.append(way[::-1])
        depth = max(map(len, ways))
        return np.array([way + [way[-1]] * (depth - len(way)) for way in ways], np.int32)

    @property
    def depth(self) -> int:
        """The number of nodes below the root on the longest way to a class, D."""
        return int(self.ancestors.shape[1]) - 1

    @cached_property
    def heights(self) -> np.ndarray:
        """How many nodes are below each on the longest way to a class, `[V]`; 0 for classes."""
        heights = np.zeros(self.num_nodes, np.int32)
        for way in self.ancestors:
            nodes = way[: len({*way.tolist()})]
            np.maximum.at(heights, nodes, np.arange(len(nodes))[::-1])
        return heights

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of classes of each node, `[V]`."""
        sizes = np.zeros(self.num_nodes, np.int32)
        for way in self.ancestors:
            sizes[np.unique(way)] += 1
        return sizes
