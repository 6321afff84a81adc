"""The tree of the classes of a run: the nodes of its taxonomy, their names and their ranks."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from topk_jax import sets
from topk_jax.taxonomy import Taxonomy
from train.foundation.ranks import Ranks, plural

# After the name of the flag or field.
HOW_TO_GIVE = "a table of the classes and their ranks, or first_word for the genera of names"
# The rank of the node that has all classes.
ALL = "all"


@dataclass(frozen=True)
class ClassTree:
    """A taxonomy with the names of its ranks.

    Attributes:
        ranks: the names of the ranks from the top down; the last is the rank of the classes.
        taxonomy: the tree.
    """

    ranks: tuple[str, ...]
    taxonomy: Taxonomy

    @classmethod
    def of(cls, ranks: Ranks, class_names: Sequence[str]) -> "ClassTree":
        """The tree of classes, without ranks that none of them has."""
        ranks = ranks.that_exist()
        return cls(ranks.names, Taxonomy.from_paths(ranks.paths(class_names)))

    @cached_property
    def rank_of_node(self) -> tuple[str, ...]:
        """The rank of each node; `ALL` for the root."""
        depths = np.zeros(self.taxonomy.num_nodes, int)
        for depth, nodes in enumerate(self.taxonomy.ancestors.T):
            depths[nodes] = depth
        inner = (ALL, *self.ranks[:-1])
        leaves = (self.ranks[-1],) * self.taxonomy.num_classes
        return (*leaves, *(inner[depth] for depth in depths[self.taxonomy.num_classes :]))

    @cached_property
    def digest(self) -> str:
        """A hash of the tree."""
        plain = json.dumps([self.taxonomy.names, self.taxonomy.parents])
        return hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()[:12]

    def name(self, chosen: jax.Array, most: int) -> jax.Array:
        """The nodes that name sets [n, L], at most `most` for each, as booleans [n, V]."""
        return sets.fewest_names(chosen, self.taxonomy, names=most)

    def widen(self, chosen: jax.Array, most: int) -> jax.Array:
        """The smallest sets [n, L] with at most `most` names that contain sets [n, L]."""
        return sets.node_set(self.name(chosen, most), self.taxonomy)

    def members(self, node: int) -> np.ndarray:
        """The classes of a node, by their indices."""
        return np.flatnonzero((self.taxonomy.ancestors == node).any(axis=1))

    def describe(self, nodes: Iterable[int], class_names: Sequence[str]) -> list[dict[str, Any]]:
        """Nodes as files have them.

        Args:
            nodes: the nodes.
            class_names: what the classes are called.
        """
        names = (*class_names, *self.taxonomy.names[self.taxonomy.num_classes :])
        return [
            {
                "name": names[node],
                "rank": self.rank_of_node[node],
                "classes": int(self.taxonomy.sizes[node]),
            }
            for node in nodes
        ]

    def title(self, node: int, class_names: Sequence[str]) -> str:
        """What is shown to users: "Quercus (4 species)", or the name of a class."""
        (described,) = self.describe([node], class_names)
        if node < self.taxonomy.num_classes:
            return str(described["name"])
        number = described["classes"]
        what = self.ranks[-1] if number == 1 else plural(self.ranks[-1])
        return f"{described['name']} ({number:,} {what})"

    def to_plain(self) -> dict[str, Any]:
        """The tree as the description of a program has it: a node, its name, rank and parent."""
        return {
            "ranks": list(self.ranks),
            "names": list(self.taxonomy.names),
            "parents": list(self.taxonomy.parents),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> "ClassTree":
        """The tree from the result of `to_plain`.

        Raises:
            ValueError: it is not one.
        """
        tree = Taxonomy(tuple(plain["names"]), tuple(plain["parents"]))
        if tree.ancestors.shape[1] - 1 > len(plain["ranks"]):
            raise ValueError("ranks must have a name for each rank of the tree")
        return cls(tuple(plain["ranks"]), tree)
