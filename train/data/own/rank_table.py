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
from train.foundation.spelling import spell

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
    top down. It may have rows of further classes, which are not looked at. An empty cell is a rank
    that the class does not have.

    Args:
        given: the path of a table, or `FIRST_WORD`.
        class_names: the classes.

    Raises:
        UserError: the table cannot be read, lacks a class, or its ranks are not a tree; or each
            class is alone in all of them.
    """
    found = ranks.first_words(class_names) if given == FIRST_WORD else _of_table(given, class_names)
    if not found.are_shared():
        raise UserError(
            f"{spell(FIELD)} must have two classes or more in one {' or '.join(found.names[:-1])}; "
            f"with {given} each of the {len(class_names):,} classes is alone, such as "
            f"{shown(class_names[0])!r}"
        )
    return found


def _of_table(given: str, class_names: Sequence[str]) -> Ranks:
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
    rows = _rows_of(wanted, own, replace(found, columns=columns))
    above = {
        name: [column[row] if names.is_visible(column[row]) else "" for row in rows]
        for name, column in columns.items()
        if name != own
    }
    _check_case(above, wanted, where)
    result = Ranks((*above, own), tuple(zip(*above.values(), strict=True)))
    _check_tree(result, wanted, where)
    return result


def _check_case(above: Columns, class_names: Sequence[str], where: str) -> None:
    """Refuses names of one rank that differ only in case."""
    for rank, column in above.items():
        spelled: dict[str, tuple[str, str]] = {}
        for name, of_class in zip(column, class_names, strict=True):
            other, of_other = spelled.setdefault(name.casefold(), (name, of_class))
            if other != name:
                raise UserError(
                    f"{where}: the column {rank} has {shown(other)!r} ({shown(of_other)}) and "
                    f"{shown(name)!r} ({shown(of_class)}), which differ only in case"
                )


def _rows_of(wanted: Sequence[str], own: str, table: Table) -> list[int]:
    """The row of each class.

    Raises:
        UserError: a class has none, or several.
    """
    rows: dict[str, int] = {}
    column, classes = table.columns[own], {*wanted}
    for row, name in enumerate(column):
        if name in classes and rows.setdefault(name, row) != row:
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


def _check_tree(found: Ranks, class_names: Sequence[str], where: str) -> None:
    """Refuses a name in two places, names above each other, and classes that others are in."""
    above: dict[tuple[str, str], tuple[str, str]] = {}
    orders: dict[tuple[str, str], str] = {}
    for named, of_class in zip(found.above, class_names, strict=True):
        # The names of the class in the ranks that it has, below what is above all classes.
        way = [("", ""), *(one for one in zip(found.names, named, strict=False) if one[1])]
        for (upper, name), (lower, child) in itertools.pairwise(way):
            place = f"the {upper} {shown(name)}" if upper else "no rank"
            other, of_other = above.setdefault((lower, child), (place, of_class))
            if other != place:
                raise UserError(
                    f"{where}: the {lower} {shown(child)} must be in one place; it is in {other} "
                    f"({shown(of_other)}) and in {place} ({shown(of_class)})"
                )
            orders.setdefault((name, child), of_class)
            if name != child and (child, name) in orders:
                raise UserError(
                    f"{where}: no two names may be above each other; {shown(child)} is above "
                    f"{shown(name)} ({shown(orders[child, name])}) and below it ({shown(of_class)})"
                )
    inner: dict[tuple[str, ...], str] = {}
    paths = found.paths(class_names)
    for path in paths:
        inner |= {path[:depth]: path[-1] for depth in range(1, len(path))}
    if both := next((path for path in paths if path in inner), None):
        rank, own = found.names[len(both) - 1], shown(both[-1])
        raise UserError(
            f"{where}: the class {own} must be in a {rank}: {shown(inner[both])} is in the {rank} "
            f"{own}"
        )
