"""Writes sets of classes as lines of JSON, to a file or to standard output."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from train.foundation import files
from train.prediction.class_sets import ClassSet, SetRule, Unreadable


def to_line(entry: ClassSet | Unreadable, rule: SetRule, names: Sequence[str]) -> bytes:
    """The line of one example; its fields are described in `train.predict`."""
    if isinstance(entry, Unreadable):
        return files.to_json({"path": str(entry.path), "error": entry.error})
    origin, described = entry.origin, describe(entry, rule, names)
    assert not origin.keys() & described.keys()
    return files.to_json(origin | described)


def describe(entry: ClassSet, rule: SetRule, names: Sequence[str]) -> dict[str, Any]:
    """The set of an example, as the fields of its line after those that name the example."""
    members = [
        {"class": names[index], "index": index, "probability": probability}
        for index, probability in zip(entry.classes, entry.probabilities, strict=True)
    ]
    return {
        "set": members,
        "size": len(members),
        **_names(entry, rule, names),
        **({} if entry.none_of_these is None else {"none_of_these": entry.none_of_these}),
        "threshold": rule.threshold,
        "rule": str(rule),
    }


def _names(entry: ClassSet, rule: SetRule, names: Sequence[str]) -> dict[str, Any]:
    """The names of a set, if sets have names."""
    if rule.tree is None or entry.nodes is None:
        return {}
    described = rule.tree.describe(entry.nodes, names)
    pairs = zip(described, entry.node_probabilities, strict=True)
    return {"names": [{**node, "probability": probability} for node, probability in pairs]}


@contextlib.contextmanager
def writing(out: Path | None) -> Iterator[BinaryIO]:
    """The file to write lines to: `out`, which is replaced at the end, or standard output."""
    if out is not None:
        with files.replacing(out) as file:
            yield file
        return
    with files.name_in_errors(Path("standard output")):
        yield sys.stdout.buffer
        sys.stdout.flush()
