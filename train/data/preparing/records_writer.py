"""Writes the images of a folder or a table as records, all of them or none.

The records have the bytes of the files as they are: no image is resized. Each is decoded once, to
find those that training could not read.
"""

import dataclasses
import itertools
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from train.data.batches import SkippedImage
from train.data.crops import ImageReader
from train.data.images import UnreadableImageError
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
from train.sharing.work import ALONE, Share, Work, arrays_from_bytes, arrays_to_bytes, counting

# Encoded images that are read together, and wait to be written.
_AHEAD = 16
_WHAT = "checking and writing"
# The bytes of each image, or why it cannot be read.
_Images = list[bytes | SkippedImage]


def write(
    found: FoundImages,
    out: Path,
    *,
    nested: bool,
    group: str | None = None,
    skip_unreadable: bool = False,
    share: Share = ALONE,
) -> tuple[str, ...]:
    """Writes the files of the images, and what is known of them, into a new folder.

    Everything is written into a folder `incomplete.NAME` beside it, which is then renamed.

    Args:
        found: the images of a folder or a table.
        out: the folder; empty if it exists.
        nested: whether each folder with images is a class.
        group: the column of the groups, if one was given.
        skip_unreadable: whether images that cannot be read are left out.
        share: how this process takes part in the work.

    Returns:
        The names of the images that were left out.

    Raises:
        PartWritten: this process has written its part.
        UserError: images cannot be read, or the folder cannot be written to.
        OSError: the disk is full.
    """
    every = _records(found)
    images = share.results(_work(every))
    unfinished = out.with_name(f"incomplete.{out.name}")
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from error
    with locked(unfinished):
        for left in unfinished.iterdir():  # Left by a start that was killed.
            if left.name != LOCK:
                left.unlink()
        kept, sizes, sums, unreadable = _write_records(images, len(every), unfinished)
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


def readable(found: FoundImages, left_out: Iterable[str]) -> list[str]:
    """The names of images that were left out of records, and can be read now."""
    absent = frozenset(left_out)
    every = _records(found)
    return [
        path
        for index, path in enumerate(found.listing.paths)
        if path in absent and unreadable_images.why(every, index) is None
    ]


def _records(found: FoundImages) -> Records:
    # The size that a run will want is not known, and nothing is resized.
    reader = ImageReader.plain((1, 1, 3))
    return Records(found.images, np.arange(len(found.listing)), str(found.root), reader)


def _check_classes(found: FoundImages, written: Listing) -> None:
    """Refuses classes without a training image that can be read."""
    before, left = (
        listing.labels[np.isin(listing.roles, (Role.TRAIN, NO_SPLIT))]
        for listing in (found.listing, written)
    )
    without = np.setdiff1d(before, left).tolist()
    if without:
        names = [written.class_names[label] for label in without]
        raise unreadable_images.without_images(names, str(found.root))


def _work(every: Records) -> Work[_Images]:
    """The work of reading and checking the images."""

    def read(index: int) -> bytes | SkippedImage:
        try:
            encoded, where = every.encoded(index)
            every.reader.decode(encoded, where)
        except UnreadableImageError as error:
            return SkippedImage(every.file_name(index), every.name, str(error))
        return encoded

    def compute(units: range) -> Iterator[_Images]:
        images = range(units.start * _AHEAD, min(units.stop * _AHEAD, len(every)))
        found = reading.in_threads(read, images, ahead=_AHEAD)
        while batch := list(itertools.islice(found, _AHEAD)):
            yield batch

    number = -(-len(every) // _AHEAD)
    count = counting(len(every), _AHEAD)
    return Work("images", _WHAT, "images", number, count, compute, _encode, _decode)


def _encode(images: _Images) -> bytes:
    encoded = [image for image in images if isinstance(image, bytes)]
    sizes = [len(image) if isinstance(image, bytes) else -1 for image in images]
    skipped = [asdict(image) for image in images if isinstance(image, SkippedImage)]
    arrays: dict[str, np.ndarray] = {
        "content": np.frombuffer(b"".join(encoded), np.uint8),
        "sizes": np.array(sizes, np.int64),
    }
    return arrays_to_bytes(arrays, skipped)


def _decode(content: bytes) -> _Images:
    arrays, skipped = arrays_from_bytes(content)
    encoded = arrays["content"].tobytes()
    images: _Images = []
    start, left_out = 0, iter(skipped)
    for size in arrays["sizes"].tolist():
        if size < 0:
            images.append(SkippedImage(**next(left_out)))
        else:
            images.append(encoded[start : start + size])
            start += size
    return images


def _write_records(
    batches: Iterable[_Images], number: int, folder: Path
) -> tuple[list[int], np.ndarray, np.ndarray, list[SkippedImage]]:
    """Writes the records of the images that can be read.

    Args:
        batches: the images.
        number: how many they are.
        folder: the folder of the records.

    Returns:
        The index of each of them, its bytes, int64 [n], and its CRC-32 [n]; the other images.
    """
    kept: list[int] = []
    sizes: list[int] = []
    sums: list[int] = []
    unreadable = []
    path = folder / RECORDS
    with (
        files.name_in_errors(path),
        path.open("wb") as file,
        ImageProgress(_WHAT, number) as progress,
    ):
        for index, encoded in enumerate(itertools.chain.from_iterable(batches)):
            progress.advance(1)
            if isinstance(encoded, SkippedImage):
                unreadable.append(encoded)
                continue
            file.write(encoded)
            kept.append(index)
            sizes.append(len(encoded))
            sums.append(zlib.crc32(encoded))
        file.flush()
        os.fsync(file.fileno())
    return kept, np.array(sizes, np.int64), np.array(sums, np.uint32), unreadable
