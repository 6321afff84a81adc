"""The set of classes of one example."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from train.data.taxonomy import ClassTree
from train.prediction.thumbnails import Photograph, Thumbnail


class SetRule(Protocol):
    """What is shown of a rule of a run, or of an exported program, beside its sets."""

    @property
    def threshold(self) -> float | None:
        """The threshold; see `CalibratedRule`."""

    @property
    def tree(self) -> ClassTree | None:
        """What is above the classes, if sets have names; None for sets of any classes."""

    @property
    def says_new(self) -> bool:
        """Whether a set can say "none of these"."""

    def __str__(self) -> str:
        """The rule, as "coverage=0.9"."""


@dataclass(frozen=True)
class Unreadable:
    """A file that cannot be read as an image, and the reason."""

    path: Path
    error: str


@dataclass(frozen=True)
class Scored:
    """An example with its probabilities, before a set is made of them.

    Attributes:
        probabilities: of all classes, [L].
        photograph: the photograph; None for rows.
    """

    probabilities: np.ndarray
    photograph: Photograph | None = None


@dataclass(frozen=True)
class Similar:
    """A training example that is similar to an example.

    Attributes:
        name: its name.
        cosine: of the angle between the features of both, from -1 to 1.
        thumbnail: of its image; None for rows of features, and for a file that is gone.
        credit: the author and the licence of its image; empty if neither is known.
    """

    name: str
    cosine: float
    thumbnail: Thumbnail | None
    credit: str = ""


@dataclass(frozen=True, kw_only=True)
class ClassSet(abc.ABC):
    """The set of an example.

    Attributes:
        classes: the indices of the classes in the set, by decreasing probability.
        probabilities: the probabilities of these classes.
        likeliest: the index of the class of highest probability, which may not be in the set.
        highest: its probability.
        nodes: the nodes of the taxonomy that name the set, by decreasing probability; None for a
            set without names.
        node_probabilities: the probabilities of these nodes.
        none_of_these: whether it may be none of the classes; None for a set that cannot say that.
        similar: for each of the first classes, the most similar training examples, if requested.
    """

    classes: tuple[int, ...]
    probabilities: tuple[float, ...]
    likeliest: int
    highest: float
    nodes: tuple[int, ...] | None = None
    node_probabilities: tuple[float, ...] = ()
    none_of_these: bool | None = None
    similar: tuple[tuple[Similar, ...], ...] = ()

    @property
    @abc.abstractmethod
    def origin(self) -> dict[str, Any]:
        """The example of the set, as fields of a line of JSON."""

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """What a page calls the example."""

    @property
    def photographs(self) -> tuple[Photograph, ...]:
        """The photographs that the set is made from; none for rows."""
        return ()

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """Further photographs of the example, which cannot be read."""
        return ()

    @property
    def num_examples(self) -> int:
        """The number of examples that it is the set of, with those that cannot be read."""
        return 1


def members(
    probabilities: np.ndarray,
    answer: Sequence[np.ndarray],
    index: int,
    rule: SetRule,
) -> dict[str, Any]:
    """The attributes of a `ClassSet`.

    Args:
        probabilities: of all classes, [L].
        answer: what the rule answers for several examples, as `inference.Inference` has it.
        index: which of them.
        rule: the rule.
    """
    chosen, *others = (rows[index] for rows in answer)
    # Among equal probabilities, the lower index comes first.
    order = np.argsort(-probabilities, kind="stable")
    classes = order[chosen[order]]
    return {
        "classes": tuple(classes.tolist()),
        "probabilities": tuple(probabilities[classes].tolist()),
        "likeliest": int(order[0]),
        "highest": float(probabilities[order[0]]),
        **({} if rule.tree is None else _names(probabilities, others[0], rule.tree)),
        "none_of_these": bool(others[-1]) if rule.says_new else None,
    }


def _names(probabilities: np.ndarray, used: np.ndarray, tree: ClassTree) -> dict[str, Any]:
    """The nodes that name a set."""
    exact = probabilities.astype(np.float64)
    found = {
        node: min(1.0, float(exact[tree.members(node)].sum()))
        for node in np.flatnonzero(used).tolist()
    }
    nodes = sorted(found, key=lambda node: -found[node])
    return {
        "nodes": tuple(nodes),
        "node_probabilities": tuple(found[node] for node in nodes),
    }
