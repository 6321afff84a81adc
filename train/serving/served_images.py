"""Images of strangers: what they are and how large is known before their pixels are decoded."""

import io
import re

from PIL import Image, ImageFile, UnidentifiedImageError

from train.data import images, steps
from train.data.crops import ImageReader
from train.foundation.errors import first_line
from train.serving.limits import RefusalError

# The decoders that strangers reach; the others are for pictures that are rarely photographs.
# MPO is what Pillow calls a JPEG file with a second image in it.
_FORMATS = tuple(
    name for name in images.FORMATS if name in {"AVIF", "BMP", "GIF", "HEIF", "JPEG", "PNG", "WEBP"}
)
_IN_WORDS = "a JPEG, PNG, WebP, GIF, BMP, AVIF or HEIC image"
# Progressive files of cameras and programs have about ten. Each costs a pass over all pixels.
_MOST_SCANS = 64
_MOST_SEGMENTS = 10_000
# In the data of a scan, a byte 255 is followed by 0 or by the number of a restart.
_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_END, _SCAN = 0xD9, 0xDA
_WITHOUT_LENGTH = (0x01, 0xD8)


def read_header(
    encoded: bytes, reader: ImageReader, name: str, most: int
) -> tuple[ImageFile.ImageFile, int]:
    """The header of an image, and the most pixels that it has, also while it is resized.

    Raises:
        RefusalError: it is not an image of the formats, or has more pixels than `most`.
    """
    try:
        image = images.opened(io.BytesIO(encoded), _FORMATS)
        (width, height), kind = image.size, image.format
        pixels = max(width * height, steps.enlarged(reader.fit.resize, image.size))
    except (ImportError, UnidentifiedImageError) as error:
        raise RefusalError(415, f"{name} is not {_IN_WORDS}") from error
    except Image.DecompressionBombError as error:
        raise RefusalError(413, f"{name} has more than {most:,} pixels") from error
    except Exception as error:  # Pillow's readers can raise anything for a damaged file.
        raise RefusalError(422, f"cannot read {name}: {first_line(error)}") from error
    if pixels > most:
        raise RefusalError(
            413, f"{name} is too large, {width} x {height} pixels; at most {most:,} are read"
        )
    if kind in ("JPEG", "MPO") and _has_many_scans(encoded):
        raise RefusalError(422, f"cannot read {name}: it has more than {_MOST_SCANS} scans")
    return image, pixels


def _has_many_scans(encoded: bytes) -> bool:
    """Whether decoding a JPEG file takes far longer than its pixels need."""
    scans, place = 0, 0
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(encoded, place)
        if found is None or (marker := encoded[found.start() + 1]) == _END:
            return False
        place = found.end()
        if marker not in _WITHOUT_LENGTH:
            place += max(2, int.from_bytes(encoded[place : place + 2]))
        scans += marker == _SCAN
        if scans > _MOST_SCANS:
            return True
    return True
