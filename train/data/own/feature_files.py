"""Arrays in an .npz file, or in the .npy files of a folder, mapped into memory if possible."""

import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from absl import logging

from train.foundation import names
from train.foundation.errors import UserError, first_line
from train.foundation.files import open_regular

FEATURES = "features"
_NPY, _ZIP = b"\x93NUMPY", b"PK"
# A flag of a file in a zip file.
_ENCRYPTED = 1
# A file in a zip file has a header of this many bytes, of which the last four are the lengths of
# its name and of what else stands between the header and the content.
_LOCAL_HEADER = 30
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Arrays:
    """The arrays of some files.

    Attributes:
        where: the files in messages, with the field or the flag that names them.
        readers: reads each array, by its name.
    """

    where: str
    readers: Mapping[str, Callable[[], np.ndarray]]

    def read(self, name: str) -> np.ndarray | None:
        """An array; None if there is none of that name.

        Raises:
            UserError: the array cannot be read, or has Python objects.
        """
        if name not in self.readers:
            return None
        try:
            return self.readers[name]()
        except UserError:
            raise
        except Exception as error:  # Whatever damaged files make NumPy's readers raise.
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
        return Arrays(where, {name: _npy_reader(file) for name, file in files.items()})
    try:
        with open_regular(path) as file:
            start = file.read(len(_NPY))
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error.strerror}") from error
    if start == _NPY:
        return Arrays(where, {FEATURES: _npy_reader(path)})
    if not start.startswith(_ZIP):
        what = "is no such file" if start else "is empty"
        raise UserError(f"{where} must be an .npz file, or a folder of .npy files; it {what}")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [one for one in archive.infolist() if one.filename.endswith(".npy")]
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise UserError(f"{where} is no whole .npz file: {first_line(error)}") from error
    return Arrays(
        where,
        {one.filename.removesuffix(".npy"): _npz_reader(path, one) for one in members},
    )


def read_features(arrays: Arrays) -> np.ndarray:
    """The features [n, d], float16 or float32, with the numbers of a row side by side.

    They stay in their file where they can be used as they are.

    Raises:
        UserError: they are missing, or have another shape or type.
    """
    features = arrays.read(FEATURES)
    if features is None:
        names = ", ".join(arrays.readers) or "none"
        raise UserError(f"{arrays.where} must have an array features; it has {names}")
    if features.ndim != 2 or 0 in features.shape:
        raise UserError(
            f"{arrays.where}: features must be [rows, features], with at least one of each; got "
            f"the shape {list(features.shape)}"
        )
    if features.dtype.kind != "f" or features.dtype.itemsize not in (2, 4, 8):
        raise UserError(
            f"{arrays.where}: features must be float16 or float32; got {features.dtype}"
        )
    wanted = np.dtype(f"=f{min(features.dtype.itemsize, 4)}")
    if features.dtype.itemsize == 8:
        logging.warning("%s: the features are float64, and are converted to float32", arrays.where)
    with np.errstate(over="ignore"):  # What is too large becomes infinite, which is refused.
        return np.ascontiguousarray(features, wanted)


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


def _npy_reader(path: Path) -> Callable[[], np.ndarray]:
    return lambda: _mapped(path, 0)


def _npz_reader(path: Path, member: zipfile.ZipInfo) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & _ENCRYPTED:
            return _mapped(path, _content(path, member))
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            _check_plain(np.lib.format.read_magic(file), file)
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)

    return read


def _content(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the content of a file that is stored in a zip file begins."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
    lengths = int.from_bytes(header[-4:-2], "little") + int.from_bytes(header[-2:], "little")
    return member.header_offset + _LOCAL_HEADER + lengths


def _mapped(path: Path, start: int) -> np.ndarray:
    """The array that is stored in .npy format from some byte of a file, mapped into memory."""
    with path.open("rb") as file:
        file.seek(start)
        shape, is_fortran, dtype = _check_plain(np.lib.format.read_magic(file), file)
        offset = file.tell()
    if math.prod(shape) == 0:  # Nothing can be mapped.
        return np.zeros(shape, dtype)
    mapped = np.memmap(path, dtype, "r", offset, shape, "F" if is_fortran else "C")
    # Without the methods of a memmap, which cost time in every row that is taken from it.
    return np.asarray(mapped)


def _check_plain(
    version: tuple[int, int], file: IO[bytes]
) -> tuple[tuple[int, ...], bool, np.dtype]:
    """The header that follows; refuses Python objects, which could run code when they are read."""
    if version not in _HEADERS:
        raise ValueError(f"its format has version {version}")
    shape, is_fortran, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError(
            "it has Python objects, not numbers or texts; np.array(names, dtype=str) makes texts"
        )
    return shape, is_fortran, dtype
