"""Records of images, which `train.prepare` writes from a folder or a table: read, not decoded.

The description has a CRC-32 of each image, which is compared when the image is read; and the folder
has a checksum of the description, which is compared when it is opened.
"""

import dataclasses
import io
import json
import os
import weakref
import zlib
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from typing_extensions import override

from train.data.credits import Credits
from train.data.own.encoded_images import EncodedImages
from train.data.own.found_images import FoundImages
from train.data.own.listing import Listing, Role
from train.foundation import checksums, files, json_files
from train.foundation.errors import UserError, first_line, let_through
from train.foundation.spelling import spell

# The bytes of all image files, one after another. Measured for images of 1 kB in memory: to read
# one takes a core 2 µs; from a file of its own 14 µs, and from a record of array_record 27 µs.
RECORDS = "images.bin"
# What else is known of them. A folder that has this file is complete.
DESCRIPTION = "image_records.json"
# The largest description, in bytes. The description of a million images has a hundred millions.
_LARGEST = 2**32
_VERSION = 1


@dataclass(frozen=True)
class ImageRecords:
    """The images of a folder of records.

    Attributes:
        found: their names, classes and splits, and the images.
        nested: whether each folder with images was a class.
        group: the column of a table that the groups are from, if the field gave one.
        left_out: the names of the images that could not be read, and have no record.
    """

    found: FoundImages
    nested: bool
    group: str | None
    left_out: tuple[str, ...]

    def is_of(self, listing: Listing, *, nested: bool, group: str | None) -> bool:
        """Whether these are records of some images, judged by everything but the pixels."""
        absent = frozenset(self.left_out)
        kept = listing.take(
            [index for index, path in enumerate(listing.paths) if path not in absent]
        )
        # Records of earlier versions have no credits, which change no run.
        mine, other = (dataclasses.replace(one, credits=None) for one in (self.found.listing, kept))
        described = describe(mine, nested=self.nested, group=self.group)
        return describe(other, nested=nested, group=group) == described


class _Images(EncodedImages):
    """The records as the examples of `Records`; sent to the processes that decode."""

    def __init__(
        self,
        folder: Path,
        paths: tuple[str, ...],
        sizes: np.ndarray,
        sums: np.ndarray | None,
    ) -> None:
        self._given = (folder, paths, sizes, sums)
        self._ends = np.cumsum(sizes)
        self._file = files.open_regular(folder / RECORDS)
        weakref.finalize(self, self._file.close)
        found = (folder / RECORDS).stat().st_size
        if found != sizes.sum():
            raise ValueError(f"{RECORDS} has {found:,} bytes in place of {sizes.sum():,}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _Images, self._given

    def __len__(self) -> int:
        return len(self._ends)

    @override
    def read(self, index: int) -> bytes:
        folder, paths, sizes, sums = self._given
        size = int(sizes[index])
        # Threads share the file, and no place in it.
        encoded = os.pread(self._file.fileno(), size, int(self._ends[index]) - size)
        if sums is not None and zlib.crc32(encoded) != sums[index]:
            raise _damaged(
                folder, ValueError(f"{paths[index]} in {RECORDS} changed since it was written")
            )
        return encoded

    @override
    def name(self, index: int) -> str:
        return self._given[1][index]

    @override
    def open(self, index: int) -> BinaryIO:
        """An image as a file, whose CRC-32 is not compared."""
        size = int(self._given[2][index])
        return io.BufferedReader(_Part(self._file.fileno(), int(self._ends[index]) - size, size))

    @override
    def mark(self, index: int) -> int:
        """The CRC-32 of an image."""
        sums = self._given[-1]
        return zlib.crc32(self.read(index)) if sums is None else int(sums[index])


class _Part(io.RawIOBase):
    """A part of an open file, as a file; threads share the open file, and no place in it."""

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        super().__init__()
        self._descriptor, self._start, self._size = descriptor, start, size
        self._position = 0

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(origin + offset, 0)
        return self._position

    @override
    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), max(self._size - self._position, 0))
        found = os.pread(self._descriptor, wanted, self._start + self._position)
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)


def are_at(path: Path) -> bool:
    """Whether there is a folder of records at a path."""
    return (path / DESCRIPTION).is_file()


def describe(
    listing: Listing,
    sums: np.ndarray | None = None,
    left_out: Sequence[str] = (),
    *,
    nested: bool,
    group: str | None,
) -> bytes:
    """The content of the description; see `ImageRecords`. The sums are the CRC-32 of each image."""
    return files.to_json(
        ({} if sums is None else {"crc32": sums})
        | ({"left_out": left_out} if left_out else {})
        | ({} if group is None else {"group": group})
        | ({} if listing.credits is None else {"credits": listing.credits.to_plain()})
        | {
            "version": _VERSION,
            "nested": nested,
            "class_names": listing.class_names,
            "given": sorted(role.name for role in listing.given),
            "paths": listing.paths,
            "keys": listing.groups or listing.paths,
            "labels": listing.labels,
            "roles": listing.roles,
            "sizes": listing.sizes,
        }
    )


def read(folder: Path) -> ImageRecords:
    """Opens a folder of records.

    Raises:
        UserError: it is damaged, or of another version of the program.
    """
    try:
        if (folder / checksums.FILE).exists():
            checksums.check(folder)
        described = json.loads(json_files.read_bytes(folder / DESCRIPTION, _LARGEST))
        if described["version"] != _VERSION:
            raise UserError(
                f"the records in {folder} are of another version of the program; prepare them again"
            )
        listing = Listing(
            paths=tuple(described["paths"]),
            sizes=np.array(described["sizes"], np.int64),
            labels=np.array(described["labels"], np.int32),
            roles=np.array(described["roles"], np.int8),
            class_names=tuple(described["class_names"]),
            given=frozenset(Role[name] for name in described["given"]),
            groups=tuple(described["keys"]),
            credits=Credits.from_plain(described["credits"], len(described["paths"]))
            if "credits" in described
            else None,
        )
        # The images of a folder do not have groups; its fields may give some.
        if listing.groups == listing.paths:
            listing = dataclasses.replace(listing, groups=None)
        paths, sizes = listing.paths, listing.sizes
        # Records of earlier versions have none.
        sums = np.array(described["crc32"], np.uint32) if "crc32" in described else None
        left_out = tuple(map(str, described.get("left_out", ())))
        group = described.get("group")
        columns: list[Sized] = [sizes, listing.labels, listing.roles, listing.groups or paths]
        columns += [] if sums is None else [sums]
        if any(len(column) != len(paths) for column in columns) or sizes.min(initial=0) < 0:
            raise ValueError(f"{DESCRIPTION} has {len(paths)} paths and {len(sizes)} sizes")
        if not set(listing.labels.tolist()) <= set(range(len(listing.class_names))):
            raise ValueError(f"{DESCRIPTION} has a label that is not a class")
        images = _Images(folder, paths, sizes, sums)
    except UserError:
        raise
    except Exception as error:  # A damaged description can make this raise anything.
        raise _damaged(folder, error) from error
    found = FoundImages(listing, images, folder, f"{spell('config.dataset.path')} {folder}")
    return ImageRecords(found, bool(described["nested"]), group, left_out)


def _damaged(folder: Path, error: Exception) -> UserError:
    let_through(error)
    return UserError(
        f"the records in {folder} are damaged ({first_line(error)}); delete the folder and prepare "
        "them again"
    )
