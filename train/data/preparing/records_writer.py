"""Writes the images of a folder or a table as records, all of them or none.

The records have the bytes of the files as they are: no image is resized. Each is decoded once, to
find those that training could not read.
"""

import dataclasses
import os
import shutil
import zlib
from pathlib import Path

import numpy as np

from train.data.batches import SkippedImage
from train.data.framing import PlainFraming
from train.data.image_reader import ImageReader
from train.data.images import DecodeOptions, UnreadableImageError
from train.data.own import image_records, unreadable_images
from train.data.own.found_images import FoundImages
from train.data.own.image_records import DESCRIPTION, RECORDS
from train.data.own.listing import NO_SPLIT, Listing, Role
from train.data.preparing.dataset_writer import locked
from train.data.records import Records
from train.foundation import checksums, files, reading
from train.foundation.errors import UserError
from train.foundation.folder_lock import LOCK
from train.foundation.progress_bar import ImageProgress

# Encoded images that wait to be written.
_AHEAD = 16


def write(
    found: FoundImages,
    out: Path,
    *,
    nested: bool,
    group: str | None = None,
    skip_unreadable: bool = False,
    read_truncated: bool = False,
) -> tuple[str, ...]:
    """Writes the files of the images, and what is known of them, into a new folder.

    Everything is written into a folder `incomplete.NAME` beside it, which is then renamed.

    Args:
        found: the images of a folder or a table.
        out: the folder; empty if it exists.
        nested: whether each folder with images is a class.
        group: the column of the groups, if one was given.
        skip_unreadable: whether images that cannot be read are left out.
        read_truncated: whether files that lack their end are among those that can be read.

    Returns:
        The names of the images that were left out.

    Raises:
        UserError: images cannot be read, or the folder cannot be written to.
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
        # The size that a run will want is not known, and nothing is resized.
        options = DecodeOptions(read_truncated=read_truncated)
        reader = ImageReader(PlainFraming((1, 1, 3)), options=options)
        every = Records(found.images, np.arange(len(found.listing)), str(found.root), reader)
        kept, sizes, sums, unreadable = _write_records(every, unfinished)
        written = dataclasses.replace(found.listing.take(kept), sizes=sizes)
        try:
            if unreadable and not skip_unreadable:
                advice = "--skip_unreadable leaves such images out"
                raise unreadable_images.refused(unreadable, advice)
            _check_classes(found, written)
        except UserError:
            shutil.rmtree(unfinished)
            raise
        left_out = tuple(one.image for one in unreadable)
        described = image_records.describe(written, sums, left_out, nested=nested, group=group)
        checksums.add(unfinished, DESCRIPTION, described)
        unfinished.rename(out)
        (out / LOCK).unlink()
    return left_out


def _check_classes(found: FoundImages, written: Listing) -> None:
    """Refuses classes of which no training image can be read."""
    before, left = (
        listing.labels[np.isin(listing.roles, (Role.TRAIN, NO_SPLIT))]
        for listing in (found.listing, written)
    )
    without = np.setdiff1d(before, left).tolist()
    if without:
        names = [written.class_names[label] for label in without]
        raise unreadable_images.without_images(names, str(found.root))


def _write_records(
    every: Records, folder: Path
) -> tuple[list[int], np.ndarray, np.ndarray, list[SkippedImage]]:
    """Writes the records of the images that can be read.

    Returns:
        The index of each of them, its bytes, int64 [n], and its CRC-32 [n]; the other images.
    """
    kept: list[int] = []
    sizes: list[int] = []
    sums: list[int] = []
    unreadable = []

    def read(index: int) -> bytes | UnreadableImageError:
        try:
            encoded, where = every.encoded(index)
            every.reader.decode(encoded, where)
        except UnreadableImageError as error:
            return unreadable_images.advised(error, every)
        return encoded

    path = folder / RECORDS
    with (
        files.naming(path),
        path.open("wb") as file,
        ImageProgress("checking and writing", len(every)) as progress,
    ):
        for index, encoded in enumerate(reading.in_threads(read, range(len(every)), ahead=_AHEAD)):
            progress.advance(1)
            if isinstance(encoded, UnreadableImageError):
                unreadable.append(SkippedImage(every.file_name(index), every.name, str(encoded)))
                continue
            file.write(encoded)
            kept.append(index)
            sizes.append(len(encoded))
            sums.append(zlib.crc32(encoded))
        file.flush()
        os.fsync(file.fileno())
    return kept, np.array(sizes, np.int64), np.array(sums, np.uint32), unreadable
