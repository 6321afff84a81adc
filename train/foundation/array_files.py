"""Finds arrays in untrusted .npy and .npz files, and reads them without mapping the files.

A header can ask for more memory than there is. It is compared with the size of what follows before
an array is made. A file in an .npz file is compared with its checksum; an .npy file does not have
one.
"""

import functools
import io
import math
import os
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from train.foundation import host_memory, zip_files
from train.foundation.files import open_regular
from train.foundation.stored_rows import OpenFile, StoredRows

# The first bytes of the files.
NPY, ZIP = b"\x93NUMPY", b"PK"
# A flag of a file in a zip file.
_ENCRYPTED = 1
# The bytes of the header of a file in a zip file. The last four are the lengths of its name and of
# what else is between the header and the content.
_LOCAL_HEADER = 30
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# NumPy reads no header of more bytes.
_MOST_HEADER = 10_000
# The bytes that are read at a time.
_PART = 2**20


@dataclass(frozen=True)
class StoredArray:
    """An array that has not been read.

    Attributes:
        shape: its shape.
        dtype: the type of its numbers or texts; never of Python objects.
        is_fortran: whether the first index changes first.
        header: the bytes before its numbers.
        open: opens the bytes of the header, with the numbers after them.
        place: the file that has these bytes unpacked, and the offset of the first one; None if they
            are packed.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    is_fortran: bool
    header: bytes
    open: Callable[[], IO[bytes]]
    place: tuple[Path, int] | None

    @property
    def num_bytes(self) -> int:
        """The size of its numbers."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, dtype: np.dtype | None = None) -> np.ndarray:
        """The array, in memory, with the last index changing first.

        Args:
            dtype: what its numbers become; by default they stay what they are.

        Raises:
            UserError: it is larger than the memory.
            Exception: it is damaged; of any kind, because a damaged file can fail in many ways.
        """
        host_memory.check_fits("its numbers", self.num_bytes)
        array = np.empty(self.shape, dtype or self.dtype)
        numbers = array.T.flat if self.is_fortran else array.reshape(-1)
        size, at_a_time = self.dtype.itemsize, max(1, _PART // self.dtype.itemsize)
        with self.open() as file:
            file.read(len(self.header))
            for start in range(0, array.size, at_a_time):
                stop = min(start + at_a_time, array.size)
                part = file.read((stop - start) * size)
                if len(part) < (stop - start) * size:
                    raise ValueError("it is cut short")
                numbers[start:stop] = np.frombuffer(part, self.dtype)
        return array

    def rows(self) -> StoredRows | None:
        """A matrix whose rows are read when they are wanted; None if the file has them packed.

        The file is not compared with its checksum.
        """
        if self.place is None or len(self.shape) != 2 or 0 in self.shape or self.is_fortran:
            return None
        path, start = self.place
        rows, columns = self.shape
        opened = OpenFile(open_regular(path), path)
        offset = start + len(self.header)
        return StoredRows(opened, offset, (rows, columns), self.dtype)


def in_npy(path: Path) -> StoredArray:
    """The array in an .npy file.

    Raises:
        OSError: the file cannot be read.
        Exception: it is another file, or a damaged one.
    """

    def opened() -> IO[bytes]:
        return io.BufferedReader(open_regular(path))

    with opened() as file:
        size = os.fstat(file.fileno()).st_size
    return _of(opened, size, (path, 0))


def in_npz(file: Path | IO[bytes]) -> Mapping[str, Callable[[], StoredArray]]:
    """The arrays in an .npz file by their names; each is found when the function is called.

    Raises:
        OSError: the file cannot be read.
        Exception: it is another file, or a damaged one. The functions raise what `in_npy` does.
    """
    archive = zip_files.opened(file)
    return {
        member.filename.removesuffix(".npy"): functools.partial(_in_zip, archive, member, file)
        for member in archive.infolist()
        if member.filename.endswith(".npy")
    }


def _in_zip(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: Path | IO[bytes]
) -> StoredArray:
    place = None
    is_stored = member.compress_type == zipfile.ZIP_STORED
    if isinstance(file, Path) and is_stored and member.compress_size == member.file_size:
        place = file, _content(file, member)
    if member.flag_bits & _ENCRYPTED:
        raise ValueError("it is encrypted")
    found = _of(lambda: archive.open(member), member.file_size, place)
    if found.num_bytes != member.file_size - len(found.header):
        raise ValueError("it has more bytes than its header says")
    return found


def _of(opened: Callable[[], IO[bytes]], size: int, place: tuple[Path, int] | None) -> StoredArray:
    """The array in a file of that size, which starts with the array's header."""
    with opened() as file:
        start = file.read(_MOST_HEADER)
    if not start.startswith(NPY):
        raise ValueError("it is not an .npy file")
    header = io.BytesIO(start)
    version = np.lib.format.read_magic(header)
    if version not in _HEADERS:
        raise ValueError(f"its format has version {version}")
    with warnings.catch_warnings():
        # Files that Python 2 has written make NumPy warn, and are read as well.
        warnings.simplefilter("ignore", UserWarning)
        shape, is_fortran, dtype = _HEADERS[version](header)
    if dtype.hasobject:
        raise ValueError(
            "it has Python objects, not numbers or texts; np.array(names, dtype=str) makes texts"
        )
    if dtype.itemsize == 0 or any(length < 0 for length in shape):
        raise ValueError(f"its header says that it is {dtype} {list(shape)}")
    found = StoredArray(shape, dtype, is_fortran, start[: header.tell()], opened, place)
    if found.num_bytes > size - len(found.header):
        raise ValueError(
            f"it is cut short: {dtype} {list(shape)} needs {found.num_bytes:,} bytes, and there "
            f"are {size - len(found.header):,}"
        )
    return found


def _content(path: Path, member: zipfile.ZipInfo) -> int:
    """The offset of the content of a file that is stored unpacked in a zip file."""
    with open_regular(path) as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
    lengths = int.from_bytes(header[-4:-2], "little") + int.from_bytes(header[-2:], "little")
    return member.header_offset + _LOCAL_HEADER + lengths
