"""The ranks above the classes: the table or the way that `config.dataset.taxonomy` names."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from train.data.own import table_columns
from train.data.own.table_columns import Columns, Table, TableKind
from train.foundation import messages, names, ranks
from train.foundation.errors import UserError
from train.foundation.names import same_form, shown
from train.foundation.ranks import Ranks

FIELD = "config.dataset.taxonomy"
# Genera are the first words of the names of species.
FIRST_WORD = "first_word"
_TABLE = TableKind(
    field=FIELD,
    what=f"a table of classes and their ranks, or {FIRST_WORD}",
    # These names show what is between the columns.
    known=("class", "species", "genus", "family", "order"),
    takes_all=True,
)


def read(given: str, class_names: Sequence[str]) -> Ranks:
    """The ranks of classes.

    A table has a column for each rank, from the classes up, as class, genus and family, or from the
    top down. It may have rows of further classes.

    Args:
        given: the path of a table, or `FIRST_WORD`.
        class_names: the classes.

    Raises:
        UserError: the table cannot be read, lacks a class, or its ranks are not a tree.
    """
    if given == FIRST_WORD:
        return ranks.first_words(class_names)
    table = names.existing(Path(given).expanduser().absolute())
    found = table_columns.read(table, _TABLE)
    where = found.where
    columns = {name: [*map(same_form, column)] for name, column in found.columns.items()}
    if len(columns) < 2:
        raise UserError(
            f"{where} must have a column of classes and one for each rank above them; it has "
            f"{', '.join(map(repr, columns)) or 'none'}"
        )
    first, *_, last = columns
    wanted = [*map(same_form, class_names)]
    own = max(first, last, key=lambda name: len({*columns[name]} & {*wanted}))
    if own == first:
        columns = dict(reversed(columns.items()))
    found = replace(found, columns=columns)
    _check_cells(found)
    rows = _rows_of(wanted, own, found)
    above = {name: [column[row] for row in rows] for name, column in columns.items()}
    del above[own]
    _check_tree(above, wanted, where)
    return Ranks((*above, own), tuple(zip(*above.values(), strict=True)))


def _check_cells(table: Table) -> None:
    """Refuses empty names, and names of one rank that differ only in case."""
    for name, column in table.columns.items():
        are_visible = [*map(names.is_visible, column)]
        if not all(are_visible):
            place = table.at(are_visible.index(False))
            raise UserError(f"{place}: the column {name} is empty")
        rows: dict[str, int] = {}
        for row, cell in enumerate(column):
            first = rows.setdefault(cell.casefold(), row)
            if column[first] != cell:
                raise UserError(
                    f"{table.where}: the column {name} has {shown(column[first])!r} "
                    f"({table.place(first)}) and {shown(cell)!r} ({table.place(row)}), which "
                    "differ only in case"
                )


def _rows_of(wanted: Sequence[str], own: str, table: Table) -> list[int]:
    """The row of each class.

    Raises:
        UserError: a class has none, or several.
    """
    rows: dict[str, int] = {}
    column = table.columns[own]
    for row, name in enumerate(column):
        if rows.setdefault(name, row) != row:
            raise UserError(
                f"{table.where} must have each class once; {table.place(rows[name])} and "
                f"{table.place(row)} both have {shown(name)}"
            )
    if missing := [name for name in wanted if name not in rows]:
        folded = {name.casefold(): name for name in column}
        cased = next((name for name in missing if name.casefold() in folded), None)
        hint = ""
        if cased is not None:
            hint = f"; it has {folded[cased.casefold()]!r} in place of {cased!r}"
        raise UserError(
            f"{table.where} must have a row for each class; it has none for "
            f"{messages.in_words([*map(shown, missing)], 'classes')}{hint}"
        )
    return [rows[name] for name in wanted]


def _check_tree(above: Columns, class_names: Sequence[str], where: str) -> None:
    """Refuses a name with two names above it, and names that are above each other."""
    listed = [*above.items()]
    orders: dict[tuple[str, str], str] = {}
    for (upper, over), (lower, under) in itertools.pairwise(listed):
        parent: dict[str, tuple[str, str]] = {}
        for name, child, of_class in zip(over, under, class_names, strict=True):
            other, of_other = parent.setdefault(child, (name, of_class))
            if other != name:
                raise UserError(
                    f"{where}: the {lower} {shown(child)} must be in one {upper}; it is in "
                    f"{shown(other)} ({shown(of_other)}) and in {shown(name)} ({shown(of_class)})"
                )
            orders.setdefault((name, child), of_class)
    for (name, child), of_class in orders.items():
        if name != child and (child, name) in orders:
            raise UserError(
                f"{where}: no two names may be above each other; {shown(name)} is above "
                f"{shown(child)} ({shown(of_class)}) and below it ({shown(orders[child, name])})"
            )
