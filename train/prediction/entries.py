"""`Entry`: the set of an example or of an observation, and its line of JSON."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topk_jax.rules import Answer
from train.data.taxonomy import ClassTree
from train.prediction.thumbnails import Similar, Thumbnail
from train.reports.rules import SetRule


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """The set of an example or of an observation; or why there is none.

    Attributes:
        origins: its examples as fields of a line: a path, or a row and its name.
        unreadable_origins: the path and the error of each file that cannot be read.
        group: the name of the observation, empty for an example alone; None for a set of one
            example.
        inputs: what the classifier gets; None for an observation.
        probabilities: of all classes, [L]; None if nothing can be read.
        outlier: how unusual it is, if the rule asks for that.
        classes: those of the set, by decreasing probability.
        nodes: the nodes of the taxonomy that name the set, with their probabilities, which
            decrease; None for a set without names.
        none_of_these: whether it may be none of the classes; None for a set that cannot say that.
        thumbnails: those of the first of its photographs, if a page shows them.
        similar: for each of the first classes, the most similar training examples, if requested.
    """

    origins: tuple[dict[str, Any], ...] = ()
    unreadable_origins: tuple[dict[str, Any], ...] = ()
    group: str | None = None
    inputs: np.ndarray | None = None
    probabilities: np.ndarray | None = None
    outlier: float = 0.0
    classes: tuple[int, ...] = ()
    nodes: tuple[tuple[int, float], ...] | None = None
    none_of_these: bool | None = None
    thumbnails: tuple[Thumbnail, ...] = ()
    similar: tuple[tuple[Similar, ...], ...] = ()

    def answered(self, answer: Answer, tree: ClassTree | None) -> "Entry":
        """The entry with what a rule answers for its probabilities.

        Args:
            answer: of this entry only.
            tree: that of the rule, for the nodes of the answer.
        """
        assert self.probabilities is not None
        # Among equal probabilities, the lower index comes first.
        order = np.argsort(-self.probabilities, kind="stable")
        nodes = None
        if tree is not None and answer.nodes is not None:
            exact = self.probabilities.astype(np.float64)
            sums = {
                node: min(1.0, float(exact[tree.members(node)].sum()))
                for node in np.flatnonzero(answer.nodes).tolist()
            }
            nodes = tuple(sorted(sums.items(), key=lambda one: -one[1]))
        return dataclasses.replace(
            self,
            classes=tuple(order[np.asarray(answer.members)[order]].tolist()),
            nodes=nodes,
            none_of_these=None if answer.none_of_these is None else bool(answer.none_of_these),
        )

    @property
    def title(self) -> str:
        """What a page calls it: its group, or else its first example."""
        if self.group:
            return self.group
        origin, *_ = (*self.origins, *self.unreadable_origins)
        return title_of(origin)


def title_of(origin: Mapping[str, Any]) -> str:
    """What a page calls an example: the name of its file, its own name, or its row."""
    if "path" in origin:
        return Path(origin["path"]).name
    return str(origin.get("name", f"row {origin['row']}"))


def to_line(entry: Entry, rule: SetRule, names: Sequence[str]) -> dict[str, Any]:
    """The line of an entry, as docs/sets.md describes it; the server sends it, too."""
    if entry.probabilities is None:
        (unreadable,) = entry.unreadable_origins
        return unreadable
    line: dict[str, Any] = {"group": entry.group or None, "examples": [*entry.origins]}
    if entry.group is None:
        line = dict(*entry.origins)
    elif entry.unreadable_origins:
        line["unreadable"] = [*entry.unreadable_origins]
    chances = entry.probabilities
    line["set"] = [
        {"class": names[index], "index": index, "probability": float(chances[index])}
        for index in entry.classes
    ]
    line["size"] = len(entry.classes)
    if entry.nodes is not None and rule.tree is not None:
        described = rule.tree.describe([node for node, _ in entry.nodes], names)
        pairs = zip(described, entry.nodes, strict=True)
        line["names"] = [{**node, "probability": chance} for node, (_, chance) in pairs]
    if entry.none_of_these is not None:
        line["none_of_these"] = entry.none_of_these
    line["rule"] = str(rule)
    if (on := rule.calibrated_on) is not None:
        # Groups of unequal sizes count as a number that may not be whole.
        groups = int(on.groups) if on.groups == int(on.groups) else on.groups
        line["calibrated_on"] = {"examples": on.examples, "groups": groups}
    return line
