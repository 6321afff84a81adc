"""Writes the images of a folder or a table as records, all of them or none.

The records have the bytes of the files as they are: no image is decoded, resized or left out.
"""

import os
import zlib
from pathlib import Path

import numpy as np

from train.data.own import image_records
from train.data.own.image_records import DESCRIPTION, RECORDS
from train.data.own.listing import GivenImages
from train.data.preparing import shards
from train.data.preparing.dataset_writer import locked
from train.foundation import checksums, files
from train.foundation.errors import UserError
from train.foundation.folder_lock import LOCK
from train.foundation.progress_bar import ImageProgress


def write(
    images: GivenImages, out: Path, *, nested: bool, most_bytes: int = files.MOST_IMAGE_BYTES
) -> None:
    """Writes the files of the images, and what is known of them, into a new folder.

    Everything is written into a folder `incomplete.NAME` beside it, which is then renamed.

    Args:
        images: of a folder or a table.
        out: the folder; empty if it exists.
        most_bytes: the largest size of a file of an image.
        nested: whether each folder with images is a class.

    Raises:
        UserError: an image cannot be read, or the folder cannot be written to.
        OSError: the disk is full.
    """
    unfinished = out.with_name(f"incomplete.{out.name}")
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from error
    with locked(unfinished):
        for left in unfinished.iterdir():  # By a start that was killed.
            if left.name != LOCK:
                left.unlink()
        sizes, sums = _write_records(images, unfinished / RECORDS, most_bytes)
        described = image_records.describe(images, sizes, sums, nested=nested)
        checksums.add(unfinished, DESCRIPTION, described)
        unfinished.rename(out)
        (out / LOCK).unlink()


def _write_records(
    images: GivenImages, path: Path, most_bytes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Writes the records, and returns the bytes of each image, int64 [n], and its CRC-32 [n]."""
    sizes = np.empty(len(images.paths), np.int64)
    sums = np.empty(len(images.paths), np.uint32)

    def read(name: str) -> bytes:
        try:
            return files.read_bounded(images.root / name, most_bytes)
        except OSError as error:
            raise UserError(f"cannot read {images.root / name}: {error.strerror}") from error

    with (
        files.naming(path),
        path.open("wb") as file,
        ImageProgress("writing", len(images.paths)) as progress,
    ):
        for index, (_, encoded) in enumerate(shards.read_ahead(images.paths, read)):
            file.write(encoded)
            sizes[index] = len(encoded)
            sums[index] = zlib.crc32(encoded)
            progress.advance(1)
        file.flush()
        os.fsync(file.fileno())
    return sizes, sums
