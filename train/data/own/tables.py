"""Finds the images that a table lists: a CSV, TSV or Parquet file with paths and labels."""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from absl import logging

from train.data.credits import AUTHOR, LICENSE, Credits
from train.data.own import class_names, determinations, table_columns, votes
from train.data.own.determinations import ONE_LABEL, Reading
from train.data.own.found_images import FoundImages
from train.data.own.listing import (
    SPLIT_WORDS,
    Listing,
    name_groups,
    read_splits,
    roles_given,
)
from train.data.own.table_columns import Table
from train.data.truths import ONE
from train.foundation import addresses, messages, names
from train.foundation.errors import UserError

# The start of an absolute path of Windows.
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
# How many missing files a message names.
_MOST_NAMED = 10


def find(
    table: Path,
    *,
    reading: Reading = ONE_LABEL,
    uses_splits: bool = True,
) -> FoundImages:
    """The images that a table lists, in its order.

    The table has the columns `path`, relative to its folder, and `label`, and optionally `split`
    (train, val or test; see `listing.ROLE_NAMES`) and one of groups. Images of one group, as the
    photographs of one plant, belong to one split: if a split is held out, whole groups are. The
    columns `author` and `license` are the credits of the images.
    Classes are in the order of their sorted names. An image with several labels may have several
    rows.

    Args:
        table: the file.
        reading: how labels are read, and the columns that have other names.
        uses_splits: whether images get the splits of the table; otherwise none has a split.

    Raises:
        UserError: the file does not have that form.
    """
    one = reading.labels == ONE
    kind = table_columns.IMAGES if one else table_columns.VOTES
    kind = dataclasses.replace(kind, keeps_others=True)
    read = table_columns.read(table, kind, called=reading.called)
    columns, where = read.columns, read.where
    if not columns["path"]:
        raise UserError(f"{where} must list images; it has no rows")
    for name in ("path", "label") if one else ("path",):
        for row, value in enumerate(columns[name]):
            if value == "":
                raise UserError(f"{read.at(row)}: the column {name} is empty")
    images = np.arange(len(columns["path"]))
    rows = images.tolist()
    if not one:
        rows, images = determinations.rows_of_paths(read)

    def of_images(name: str) -> list[str]:
        return [columns[name][row] for row in rows] if name in columns else [""] * len(rows)

    paths = _paths(read, table.parent, of_images("path"), rows)
    no_splits = [""] * len(paths)
    roles = _roles(read, of_images("split") if uses_splits else no_splits, rows)
    truths = None
    if one:
        labels, names_of_classes = class_names.numbered(columns["label"], where)
    else:
        given = determinations.in_table(read, images, reading)
        classes, names_of_classes = class_names.numbered(given.texts, where)
        truths = votes.truths_of(given, classes, len(names_of_classes), reading)
        labels = truths.labels
    listing = Listing(
        paths=paths,
        labels=labels,
        roles=roles,
        class_names=names_of_classes,
        given=roles_given(roles),
        groups=name_groups(of_images(table_columns.GROUP), (f"path {path}" for path in paths)),
        truths=truths,
        credits=Credits.of_columns(
            {name: of_images(name) for name in (AUTHOR, LICENSE) if name in columns}
        ),
    )
    return FoundImages.in_files(listing, table.parent, where)


def _paths(table: Table, root: Path, listed: Sequence[str], rows: Sequence[int]) -> tuple[str, ...]:
    """The paths of the files; refuses one that is listed twice, or paths if none is a file.

    A path finds a file whose name looks the same, and one with "/" in place of backslashes.
    Backslashes also become "/" if the file is missing.

    Args:
        table: the table.
        root: its folder.
        listed: the paths as they are given.
        rows: the row of each, counted from 0.
    """
    where = table.where
    similar = names.SimilarFiles(root)
    paths: list[str] = []
    first: dict[str, int] = {}
    missing: dict[str, str] = {}
    for row, path in zip(rows, listed, strict=True):
        found = path if (root / path).is_file() else similar.find(path)
        if found is None or not (root / found).is_file():
            addresses.refuse(f"{table.at(row)},", path)
            missing[table.place(row)] = path
            found = path.replace("\\", "/")
        before = first.setdefault(os.path.normpath(root / found), row)
        if before != row:
            raise UserError(
                f"{where}: {table.place(before)} and {table.place(row)} have the same path, "
                f"{names.shown(found)}"
            )
        paths.append(found)
    if missing:
        named = _in_words(root, missing)
        if len(missing) == len(listed):
            raise UserError(
                f"{where}: none of the files exists: {named}",
                usually="the paths are relative to another folder than the folder of the table",
            )
        # Missing files are treated like other images that cannot be read.
        logging.warning("%s: missing files: %s of %s: %s", where, len(missing), len(listed), named)
    _tell_of_other_paths(listed, paths, where)
    return tuple(paths)


def _in_words(root: Path, missing: Mapping[str, str]) -> str:
    """The paths that were not found, by their rows, and where they were looked for."""
    rows = [f"{names.shown(path)} ({place})" for place, path in missing.items()]
    told = f"{messages.first_names(rows, _MOST_NAMED)}; paths are relative to {root}"
    if any(map(_DRIVE.match, missing.values())):
        return f"{told}, and a path with a drive of Windows must become relative"
    if any("\\" in path for path in missing.values()):
        return f"{told}, and their backslashes were also read as /"
    return told


def _tell_of_other_paths(listed: Sequence[str], paths: Sequence[str], where: str) -> None:
    """Logs how many paths are written differently from the paths of their files."""
    pairs = zip(listed, map(names.in_utf8, paths), strict=True)
    different = [pair for pair in pairs if pair[0] != pair[1]]
    slashes = [path for path, found in different if path.count("\\") > found.count("\\")]
    forms = [pair for pair in different if pair[0].count("\\") == pair[1].count("\\")]
    if slashes:
        logging.warning(
            "%s: the backslashes of %d paths are read as /, as in %s",
            where,
            len(slashes),
            slashes[0],
        )
    if forms:
        path, found = map(names.code_points, forms[0])
        logging.warning(
            "%s: %d paths have files whose names look the same but have other characters, as %s "
            "for %s",
            where,
            len(forms),
            found,
            path,
        )


def _roles(table: Table, words: Sequence[str], rows: Sequence[int]) -> np.ndarray:
    """The split of each image, int8 [n], whose rows are counted from 0.

    Raises:
        UserError: a word names no split.
    """
    roles, wrong = read_splits(words)
    if wrong is not None:
        raise UserError(
            f"{table.at(rows[wrong])}: split must be {SPLIT_WORDS}; got "
            f"{names.shown(words[wrong])!r}"
        )
    return roles
