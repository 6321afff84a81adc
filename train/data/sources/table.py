"""A table with a row for each image, or for each label of an image: a CSV, TSV or Parquet file."""

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from train.data import votes
from train.data.examples import Examples, classes, given_groups
from train.data.sources.folder import Files, digest_of_sizes
from train.data.sources.named_splits import given_splits
from train.data.truths import ONE
from train.foundation import files, names
from train.foundation.errors import UserError, errors_told

_FIELD = "config.dataset.path"
_KNOWN = frozenset({"path", "label", "split", "group", "annotator", "votes"})
_OF_MAKERS = ("author", "license")
# In the column `mark` of a table that a page of sets has written, in place of a label.
_MARKS = ("none of these", "cannot tell")
# What a spreadsheet would compute has an apostrophe before it; a text that starts so has two.
_FORMULA = re.compile("'*[=+@-]")
_ESCAPED = re.compile(f"^'(?={_FORMULA.pattern})")
# These start as a formula, and are none: a minus, and numbers with a point or a comma.
_NO_FORMULA = re.compile(r"-(?:\d*[.,]?\d+(?:[eE][+-]?\d+)?)?")


def escaped(text: str) -> str:
    """A text for a table, with an apostrophe if a spreadsheet would compute it.

    A number, such as a longitude, is not computed, and stays one.

    Examples:
        >>> escaped("=1+1"), escaped("oak"), escaped("-1.5")
        ("'=1+1", 'oak', '-1.5')
    """
    is_formula = _FORMULA.match(text) and not _NO_FORMULA.fullmatch(text)
    return f"'{text}" if is_formula else text


def encode_rows(rows: Iterable[Iterable[Any]], line_end: str = "\n") -> bytes:
    """Rows as CSV; a spreadsheet computes none of their texts, and a cell of None is empty."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=line_end).writerows(map(_to_cell, row) for row in rows)
    return text.getvalue().encode()


def _to_cell(value: Any) -> Any:
    return escaped(names.in_utf8(value)) if isinstance(value, str) else value


def place(row: int) -> str:
    """What messages call a row, counted from 0, as a spreadsheet does below the names of columns.

    Examples:
        >>> place(0)
        'row 2'
    """
    return f"row {row + 2}"


def read(path: Path, field: str = _FIELD) -> dict[str, np.ndarray]:
    """The columns of a table by their names, texts [rows] without the spaces around them.

    Blank rows are passed over.

    Args:
        path: the file. There may be semicolons between the columns, as many spreadsheets write.
        field: what names the file in messages.

    Raises:
        UserError: it cannot be read, or its rows are uneven.
    """
    where = f"{field} {path}"
    if path.suffix.lower() not in _READERS:
        raise UserError(field=field, must_be="a .csv, .tsv or .parquet file", got=path)
    if not path.is_file():
        raise UserError(field=field, must_be="a table", but=f"there is no file {path}")
    with errors_told(f"cannot read {where}", "; a text must be saved as CSV UTF-8"):
        header, *rows = _READERS[path.suffix.lower()](path)
    for index, row in enumerate(rows):
        if len(row) != len(header):
            must_have = f"{len(header)} columns as the first; it has {len(row)}"
            raise UserError(f"{where}, {place(index)} must have {must_have}")
    header = [*map(names.same_form, header)]
    if len(named := [*filter(None, header)]) > len(set(named)):
        raise UserError(f"{where} has two columns of one name: {', '.join(named)}")
    cells = np.array(rows, object).reshape(len(rows), len(header))
    return {name: cells[:, column] for column, name in enumerate(header) if name}


def find(
    path: Path, *, columns: Mapping[str, str], kind: str, rule: str, labelled: bool = True
) -> Examples:
    """The images that a table lists, in its order.

    It has the columns `path`, relative to its folder, and `label`, and perhaps `split`, `group`,
    `author` and `license`. Several labels of an image are in several rows, or in one cell, perhaps
    with `annotator` and `votes`; see `votes.truths`.

    Args:
        path: the file.
        columns: the names of the columns that have other names in the table.
        kind: `config.dataset.labels`.
        rule: `config.dataset.votes`.
        labelled: whether the images have classes.

    Raises:
        UserError: the table does not have that form.
    """
    where, root = f"{_FIELD} {path}", path.parent
    table = _columns(path, where, columns, labelled=labelled)
    number: dict[str, int] = {}
    paths = (os.path.normpath(os.path.join(root, one)) for one in table["path"])  # noqa: PTH118
    images = np.array([number.setdefault(one, len(number)) for one in paths])
    _, first = np.unique(images, return_index=True)
    of_images = {name: column[first] for name, column in table.items()}
    has_one = labelled and kind == ONE
    for name in {"split", "group", *(["label"] if has_one else [])} & table.keys():
        if (other := of_images[name][images] != table[name]).any():
            twice = of_images["path"][images[other][0]]
            told = f"rows with the path {twice} that differ in their {name}"
            unless = "only labels may, if config.dataset.labels is votes or several"
            raise UserError(f"{where} has {told}; {unless}")
    listed = of_images["path"]
    inputs = Files(root, listed)
    sizes = inputs.sizes()
    if (sizes < 0).all():
        raise UserError(
            f"{where}: none of the files exists, as {root / listed[0]}; paths are relative to the "
            "folder of the table"
        )
    labels, class_names, truths = np.full(len(listed), -1), tuple[str, ...](), None
    if has_one:
        labels, class_names = classes(of_images["label"])
    elif labelled:
        given = table["label"], table.get("annotator"), table.get("votes")
        truths, class_names = votes.truths(
            images, *given, kind=kind, rule=rule, where=where, called=listed
        )
        labels = truths.labels
        if others := sorted(table.keys() - {*_KNOWN, *_OF_MAKERS, "mark", *columns.values()}):
            logging.warning("%s: columns without a meaning: %s", where, ", ".join(others))
    known = [of_images[name] for name in _OF_MAKERS if name in of_images]
    credited = [", ".join(filter(None, one)) for one in zip(*known, strict=True)]
    return Examples.of_source(
        inputs,
        labels,
        class_names,
        where,
        splits=given_splits(of_images.get("split", np.full(len(listed), "")), where),
        names=listed,
        groups=given_groups(of_images["group"]) if "group" in table else None,
        truths=truths,
        credits=np.array(credited, object) if known else None,
        content=digest_of_sizes(sizes),
    )


def _columns(
    path: Path, where: str, columns: Mapping[str, str], *, labelled: bool
) -> dict[str, np.ndarray]:
    """The columns of a table of images by their usual names, without the rows that are marked."""
    found = read(path)
    has = ", ".join(found) or "none"
    own = {name: names.same_form(given) for name, given in columns.items()}
    for name, given in own.items():
        if given not in found:
            which = f"config.dataset.{'image' if name == 'path' else name}"
            must_be = f"a column of {path}, which are {has}"
            raise UserError(field=which, must_be=must_be, got=given)
    table = found | {name: found[given] for name, given in own.items()}
    needed = {"path", "label"} if labelled else {"path"}
    # Otherwise the groups of a column "Group" would be divided.
    needed |= {name.lower() for name in found} & _KNOWN
    if lacking := sorted(needed - table.keys()):
        which = "image" if lacking[0] == "path" else lacking[0]
        named = f"a column that config.dataset.{which} names"
        has_images = path.suffix.lower() == ".parquet" and which == "image"
        hint = f"; if the images are in the file, its path is hf:{path}" if has_images else ""
        raise UserError(f"{where} must have a column {lacking[0]}, or {named}; it has {has}{hint}")
    is_wrong, is_marked = table["path"] == "", np.zeros(len(table["path"]), bool)
    if labelled:
        if "mark" in table:
            is_marked = np.isin(table["mark"], _MARKS)
        is_wrong |= is_marked == (table["label"] != "")
    if is_wrong.any():
        must_have = f"a path, and a label or one of the marks {' and '.join(map(repr, _MARKS))}"
        raise UserError(f"{where}, {place(int(is_wrong.argmax()))}: it must have {must_have}")
    if is_marked.any():
        left_out = f"{is_marked.sum():,} rows marked {' or '.join(map(repr, _MARKS))}"
        logging.warning("%s: %s are left out", where, left_out)
    if is_marked.all():
        raise UserError(f"{where} must list images; it has no rows")
    return {name: column[~is_marked] for name, column in table.items()}


def _rows_of_text(path: Path) -> list[list[str]]:
    text = files.read_text(path)
    start = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t", key=start.count)
    lines = io.StringIO(text, newline="")
    rows = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
    return [
        [_ESCAPED.sub("", cell.strip()) for cell in row] for row in rows if any(map(str.strip, row))
    ] or [[]]


def _rows_of_parquet(path: Path) -> list[list[str]]:
    # Imported here because few tables are Parquet files.
    import pyarrow.parquet  # noqa: PLC0415

    found = pyarrow.parquet.read_table(path).to_pydict()
    rows = zip(*found.values(), strict=True)
    texts = (["" if cell is None else str(cell).strip() for cell in row] for row in rows)
    return [[*map(str, found)], *texts]


_READERS = {".csv": _rows_of_text, ".tsv": _rows_of_text, ".parquet": _rows_of_parquet}
