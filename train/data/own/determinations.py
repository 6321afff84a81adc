"""Labels of examples that may have more than one: votes of several annotators, or several labels.

A cell of a table has one label or several, with semicolons between them: "oak; ash". A label that
is voted for may have a number: "oak: 3; ash: 1" are four votes, and "oak: 0.75; ash: 0.25" are
shares.
"""

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from train.configuration.datasets import DatasetFields, LabelsFields, TableFields
from train.data.own.table_columns import GROUP, Called, Table
from train.data.truths import ONE, SEVERAL, VOTES
from train.foundation.errors import UserError
from train.foundation.names import check_visible, same_form, shown

_BETWEEN = re.compile("[;|]")
_WITH_NUMBER = re.compile(r"(.*\S)\s*:\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
# Shares have few digits in a table.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Reading:
    """How the labels of the user's own examples are read.

    Attributes:
        labels: what they are, a value of `config.dataset.labels`.
        votes: how votes are aggregated, a value of `config.dataset.votes`.
        called: the columns of a table that have other names than usual.
        label_columns: what the columns of the labels are called here; each is of one person if
            they are several.
    """

    labels: str = ONE
    votes: str = "shares"
    called: Mapping[str, Called] = dataclasses.field(default_factory=dict)
    label_columns: tuple[str, ...] = ("label",)

    @classmethod
    def of_group(cls, group: str | None) -> "Reading":
        """The reading of one label an example, with a column of the groups; None for `GROUP`."""
        return cls(called={} if group is None else {GROUP: Called(group, "config.dataset.group")})

    @classmethod
    def of(cls, fields: DatasetFields, group: str | None) -> "Reading":
        """The reading that `config.dataset` asks for, with a column of the groups."""
        called = dict(cls.of_group(group).called)
        if not isinstance(fields, LabelsFields):
            return cls(called=called)
        labels = ["label"]
        if isinstance(fields, TableFields):
            given = {"path": fields.image, "annotator": fields.annotator}
            columns = [] if fields.label is None else fields.label.split(",")
            labels += [f"label {number}" for number in range(2, len(columns) + 1)]
            given |= dict(zip(labels, columns, strict=False))
            of_names = {"path": "image", "annotator": "annotator"}
            for name, column in given.items():
                if column is not None:
                    field = f"config.dataset.{of_names.get(name, 'label')}"
                    called[name] = Called(column.strip(), field)
        return cls(fields.labels, fields.votes, called, tuple(labels))


ONE_LABEL = Reading()


@dataclass(frozen=True)
class Determinations:
    """Labels that people gave to n examples.

    Attributes:
        examples: the example of each label, [v].
        texts: the labels, [v].
        weights: how many votes each is, [v].
        voters: who gave it, [v]; empty texts if that is not known.
    """

    examples: np.ndarray
    texts: tuple[str, ...]
    weights: np.ndarray
    voters: tuple[str, ...]


@dataclass(frozen=True)
class _Row:
    """The labels of a cell: the example, its place in messages, and who gave them."""

    example: int
    place: str
    voter: str
    texts: Sequence[str]
    weights: Sequence[float]


def rows_of_paths(table: Table) -> tuple[list[int], np.ndarray]:
    """The first row of each path, and the number of the path of each row, [rows].

    Raises:
        UserError: rows of one path have several splits or groups.
    """
    columns = table.columns
    first: dict[str, int] = {}
    numbers: dict[str, int] = {}
    # A path can be spelled in several ways.
    paths = [*map(os.path.normpath, columns["path"])]
    for row, path in enumerate(paths):
        before = first.setdefault(path, row)
        numbers.setdefault(path, len(numbers))
        for name in ("split", GROUP):
            if name in columns and columns[name][before] != columns[name][row]:
                raise UserError(
                    f"{table.where}: {table.place(before)} and {table.place(row)} have the same "
                    f"path, {shown(path)}, and another {name}: {shown(columns[name][before])!r} "
                    f"and {shown(columns[name][row])!r}"
                )
    return [*first.values()], np.array([numbers[path] for path in paths], np.int64)


def in_table(table: Table, examples: np.ndarray, reading: Reading) -> Determinations:
    """The labels in the rows of a table.

    Args:
        table: the table.
        examples: the example of each row, [rows].
        reading: how they are read.

    Raises:
        UserError: a label or a number is missing or wrong, or an annotator has voted twice.
    """
    columns, names = table.columns, reading.label_columns
    of_experts = len(names) > 1
    voters, shares = columns.get("annotator", ()), columns.get("shares")
    if of_experts and (voters or shares is not None):
        raise UserError(
            f"{table.where} must have one column of labels if it has a column annotator or shares; "
            f"config.dataset.label has {len(names)}"
        )
    rows = []
    for row, example in enumerate(examples.tolist()):
        place = table.at(row)
        cells = [columns[name][row] for name in names]
        if not any(cells):
            raise UserError(f"{place}: an example must have a label; {_empty(names, reading)}")
        for name, cell in zip(names, cells, strict=True):
            if not cell:
                continue
            texts, weights = _labels_of(cell, reading.labels, place)
            if shares is not None:
                weights = _shares_of(shares[row], len(texts), place)
            voter = name if of_experts else voters[row] if voters else ""
            rows.append(_Row(example, place, voter, texts, weights))
    return _collected(rows, reading)


def _empty(names: Sequence[str], reading: Reading) -> str:
    """That these columns, by the names that the table has for them, are empty."""
    columns = [reading.called[name].column if name in reading.called else name for name in names]
    if len(columns) == 1:
        return f"the column {columns[0]} is empty"
    return f"the columns {', '.join(columns[:-1])} and {columns[-1]} are empty"


def in_lists(
    texts: Sequence[Sequence[str]],
    shares: np.ndarray | None,
    voters: Sequence[Sequence[str]] | None,
    reading: Reading,
    where: str,
) -> Determinations:
    """The labels of rows of features, whose number may differ from row to row.

    Args:
        texts: the labels of each row, [n][m]; empty texts stand for none.
        shares: their shares or their numbers of votes, [n, m]; None if each is a vote.
        voters: who gave each, [n][m]; None if that is not known.
        reading: how they are read.
        where: the arrays in messages.

    Raises:
        UserError: a row does not have a label, its shares are wrong, or an annotator has two votes
            on it.
    """
    rows = []
    for example, labels in enumerate(texts):
        place = f"{where}: row {example}, counted from 0"
        kept = [index for index, text in enumerate(labels) if text]
        weights = [1.0] * len(kept)
        if shares is not None:
            if np.any(np.delete(shares[example], kept) > 0):
                raise UserError(f"{place}, has shares without a label")
            weights = _checked(shares[example][kept].tolist(), place)
        if not kept:
            raise UserError(f"{place}, has no label")
        found = [labels[index] for index in kept]
        if voters is None:
            rows.append(_Row(example, place, "", found, weights))
        else:
            rows += [
                _Row(example, place, voters[example][index], [text], [weight])
                for index, text, weight in zip(kept, found, weights, strict=True)
            ]
    return _collected(rows, reading)


def _collected(rows: Iterable[_Row], reading: Reading) -> Determinations:
    examples: list[int] = []
    texts: list[str] = []
    weights: list[float] = []
    voters: list[str] = []
    known: set[tuple[int, str]] = set()
    for row in rows:
        voter = same_form(row.voter)
        check_visible(voter, f"{row.place}: the name of an annotator")
        if voter and reading.labels == VOTES:
            if (row.example, voter) in known:
                raise UserError(f"{row.place}: {shown(row.voter)!r} has two votes on one example")
            known.add((row.example, voter))
        # What one person gives is one vote, however it is divided.
        total = math.fsum(row.weights) if voter else 1.0
        for text, weight in zip(row.texts, row.weights, strict=True):
            if weight > 0:
                examples.append(row.example)
                texts.append(text)
                weights.append(weight / total)
                voters.append(voter)
    return Determinations(
        np.array(examples, np.int64), tuple(texts), np.array(weights), tuple(voters)
    )


def _labels_of(cell: str, labels: str, place: str) -> tuple[list[str], list[float]]:
    """The labels of a cell, and their numbers of votes or their shares."""
    parts = [part.strip() for part in _BETWEEN.split(cell) if part.strip()]
    if not parts:
        raise UserError(f"{place}: a label must be a text; got {shown(cell)!r}")
    numbered = [_WITH_NUMBER.fullmatch(part) for part in parts]
    if labels == SEVERAL or not any(numbered):
        return parts, [1.0] * len(parts)
    matches = [match for match in numbered if match is not None]
    if len(matches) < len(parts):
        raise UserError(
            f"{place}: all labels of an example must have a number, or none; got {shown(cell)!r}"
        )
    return [match[1] for match in matches], _checked([float(match[2]) for match in matches], place)


def _shares_of(cell: str, number: int, place: str) -> list[float]:
    """The numbers in a cell of the column `shares`, one for each label."""
    try:
        found = [float(part) for part in _BETWEEN.split(cell)]
    except ValueError:
        found = []
    if len(found) != number:
        raise UserError(
            f"{place}: shares must be {number} numbers with semicolons between them, one for each "
            f"label; got {shown(cell)!r}"
        )
    return _checked(found, place)


def _checked(numbers: list[float], place: str) -> list[float]:
    """Numbers of votes, or shares, of one example."""
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise UserError(f"{place}: votes and shares must be at least 0; got {_listed(numbers)}")
    total = math.fsum(numbers)
    if total == 0:
        raise UserError(f"{place}: an example must have a vote; all its numbers are 0")
    whole = all(number == int(number) for number in numbers)
    if not whole and abs(total - 1) > _ROUNDING * len(numbers):
        raise UserError(
            f"{place}: shares must add up to 1, and votes must be integers; got "
            f"{_listed(numbers)}, which add up to {total:g}"
        )
    return numbers


def _listed(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
