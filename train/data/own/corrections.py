"""Corrected labels: the table that `config.dataset.corrections` names.

It has the columns `name` or `path`, the name of an example, and `correction`: the name of a class,
`LEFT_OUT`, or nothing for an example whose label stays. A table without the column `correction` has
the corrections in the column `label`. `train.audit` writes such tables, and so does a person who
marks classes on a page of sets.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from train.data.own import table_columns
from train.data.own.listing import Listing
from train.data.own.table_columns import TableKind
from train.foundation import messages, names
from train.foundation.errors import UserError
from train.foundation.fields import did_you_mean
from train.foundation.names import same_form, shown
from train.foundation.spelling import spell

FIELD = "config.dataset.corrections"
# The correction that leaves an example out.
LEFT_OUT = "-"
_NAMES = ("name", "path")
_TABLE = TableKind(
    field=FIELD,
    what="a table of corrections",
    known=(*_NAMES, "label", "correction"),
    # Names of files that are not UTF-8, as `train.audit` writes them.
    errors="surrogateescape",
)


@dataclasses.dataclass(frozen=True)
class Correction:
    """A row of the table that has a correction.

    Attributes:
        row: its number, from 1.
        name: the name of the example.
        label: the label that the example had; None if the table does not have it.
        correction: the name of a class, or `LEFT_OUT`.
    """

    row: int
    name: str
    label: str | None
    correction: str


def read(path: str) -> list[Correction]:
    """The corrections of a table; each example has one.

    Raises:
        UserError: it cannot be read, a column is missing, or an example has two corrections.
    """
    table = names.existing(Path(path).expanduser().absolute())
    columns = table_columns.read(table, _TABLE)
    named = next((name for name in _NAMES if name in columns), None)
    corrected = next((name for name in ("correction", "label") if name in columns), None)
    if named is None or corrected is None:
        raise UserError(
            f"{spell(FIELD)} {table} must have the columns name or path, and correction or label; "
            f"it has {', '.join(map(repr, columns)) or 'none of these'}"
        )
    labels = columns["label"] if corrected == "correction" and "label" in columns else None
    found: dict[str, Correction] = {}
    for index, (name, correction) in enumerate(
        zip(columns[named], columns[corrected], strict=True)
    ):
        if not correction:
            continue
        label = None if labels is None else labels[index]
        one = Correction(index + 1, name, label, correction)
        before = found.setdefault(same_form(name), one)
        if same_form(before.correction) != same_form(correction):
            raise UserError(
                f"{spell(FIELD)} {table}: rows {before.row} and {one.row} have different "
                f"corrections of {shown(name)}: {before.correction!r} and {correction!r}"
            )
    return list(found.values())


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
        root: the folder that relative paths start in; None if the names are not paths.

    Raises:
        UserError: the table is not one of corrections of these examples.
    """
    left_out = np.zeros(len(given), bool)
    if path is None:
        return given, left_out
    corrections = read(path)
    in_table = f"{spell(FIELD)} {path}"
    index_of = _finder(named, len(given), root)
    class_of = {same_form(name): label for label, name in enumerate(given.class_names)}
    missing, labels = [], given.labels.copy()
    for one in corrections:
        index = index_of(one.name)
        if index is None:
            missing.append(f"{shown(one.name)} (row {one.row})")
            continue
        if index < 0:
            raise UserError(
                f"{in_table}, row {one.row}: several {example}s of {where} are called "
                f"{shown(one.name)}"
            )
        before = given.class_names[given.labels[index]]
        # Rows have numbers in any file; names are those of the images.
        if not named and one.label is not None and same_form(one.label) != same_form(before):
            raise UserError(
                f"{in_table}, row {one.row}: the label of {one.name} must be that of {where}, "
                f"{before!r}; got {one.label!r}",
                usually="the table is one of other data",
            )
        label = class_of.get(same_form(one.correction))
        if label is not None:
            labels[index] = label
        elif one.correction == LEFT_OUT:
            left_out[index] = True
        else:
            raise UserError(
                f"{in_table}, row {one.row}: the correction must be a class of {where}, or "
                f"{LEFT_OUT} to leave the {example} out; got {shown(one.correction)!r}"
                f"{did_you_mean(one.correction, given.class_names)}"
            )
    if missing:
        raise UserError(
            f"{in_table}: {where} has no {example} {messages.in_words(missing, f'{example}s')}"
        )
    return dataclasses.replace(given, labels=labels), left_out


def row_name(index: int) -> str:
    """The name of a row of features without names, counted from 0."""
    return f"row {index}"


def _finder(named: Sequence[str], length: int, root: Path | None) -> Callable[[str], int | None]:
    """Finds the index of an example by its name; None without one, and -1 if there are several.

    A path may be absolute, as in the marks of a page of sets, and have escapes of `in_utf8`.
    """
    places: dict[str, int] = {}
    for index, name in _named(named, length):
        key = same_form(names.in_utf8(name))
        places[key] = -1 if key in places else index

    def find(name: str) -> int | None:
        key = same_form(names.in_utf8(name))
        if key not in places and root is not None and Path(name).is_absolute():
            key = same_form(names.in_utf8(os.path.relpath(name, root)))
        return places.get(key)

    return find


def _named(named: Sequence[str], length: int) -> Iterator[tuple[int, str]]:
    return enumerate(named or map(row_name, range(length)))
