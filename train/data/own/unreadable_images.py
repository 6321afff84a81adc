"""Finds the images that cannot be read, before a run needs them.

The header of every image is read, and the last bytes of a JPEG or PNG file, which lack the end if a
copy broke off. An image that does not look complete is then read as training reads it. It is
unreadable only if that fails, so that no image is refused that training could use.
"""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from absl import logging
from PIL import Image

from train.data import image_formats, images
from train.data.batches import SkippedImage
from train.data.images import UnreadableImageError
from train.data.own.encoded_images import EncodedImages
from train.data.records import Records
from train.foundation import messages, reading
from train.foundation.errors import UserError

# The values of `config.dataset.check_images`: the headers are read, or all images are decoded.
HEADERS, ALL = CHECKS = ("headers", "all")
# The images that one thread looks at before another one does.
CHUNK = 64

# How many refused images the message names, and how many the lines before it.
_MOST_NAMED = 10
_MOST_TOLD = 1000
# The pixels of images in these modes can always be converted.
_PLAIN = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})
# A larger ratio of the sides may be refused.
_MOST_NARROW = 16
# How the pixels end. Some cameras and phones write something else behind them.
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}
_MOST_BEHIND = 2**16
_SCAN = 0xDA


def find(records: Records, *, check: str) -> Iterator[list[tuple[int, UnreadableImageError]]]:
    """The images that cannot be read, some of them at a time.

    Args:
        records: the images.
        check: one of `CHECKS`.

    Returns:
        For each `CHUNK` of the images, the index of each that cannot be read, and why.
    """

    def look(start: int) -> list[tuple[int, UnreadableImageError]]:
        indices = range(start, min(start + CHUNK, len(records)))
        suspected = (index for index in indices if check == ALL or not _looks_whole(records, index))
        found = ((index, why(records, index)) for index in suspected)
        return [(index, error) for index, error in found if error is not None]

    return reading.in_threads(look, range(0, len(records), CHUNK), ahead=CHUNK)


def why(records: Records, index: int) -> UnreadableImageError | None:
    """Why an image cannot be read; None if it can."""
    try:
        records.reader.for_evaluation(*records.encoded(index))
    except UnreadableImageError as error:
        return error
    return None


def refused(skipped: Sequence[SkippedImage], advice: str) -> UserError:
    """The error of images that cannot be read, all of them at once; also warns of each of several.

    Args:
        skipped: the images; there are some.
        advice: what leaves them out, at the end of the message.
    """
    if len(skipped) == 1:
        return UserError(f"{skipped[0].message}; {advice}")
    skipped = sorted(skipped, key=lambda one: one.image)
    for image in skipped[:_MOST_TOLD]:
        logging.warning("%s", image.message)
    named = messages.first_names([image.image for image in skipped], _MOST_NAMED)
    return UserError(
        f"{len(skipped):,} images of {skipped[0].source} cannot be read: {named}; {advice}"
    )


def without_images(classes: Sequence[str], source: str) -> UserError:
    """The error for classes without a training image that can be read."""
    named = messages.in_words(classes, "classes")
    return UserError(f"no training image of {named} in {source} can be read")


def _looks_whole(records: Records, index: int) -> bool:
    """Whether an image can be read, judged by its first and last bytes."""
    source = records.source
    in_source = int(records.indices[index])
    if not isinstance(source, EncodedImages) or image_formats.why_unreadable(
        source.name(in_source)
    ):
        return False
    try:
        with source.open(in_source) as file, images.opened(file) as image:
            width, height = image.size
            # Colours of 16 bits can be nearly black, which is refused.
            is_plain = (
                image.mode in _PLAIN
                and not any("16" in str(tile.args) for tile in image.tile)
                and max(width, height) <= _MOST_NARROW * min(width, height)
            )
            return is_plain and _has_end(file, image)
    except Exception:  # Whatever a damaged file makes Pillow's many readers raise; read once more.
        return False


def _has_end(file: BinaryIO, image: Image.Image) -> bool:
    size = file.seek(0, 2)
    end = _ENDS.get(str(image.format))
    if end is None:
        # Some readers have read all of the file, and have no tiles.
        return all(_end_of(tile, image) <= size for tile in getattr(image, "tile", ()))
    file.seek(-len(end), 2)
    if file.read() == end:
        return True
    # Not before the pixels: the preview in the header has an end of its own.
    start = 0 if image.format == "PNG" else _start_of_scan(file)
    file.seek(max(start, size - _MOST_BEHIND))
    return end in file.read()


def _end_of(tile: Any, image: Image.Image) -> int:
    """The least place in the file where a part of the pixels can end."""
    if tile.codec_name != "raw":
        return int(tile.offset)
    left, upper, right, lower = tile.extents
    # A byte for each band. If pixels have less, the file is read.
    return int(tile.offset) + (right - left) * (lower - upper) * len(image.getbands())


def _start_of_scan(file: BinaryIO) -> int:
    """The place where the pixels of a JPEG file start, behind the segments of its header."""
    place, marker = 2, b""
    while marker[1:2] != bytes([_SCAN]):
        file.seek(place)
        marker = file.read(4)
        if len(marker) < 4 or marker[0] != 0xFF:
            raise ValueError("it has no pixels")
        start, place = place, place + 2 + int.from_bytes(marker[2:], "big")
    return start
