"""Finds the images that a table lists: a CSV, TSV or Parquet file with paths and labels."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from train.data.own import listing
from train.data.own.listing import ROLE_NAMES, GivenImages, Role
from train.foundation import files
from train.foundation.errors import UserError, first_line

_NEEDED = ("path", "label")
_OPTIONAL = ("split", "group")
_KNOWN = (*_NEEDED, *_OPTIONAL)
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}

# The columns by name, each with a text for each row.
Columns = Mapping[str, Sequence[str]]


def find(table: Path) -> GivenImages:
    """The images that a table lists, in its order.

    The table has the columns `path`, relative to its folder, and `label`, and optionally `split`
    (train, val or test) and `group`. Images of one group, as the photographs of one plant, belong
    to one split: where a split is held out, whole groups are. Classes are in the order of their
    sorted names.

    Args:
        table: the file.

    Raises:
        UserError: the file does not have that form, or a group is in two splits.
    """
    columns = _read(table)
    where = f"config.dataset.path {table}"
    paths = tuple(columns["path"])
    if not paths:
        raise UserError(f"{where} must list images; it has no rows")
    for name in (*_NEEDED, "split"):
        for row, value in enumerate(columns.get(name, ())):
            if value == "":
                raise UserError(f"{where}, row {row + 1}: the column {name} is empty")
    _check_paths(table, paths)
    roles = _roles(table, columns)
    class_names = tuple(
        sorted({label for label, role in zip(columns["label"], roles, strict=True) if role == 0})
    )
    number = {name: label for label, name in enumerate(class_names)}
    for row, label in enumerate(columns["label"]):
        if label not in number:
            raise UserError(
                f"{where}, row {row + 1}: the class {label!r} has images for validation or test, "
                "and none for training"
            )
    labels = np.array([number[label] for label in columns["label"]], np.int32)
    # An image without a group is a group of its own, which no group is named as.
    groups = tuple(
        f"group {group}" if group else f"path {path}"
        for group, path in zip(columns.get("group", [""] * len(paths)), paths, strict=True)
    )
    _check_groups(where, groups, roles)
    given = frozenset(Role(role) for role in np.unique(roles).tolist())
    return GivenImages(table.parent, paths, labels, roles, given, groups, class_names)


def _read(table: Path) -> Columns:
    """The columns of the table that are used."""
    suffix = table.suffix.lower()
    if not table.is_file():
        what = files.why_no_file(table)
        raise UserError(f"config.dataset.path must be a table of images; {table} {what}")
    if suffix in _DELIMITERS:
        columns = _read_text(table, _DELIMITERS[suffix])
    elif suffix == ".parquet":
        columns = _read_parquet(table)
    else:
        raise UserError(
            f"config.dataset.path must be a .csv, .tsv or .parquet file; got {table.name!r}"
        )
    for name in columns:
        if name not in _KNOWN and name.lower() in _KNOWN:
            raise UserError(
                f"config.dataset.path {table}: the column {name!r} must be called "
                f"{name.lower()!r}, in lower case"
            )
        if ";" in name and suffix == ".csv":
            raise UserError(
                f"config.dataset.path {table} must have commas between its columns; it has the "
                f"column {name!r}, with semicolons"
            )
    for name in _NEEDED:
        if name not in columns:
            raise UserError(
                f"config.dataset.path {table} must have the columns path and label; it has "
                f"{', '.join(map(repr, columns)) or 'none'}"
            )
    return {name: columns[name] for name in _KNOWN if name in columns}


def _read_text(table: Path, delimiter: str) -> Columns:
    try:
        # With the mark of byte order that spreadsheets write, or without.
        with io.TextIOWrapper(
            io.BufferedReader(files.open_bounded(table, files.MOST_EXAMPLES_BYTES)),
            encoding="utf-8-sig",
            newline="",
        ) as file:
            rows = [row for row in csv.reader(file, delimiter=delimiter, strict=True) if row]
    except UnicodeDecodeError as error:
        raise UserError(f"config.dataset.path {table} is not a text in UTF-8: {error}") from error
    except csv.Error as error:
        raise UserError(f"config.dataset.path {table} is not a table: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {table}: {error.strerror}") from error
    if not rows:
        raise UserError(f"config.dataset.path {table} is empty")
    header = [name.strip() for name in rows[0]]
    if len(set(header)) < len(header):
        raise UserError(f"config.dataset.path {table} has two columns of one name")
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(header):
            raise UserError(
                f"config.dataset.path {table}, row {number}: it has {len(row)} columns, and the "
                f"first line has {len(header)}"
            )
    return {name: [row[index].strip() for row in rows[1:]] for index, name in enumerate(header)}


def _read_parquet(table: Path) -> Columns:
    try:
        import pyarrow.parquet  # noqa: PLC0415 (only who has such a table needs it)
    except ImportError as error:
        raise UserError(
            "config.dataset.path: reading .parquet needs pyarrow; pip install pyarrow, or give a "
            ".csv file"
        ) from error
    try:
        columns = pyarrow.parquet.read_table(table).to_pydict()
    except Exception as error:  # A damaged file can make the reader raise anything.
        raise UserError(
            f"config.dataset.path {table} is no Parquet file: {first_line(error)}"
        ) from error
    return {
        str(name): ["" if value is None else str(value).strip() for value in values]
        for name, values in columns.items()
    }


def _check_paths(table: Path, paths: Sequence[str]) -> None:
    """Refuses a path that is listed twice, or that is no file."""
    first: dict[str, int] = {}
    missing = []
    for row, path in enumerate(paths):
        before = first.setdefault(path, row)
        if before != row:
            raise UserError(
                f"config.dataset.path {table}: rows {before + 1} and {row + 1} have the same path, "
                f"{path}"
            )
        if not (table.parent / path).is_file():
            missing.append(path)
    if missing:
        more = f" ({len(missing)} such paths)" if len(missing) > 1 else ""
        raise UserError(
            f"config.dataset.path {table}: there is no file {table.parent / missing[0]}{more}; "
            "paths are relative to the folder of the table"
        )


def _roles(table: Path, columns: Columns) -> np.ndarray:
    """The split of each row, int8 [n]; all are for training where the table has none."""
    if "split" not in columns:
        return np.full(len(columns["path"]), Role.TRAIN, np.int8)
    for row, split in enumerate(columns["split"]):
        if split.lower() not in ROLE_NAMES:
            raise UserError(
                f"config.dataset.path {table}, row {row + 1}: split must be one of "
                f"{', '.join(ROLE_NAMES)}; got {split!r}"
            )
    roles = np.array([ROLE_NAMES[split.lower()] for split in columns["split"]], np.int8)
    if Role.TRAIN not in roles:
        raise UserError(f"config.dataset.path {table} has no images for training")
    return roles


def _check_groups(where: str, groups: Sequence[str], roles: np.ndarray) -> None:
    """Refuses groups with images in several splits."""
    role_of: dict[str, int] = {}
    leaking: dict[str, None] = {}
    for group, role in zip(groups, roles.tolist(), strict=True):
        if role_of.setdefault(group, role) != role:
            leaking[group.partition(" ")[2]] = None
    if leaking:
        raise UserError(
            f"{where}: {len(leaking)} groups have images in two splits, which makes accuracies too "
            f"good: {listing.first_names(list(leaking))}"
        )
