"""Somebody's own images as they were found: listed, split, and still encoded."""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from typing_extensions import override

from train.configuration.datasets import DatasetFields, FolderFields, TableFields
from train.data.own import division, image_records, listing
from train.data.own.division import Division
from train.data.own.listing import EncodedImages, GivenImages, Listing, MarkedImages
from train.foundation import names
from train.foundation.errors import UserError
from train.foundation.files import MOST_IMAGE_BYTES, open_bounded, read_bounded
from train.foundation.spelling import spell


@dataclass(frozen=True)
class FoundImages:
    """Images with their classes and splits.

    Attributes:
        listing: their names, classes and splits.
        sizes: the bytes of each image, int64 [n]; 0 where the digest does not depend on them.
        source: the images, in the order of the list, as `Records` takes them.
        digest: a text that is another for other images, labels or splits.
    """

    listing: Listing
    sizes: np.ndarray
    source: EncodedImages
    digest: str


class Files(MarkedImages):
    """Image files as the examples of `Records`.

    Args:
        root: the folder that their paths begin in.
        paths: their paths; a table may have absolute ones.
        most_bytes: the largest size of a file that is read.
    """

    def __init__(
        self, root: Path, paths: tuple[str, ...], most_bytes: int = MOST_IMAGE_BYTES
    ) -> None:
        self._root = str(root)
        self._paths = paths
        self._most_bytes = most_bytes

    def __len__(self) -> int:
        """The number of files."""
        return len(self._paths)

    def __getitem__(self, index: Any) -> Any:
        """The bytes of a file and its name; if it cannot be read, no bytes and the reason."""
        name = self._paths[index]
        try:
            image = read_bounded(self._path(index), self._most_bytes)
        except OSError as error:
            return {"image": b"", "file_name": name, "unreadable": error.strerror}
        return {"image": image, "file_name": name}

    @override
    def name(self, index: int) -> str:
        """The path of a file."""
        return self._paths[index]

    @override
    def open(self, index: int) -> BinaryIO:
        """A file."""
        return io.BufferedReader(open_bounded(self._path(index), self._most_bytes))

    @override
    def mark(self, index: int) -> bytes:
        """The end of a file; nothing if it cannot be read."""
        return listing.end_of(self._path(index))

    def _path(self, index: int) -> str:
        # `Path.joinpath` takes as long as reading does, with images of 1 kB.
        return os.path.join(self._root, self._paths[index])  # noqa: PTH118


def most_bytes(fields: DatasetFields) -> int:
    """The largest size of a file of an image that `config.dataset` allows."""
    return 2**20 * fields.max_image_mb


def find(
    fields: FolderFields | TableFields, in_files: Callable[[Path], GivenImages]
) -> FoundImages:
    """The images of `config.dataset.path`, in files or in records, with the missing splits.

    Args:
        fields: `config.dataset`.
        in_files: finds images that are no records at the path.

    Raises:
        UserError: they cannot be found, or no classifier can be trained with them.
    """
    path = names.existing(Path(fields.path).expanduser().absolute())
    where = f"{spell('config.dataset.path')} {path}"
    source: MarkedImages
    if image_records.are_at(path):
        records = image_records.read(path)
        if isinstance(fields, FolderFields) and fields.nested != records.nested:
            raise UserError(
                field="config.dataset.nested",
                must_be=f"{records.nested}, as the records in {path} were prepared",
                got=fields.nested,
            )
        files = division.split(records.images, where, Division.of(fields))
        sizes, source = records.sizes, records.source
    else:
        files = division.split(in_files(path), where, Division.of(fields))
        sizes = listing.file_sizes(files.root, files.paths)
        source = Files(files.root, files.paths, most_bytes(fields))
    listing.warn_of_duplicates(files, sizes, source)
    return FoundImages(files, sizes, source, files.digest(sizes))
