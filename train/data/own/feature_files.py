"""Arrays in an .npz file, or in the .npy files of a folder; many features stay in their file."""

import functools
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from train.foundation import array_files, fields, json_files, names, shapes, stored_rows
from train.foundation.array_files import StoredArray
from train.foundation.errors import UserError, first_line
from train.foundation.files import open_regular
from train.foundation.stored_rows import StoredRows

FEATURES = "features"
# One text: what `train.embed` knows of the network that made the features, in JSON.
EMBEDDED_BY = "embedded_by"
# `train.prediction.embedding.description` has the complete shape.
_NETWORK = shapes.record(
    {"network": fields.text(), "parameters_digest": fields.text()}, {"group": fields.text()}
)


@dataclass(frozen=True)
class Arrays:
    """The arrays of some files.

    Attributes:
        where: the files in messages, with the field or the flag that names them.
        finders: finds each array, by its name.
    """

    where: str
    finders: Mapping[str, Callable[[], StoredArray]]

    def read(self, name: str) -> np.ndarray | None:
        """An array; None if there is none of that name.

        Raises:
            UserError: the array cannot be read, or has Python objects.
        """
        if name not in self.finders:
            return None
        with self.reading(name):
            return self.finders[name]().read()

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Raises `UserError` for what is wrong with an array that is read within this context."""
        try:
            yield
        except UserError as error:
            raise UserError(f"{self.where}: the array {name} cannot be read: {error}") from error
        except Exception as error:  # Whatever damaged files make the readers raise.
            raise UserError(
                f"{self.where}: the array {name} cannot be read: {first_line(error)}"
            ) from error


def find(path: Path, named_by: str) -> Arrays:
    """The arrays at a path. None of them is read yet.

    Args:
        path: an .npz file, a folder of .npy files, or one .npy file, which is the features.
        named_by: the field or the flag that names the path, for messages.

    Raises:
        UserError: there is no such file, or it is of another kind.
    """
    path = names.existing(path)
    where = f"{named_by} {path}"
    if path.is_dir():
        files = {file.stem: file for file in sorted(path.glob("*.npy"))}
        if FEATURES not in files:
            raise UserError(f"{where} must have a file features.npy; it has none")
        return Arrays(
            where,
            {name: functools.partial(array_files.in_npy, file) for name, file in files.items()},
        )
    try:
        with open_regular(path) as file:
            start = file.read(len(array_files.NPY))
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error.strerror}") from error
    if start == array_files.NPY:
        return Arrays(where, {FEATURES: functools.partial(array_files.in_npy, path)})
    if not start.startswith(array_files.ZIP):
        what = "is neither" if start else "is empty"
        raise UserError(f"{where} must be an .npz file, or a folder of .npy files; it {what}")
    try:
        return Arrays(where, array_files.in_npz(path))
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise UserError(f"{where} is not a complete .npz file: {first_line(error)}") from error


def read_features(arrays: Arrays) -> np.ndarray | StoredRows:
    """The features [n, d], float16 or float32, with the numbers of a row side by side.

    Those that are many stay in their file if they can be used as they are.

    Raises:
        UserError: they are missing, or have another shape or type.
    """
    if FEATURES not in arrays.finders:
        names = ", ".join(arrays.finders) or "none"
        raise UserError(f"{arrays.where} must have an array features; it has {names}")
    with arrays.reading(FEATURES):
        found = arrays.finders[FEATURES]()
    if len(found.shape) != 2 or 0 in found.shape:
        raise UserError(
            f"{arrays.where}: features must be [rows, features], with at least one of each; got "
            f"the shape {list(found.shape)}"
        )
    if found.dtype.kind != "f" or found.dtype.itemsize not in (2, 4, 8):
        raise UserError(f"{arrays.where}: features must be float16 or float32; got {found.dtype}")
    wanted = np.dtype(f"=f{min(found.dtype.itemsize, 4)}")
    if found.dtype.itemsize == 8:
        logging.warning("%s: the features are float64, and are converted to float32", arrays.where)
    with arrays.reading(FEATURES):
        if found.dtype == wanted and found.num_bytes > stored_rows.MOST_IN_MEMORY:
            rows = found.rows()
            if rows is not None:
                return rows
        with np.errstate(over="ignore"):  # What is too large becomes infinite, which is refused.
            return found.read(wanted)


def read_texts(
    arrays: Arrays, name: str, length: int | None, *, may_be_empty: bool = False
) -> list[str] | None:
    """The texts of an array [n]; None if there is none of that name.

    Args:
        arrays: the arrays.
        name: the name of the array.
        length: how many texts there must be; None for any number.
        may_be_empty: whether a text may be empty.

    Raises:
        UserError: the array has another type, shape or length, or a text is empty.
    """
    found = arrays.read(name)
    if found is None:
        return None
    check_length(arrays, name, found, length)
    return decode(arrays, name, found, may_be_empty=may_be_empty)


def read_embedded_by(arrays: Arrays) -> dict[str, Any] | None:
    """What `train.embed` knows of the network that made the features; None if it is not there.

    Raises:
        UserError: the array is not what `train.embed` writes.
    """
    texts = read_texts(arrays, EMBEDDED_BY, None)
    if texts is None:
        return None
    try:
        (text,) = texts
        plain: dict[str, Any] = json_files.parse(text.encode(), _NETWORK)
    except ValueError as error:
        raise UserError(
            f"{arrays.where}: {EMBEDDED_BY} is not what train.embed writes: {first_line(error)}"
        ) from error
    return plain


def check_length(arrays: Arrays, name: str, found: np.ndarray, length: int | None) -> None:
    """Refuses an array that is not [n], with one entry for each row.

    Raises:
        UserError: it is not.
    """
    if found.ndim != 1:
        raise UserError(f"{arrays.where}: {name} must be [n]; got the shape {list(found.shape)}")
    if length is not None and len(found) != length:
        raise UserError(
            f"{arrays.where}: {name} must have an entry for each of the {length} rows of "
            f"features; it has {len(found)}"
        )


def decode(
    arrays: Arrays, name: str, found: np.ndarray, *, may_be_empty: bool = False
) -> list[str]:
    """An array of texts [n] as a list.

    Raises:
        UserError: it is of another type, or a text is empty, unless it may be, or not UTF-8.
    """
    if found.dtype.kind not in "US":
        raise UserError(f"{arrays.where}: {name} must be texts; got {found.dtype}")
    try:
        texts = [one.decode() if isinstance(one, bytes) else one for one in found.tolist()]
    except UnicodeDecodeError as error:
        raise UserError(f"{arrays.where}: {name} is not in UTF-8: {error}") from error
    if "" in texts and not may_be_empty:
        raise UserError(
            f"{arrays.where}: {name} must not be empty; entry {texts.index('')}, counted from 0, is"
        )
    return texts
