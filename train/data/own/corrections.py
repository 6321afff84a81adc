"""Corrected labels: the table that `config.dataset.corrections` names.

It has a column that names the example, `name`, `path` or, for features, `row`, and `correction`:
the name of a class, `LEFT_OUT`, or nothing for an example whose label stays. A table without the
column `correction` has the corrections in the column `label`. `train.audit` writes such tables, and
so does a person who marks classes on a page of sets.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from absl import logging

from train.data.own import table_columns
from train.data.own.listing import Listing
from train.data.own.table_columns import TableKind
from train.foundation import messages, names
from train.foundation.errors import UserError
from train.foundation.fields import did_you_mean
from train.foundation.names import in_utf8, same_form, shown
from train.foundation.spelling import spell

FIELD = "config.dataset.corrections"
# The correction that leaves an example out.
LEFT_OUT = "-"
_ROW = "row"
_NAMES = ("name", "path", _ROW)
_TABLE = TableKind(
    field=FIELD,
    what="a table of corrections",
    known=(*_NAMES, "label", "correction"),
)


@dataclasses.dataclass(frozen=True)
class Correction:
    """A row of the table that has a correction.

    Attributes:
        place: where it is in the table, such as "line 7".
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
    table = names.existing(Path(path).expanduser().absolute())
    found = table_columns.read(table, _TABLE)
    columns = found.columns
    named = next((name for name in _NAMES if name in columns), None)
    corrected = next((name for name in ("correction", "label") if name in columns), None)
    if named is None or corrected is None:
        raise UserError(
            f"{found.where} must have the columns name, path or row, and correction or "
            f"label; it has {', '.join(map(repr, columns)) or 'none of these'}"
        )
    labels = columns["label"] if corrected == "correction" and "label" in columns else None
    called = map(row_name, columns[named]) if named == _ROW else columns[named]
    return [
        Correction(found.place(index), name, None if labels is None else labels[index], correction)
        for index, (name, correction) in enumerate(zip(called, columns[corrected], strict=True))
        if correction
    ]


def apply(
    given: Listing,
    path: str | None,
    named: Sequence[str],
    *,
    where: str,
    example: str,
    root: Path | None = None,
) -> tuple[Listing, np.ndarray]:
    """The examples with corrected labels, and which of them are left out, bool [n].

    Args:
        given: the examples as they are given.
        path: `config.dataset.corrections`.
        named: the names of the examples, [n]; empty for rows without names, which are called by
            `row_name`.
        where: what the examples were found in, for messages.
        example: what messages call an example, "image" or "row".
        root: the folder that the names are paths in. The table may have absolute paths.

    Raises:
        UserError: the table is not one of corrections of these examples.
    """
    left_out = np.zeros(len(given), bool)
    if path is None:
        return given, left_out
    corrections = read(path)
    in_table = f"{spell(FIELD)} {path}"
    places: dict[str, int] = {}
    for place, name in enumerate(named or map(row_name, range(len(given)))):
        # The place is negative if several examples have the name.
        places[key(name)] = -1 if key(name) in places else place
    class_of = {key(name): label for label, name in enumerate(given.class_names)}
    missing, labels, corrected = [], given.labels.copy(), list[int]()
    made: dict[int, Correction] = {}
    for one in corrections:
        keys = map(key, _spellings(one.name, root))
        index = next((places[one_key] for one_key in keys if one_key in places), None)
        if index is None:
            missing.append(f"{shown(one.name)} ({one.place})")
            continue
        if index < 0:
            raise UserError(
                f"{in_table}, {one.place}: several {example}s of {where} are called "
                f"{shown(one.name)}"
            )
        earlier = made.setdefault(index, one)
        if key(earlier.correction) != key(one.correction):
            raise UserError(
                f"{in_table}: {earlier.place} and {one.place} have different corrections of "
                f"{shown(one.name)}: {earlier.correction!r} and {one.correction!r}"
            )
        before = given.class_names[given.labels[index]]
        # Row numbers fit any file, so the labels of rows are compared, too. Names identify the
        # images.
        if not named and one.label is not None and key(one.label) != key(before):
            raise UserError(
                f"{in_table}, {one.place}: the label of {one.name} must be {before!r}, as in "
                f"{where}; got {one.label!r}",
                usually="the table is for other data",
            )
        label = class_of.get(key(one.correction))
        if label is not None:
            labels[index] = label
            corrected.append(index)
        elif one.correction == LEFT_OUT:
            left_out[index] = True
        else:
            raise UserError(
                f"{in_table}, {one.place}: the correction must be a class of {where}, or "
                f"{LEFT_OUT} to leave the {example} out; got {shown(one.correction)!r}"
                f"{did_you_mean(one.correction, given.class_names)}"
            )
    if missing:
        raise UserError(
            f"{in_table}: {where} has no {example} {messages.in_words(missing, f'{example}s')}"
        )
    logging.warning(
        "%s: changed labels: %s; %ss left out: %s",
        in_table,
        f"{np.count_nonzero(labels != given.labels):,}",
        example,
        f"{np.count_nonzero(left_out):,}",
    )
    truths = given.truths
    if truths is not None:
        truths = truths.corrected(np.array(corrected, np.int64), labels[corrected])
    return dataclasses.replace(given, labels=labels, truths=truths), left_out


def row_name(index: object) -> str:
    """The name of a row of features without names, counted from 0."""
    return f"row {index}"


def key(name: str) -> str:
    """What all spellings of the name of an example have in common."""
    return same_form(in_utf8(name))


def _spellings(name: str, root: Path | None) -> Iterator[str]:
    """A name and, if it is an absolute path, what it is below the folder of the names.

    Nobody knows the folder of the images that features are of: it may be any above them.
    """
    yield name
    if not name.startswith("/"):
        return
    if root is None:
        parts = name.split("/")
        yield from ("/".join(parts[start:]) for start in range(1, len(parts)))
        return
    for start in (os.path.abspath(root), os.path.realpath(root)):  # noqa: PTH100
        if name.startswith(f"{start}/"):
            yield name[len(start) + 1 :]
