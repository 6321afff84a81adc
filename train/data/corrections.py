"""Corrected labels: the table that `config.dataset.corrections` names.

It has a column that names the example, `name`, `path` or, for features, `row`, and `correction`:
the name of a class, `LEFT_OUT`, or nothing for an example whose label stays. A table without the
column `correction` has the corrections in the column `label`. `train.audit` writes such tables, and
so does a person who marks classes on a page of sets.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from absl import logging

from train.data.examples import Examples
from train.data.sources import table
from train.foundation import names
from train.foundation.errors import UserError
from train.foundation.kinds import did_you_mean

FIELD = "config.dataset.corrections"
# The correction that leaves an example out.
LEFT_OUT = "-"
_LEAVE = -1


@dataclass(frozen=True)
class Correction:
    """A row of the table that has a correction.

    Attributes:
        place: where it is in the table, such as "row 7".
        name: the name of the example.
        label: the label that the example had; None if the table does not have it.
        correction: the name of a class, or `LEFT_OUT`.
    """

    place: str
    name: str
    label: str | None
    correction: str


def read(path: str) -> list[Correction]:
    """The corrections of a table.

    Raises:
        UserError: it cannot be read, or a column is missing.
    """
    columns = table.read(names.existing(Path(path).expanduser().absolute()), FIELD)
    named = next((name for name in ("name", "path", "row") if name in columns), None)
    corrected = next((name for name in ("correction", "label") if name in columns), None)
    if named is None or corrected is None:
        raise UserError(
            f"{FIELD} {path} must have the columns name, path or row, and correction or "
            f"label; it has {', '.join(columns) or 'none'}"
        )
    called = [f"row {name}" if named == "row" else name for name in columns[named]]
    has_labels = corrected == "correction" and "label" in columns
    labels = columns["label"] if has_labels else [None] * len(called)
    rows = enumerate(zip(called, labels, columns[corrected], strict=True))
    return [Correction(table.place(row), *cells) for row, cells in rows if cells[-1]]


def apply(examples: Examples, path: str) -> Examples:
    """The examples of all splits with corrected labels, without those that are left out.

    Raises:
        UserError: the table is not one of corrections of these examples.
    """
    where, classes = f"{FIELD} {path}", examples.class_names
    # Negative if several examples have the name.
    places: dict[str, int] = {}
    for place, name in enumerate(map(key, examples.names_of(np.arange(len(examples))))):
        places[name] = -1 if name in places else place
    class_of = {key(LEFT_OUT): _LEAVE} | {key(name): label for label, name in enumerate(classes)}
    made: dict[int, int] = {}
    for one in read(path):
        told = f"{names.shown(one.name)} ({one.place})"
        index = next((places[name] for name in _spellings(one.name) if name in places), None)
        if index is None:
            raise UserError(f"{where}: {examples.where} has no {told}")
        if index < 0:
            raise UserError(f"{where}: several examples of {examples.where} are called {told}")
        before = classes[examples.labels[index]]
        # Row numbers fit any file. Names identify the examples.
        if examples.names is None and one.label is not None and key(one.label) != key(before):
            must_be = f"{before!r}, as in {examples.where}; got {one.label!r}"
            raise UserError(f"{where}: the label of {told} must be {must_be}")
        if (label := class_of.get(key(one.correction))) is None:
            must_be = f"{LEFT_OUT}, to leave it out, or a class of {examples.where}"
            got = f"got {one.correction!r}{did_you_mean(one.correction, classes)}"
            raise UserError(field=f"{where}: the correction of {told}", must_be=must_be, but=got)
        if made.setdefault(index, label) != label:
            raise UserError(f"{where} has two different corrections of {told}")
    found, labels = np.array([*made], np.int64), np.array([*made.values()], np.int32)
    is_left = labels == _LEAVE
    kept, new, left = found[~is_left], labels[~is_left], found[is_left]
    changed = np.count_nonzero(examples.labels[kept] != new)
    logging.warning(
        "%s: changed labels: %s; examples left out: %s", where, f"{changed:,}", f"{len(left):,}"
    )
    corrected = examples.labels.copy()
    corrected[kept] = new
    truths = None if examples.truths is None else examples.truths.corrected(kept, new)
    examples = replace(examples, labels=corrected, truths=truths)
    return examples.take(np.delete(np.arange(len(examples)), left))


def key(name: str) -> str:
    """What all spellings of the name of an example have in common."""
    return names.same_form(names.in_utf8(name))


def _spellings(name: str) -> Iterator[str]:
    """The keys of a name and, of an absolute path, of its last parts: the folder may have moved."""
    parts = name.split("/") if name.startswith("/") else []
    yield key(name)
    yield from (key("/".join(parts[start:])) for start in range(1, len(parts)))
