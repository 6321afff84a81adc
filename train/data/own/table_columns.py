"""Reads the columns of a table of examples: a CSV, TSV or Parquet file, as spreadsheets write them.

In text files these are accepted: a mark of byte order, other separators than the usual one, spaces
around values, blank rows, empty cells at the ends of rows, and the apostrophe before a text that a
spreadsheet would compute.
"""

import collections
import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from absl import logging

from train.foundation import files, text_files
from train.foundation.errors import ELSEWHERE, UserError, first_line
from train.foundation.names import same_form
from train.foundation.spelling import spell

GROUP = "group"
# What is between the columns, by the ending of the file.
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_OTHER_DELIMITERS = (",", ";", "\t", "|")
# A first line that gives Excel the separator of the columns.
_TOLD = re.compile("sep=(.)")

# In the column `mark` of a table that a page of sets has written, in place of a label.
_MARKS = ("none of these", "cannot tell")
# What starts like a formula has an apostrophe before it; a text of the user that starts so has two.
_FORMULA = re.compile("'*[=+@-]")
# These start like one, and are none: a minus, and numbers with a point or a comma.
_NO_FORMULA = re.compile(r"-(?:\d*[.,]?\d+(?:[eE][+-]?\d+)?)?")
_APOSTROPHE = re.compile(f"^'(?={_FORMULA.pattern})")

# The columns by name, each with a text for each row.
Columns = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Table:
    """The columns of a table that are used, and where its rows are in the file.

    Attributes:
        columns: the columns.
        where: the table in messages.
        unit: what `numbers` counts: "line", or "row" in a file without lines.
        numbers: where each row starts, counted from 1.
    """

    columns: Columns
    where: str
    unit: str
    numbers: Sequence[int]

    def place(self, row: int) -> str:
        """A row, counted from 0, in messages: "line 7", its number in an editor or spreadsheet."""
        return f"{self.unit} {self.numbers[row]}"

    def at(self, row: int) -> str:
        """The table and the row in messages."""
        return f"{self.where}, {self.place(row)}"


@dataclass(frozen=True)
class Called:
    """A column by the name that a table has for it, and the field that gives this name."""

    column: str
    field: str


@dataclass(frozen=True, kw_only=True)
class TableKind:
    """What a table is for.

    Attributes:
        field: the field of the configuration that names it.
        what: what the field must name, in messages.
        known: the names of the columns that are used.
        needed: the known columns that the table must have.
        takes_all: whether all columns are used, whatever their names.
        keeps_others: whether the other columns are returned behind those that are used.
    """

    field: str
    what: str
    known: tuple[str, ...]
    needed: tuple[str, ...] = ()
    takes_all: bool = False
    keeps_others: bool = False

    def named(self, table: Path) -> str:
        """The table in messages."""
        return f"{spell(self.field)} {table}"


IMAGES = TableKind(
    field="config.dataset.path",
    what="a table of images",
    known=("path", "label", "split", GROUP),
    needed=("path", "label"),
)
VOTES = replace(IMAGES, known=(*IMAGES.known, "annotator", "shares"))


def read(
    table: Path, kind: TableKind = IMAGES, *, called: Mapping[str, Called] = MappingProxyType({})
) -> Table:
    """A table with the columns that are used, by their known names.

    Rows are left out if they are marked: no class is right, or the person did not know.

    Args:
        table: the file.
        kind: what it is for.
        called: the fields that give known names to columns of other names, by the known names.

    Raises:
        UserError: it cannot be read, or a column is missing.
    """
    # Two of them may be one column.
    given = {name: same_form(one.column) for name, one in called.items()}
    kind = replace(kind, known=(*kind.known, *given.values()))
    suffix = table.suffix.lower()
    if not table.is_file():
        why = files.why_no_file(table)
        raise UserError(
            field=kind.field,
            must_be=kind.what,
            but=f"{table} {why}",
            usually="" if table.exists() else ELSEWHERE,
        )
    if suffix in _DELIMITERS:
        found = _read_text(table, kind, _DELIMITERS[suffix])
    elif suffix == ".parquet":
        found = _read_parquet(table, kind)
    else:
        raise UserError(field=kind.field, must_be="a .csv, .tsv or .parquet file", got=table.name)
    if kind.takes_all:
        return found
    columns = found.columns
    for name in columns:
        if name not in kind.known and name.lower() in kind.known:
            raise UserError(
                f"{kind.named(table)}: the column {name!r} must be called "
                f"{name.lower()!r}, in lower case"
            )
    for name, column in given.items():
        if column not in columns:
            raise UserError(
                field=called[name].field,
                must_be=f"a column of {table}, which are {', '.join(columns)}",
                got=column,
            )
    for name in kind.needed:
        if name not in columns and name not in called:
            raise UserError(
                f"{kind.named(table)} must have the columns {' and '.join(kind.needed)}; it has "
                f"{', '.join(map(repr, columns)) or 'none'}"
            )
    found = _without_marks(found)
    columns = found.columns
    shown = (*kind.known, *columns) if kind.keeps_others else kind.known
    used = {name: columns[name] for name in shown if name in columns}
    used |= {name: columns[column] for name, column in given.items()}
    return replace(found, columns=used)


def escaped(text: str) -> str:
    """A text for a table, with an apostrophe if a spreadsheet would compute it.

    A number, such as a longitude, is not computed, and stays one.

    Examples:
        >>> escaped("=1+1"), escaped("oak"), escaped("-1.5")
        ("'=1+1", 'oak', '-1.5')
    """
    is_formula = _FORMULA.match(text) and not _NO_FORMULA.fullmatch(text)
    return f"'{text}" if is_formula else text


def _without_marks(table: Table) -> Table:
    """The table without the rows that have a mark in place of a label."""
    columns = table.columns
    if "mark" not in columns or "label" not in columns:
        return table
    pairs = [*zip(columns["label"], columns["mark"], strict=True)]
    for row, (label, mark) in enumerate(pairs):
        if label and mark in _MARKS:
            raise UserError(
                f"{table.at(row)}: it must have a label or the mark {mark!r}; it has both"
            )
    marks = [mark if not label and mark in _MARKS else "" for label, mark in pairs]
    counts = collections.Counter(filter(None, marks))
    if not counts:
        return table
    logging.warning(
        "%s: rows without a label are left out: %s",
        table.where,
        ", ".join(f"{count:,} marked {mark!r}" for mark, count in counts.items()),
    )
    kept = [not mark for mark in marks]
    return replace(
        table,
        columns={name: [*itertools.compress(one, kept)] for name, one in columns.items()},
        numbers=[*itertools.compress(table.numbers, kept)],
    )


def _read_text(table: Path, kind: TableKind, usual: str) -> Table:
    try:
        with text_files.opened(table, files.MOST_EXAMPLES_BYTES) as file:
            header, rows = _rows(file, kind, usual)
    except UnicodeError as error:
        raise UserError(
            f"{kind.named(table)} is not a text in UTF-8, or in the encoding of its byte "
            f"order mark: {error}; save it as CSV UTF-8"
        ) from error
    except csv.Error as error:
        raise UserError(f"{kind.named(table)} is not a table: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {table}: {error.strerror}") from error
    if not header:
        raise UserError(f"{kind.named(table)} is empty")
    named = [name for name in header if name]
    if len(set(named)) < len(named):
        raise UserError(f"{kind.named(table)} has two columns of one name")
    # Up to the last column with a name.
    width = max((index for index, name in enumerate(header, start=1) if name), default=0)
    for line, row in rows:
        if len(row) < width or any(row[len(header) :]):
            raise UserError(
                f"{kind.named(table)}, line {line}: it has {len(row)} columns, and the "
                f"first line has {len(header)}"
            )
    columns = {name: [row[index] for _, row in rows] for index, name in enumerate(header) if name}
    return Table(columns, kind.named(table), "line", [line for line, _ in rows])


def _rows(
    lines: Iterator[str], kind: TableKind, usual: str
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and the rows below them, without those that are blank.

    Each row comes with the number of its line.
    """
    numbered = enumerate(lines, start=1)
    start, first = next((one for one in numbered if one[1].strip()), (1, ""))
    if "\0" in first:
        raise csv.Error("it has characters that are zero; save it as UTF-8")
    if told := _TOLD.fullmatch(first.strip("\r\n")):
        delimiter, (start, first) = told[1], next(numbered, (start, ""))
    else:
        delimiter = max((usual, *_OTHER_DELIMITERS), key=lambda one: _num_columns(first, kind, one))
    (_, header), *rows = [
        (line, [_APOSTROPHE.sub("", cell.strip()) for cell in row])
        for line, row in _cells(itertools.chain([first], lines), delimiter, start)
        if any(map(str.strip, row))
    ] or [(start, [])]
    return [same_form(name) for name in header], rows


def _num_columns(header: str, kind: TableKind, delimiter: str) -> tuple[int, int]:
    """How many columns have known names if this is between them, and how many have any name.

    The second number is 0 if only known names count.
    """
    try:
        found = [same_form(name).lower() for _, row in _cells([header], delimiter) for name in row]
    except csv.Error:
        return 0, 0
    return len(set(found) & set(kind.known)), len(set(found)) if kind.takes_all else 0


def _cells(lines: Iterable[str], delimiter: str, start: int = 1) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, and the number of the line that it starts in.

    Args:
        lines: the lines; a row may have several.
        delimiter: what is between the cells.
        start: the number of the first line.

    Raises:
        csv.Error: a row is not complete.
    """
    line, rows = start, csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
    try:
        for row in rows:
            yield line, row
            line = start + rows.line_num
    except csv.Error as error:
        raise csv.Error(f"line {line}: {error}") from error


def _read_parquet(table: Path, kind: TableKind) -> Table:
    try:
        import pyarrow.parquet  # noqa: PLC0415 (only who has such a table needs it)
    except ImportError as error:
        raise UserError(
            f"{spell(kind.field)}: reading .parquet needs pyarrow; pip install pyarrow, "
            "or give a .csv file"
        ) from error
    try:
        found = pyarrow.parquet.read_table(table)
        columns = found.to_pydict()
    except Exception as error:  # A damaged file can make the reader raise anything.
        raise UserError(
            f"{kind.named(table)} is not a Parquet file: {first_line(error)}"
        ) from error
    texts = {
        same_form(str(name)): ["" if value is None else str(value).strip() for value in values]
        for name, values in columns.items()
    }
    return Table(texts, kind.named(table), "row", range(1, found.num_rows + 1))
