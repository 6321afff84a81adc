"""Reads the EXIF data of photographs: a field by its name, or the time and the camera."""

import datetime
import math
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

from PIL import ExifTags, Image

from train.data import images
from train.foundation.errors import let_through

# The number of each field by its name. A photograph has them in several tables.
_BASE: Mapping[str, int] = {tag.name: tag.value for tag in ExifTags.Base}
_GPS: Mapping[str, int] = {tag.name: tag.value for tag in ExifTags.GPS}
FIELDS = (*_BASE, *_GPS)
# How a photograph has its date and time; it does not have the zone.
_TIME = "%Y:%m:%d %H:%M:%S"
_EPOCH = datetime.datetime(1970, 1, 1)


class Taken(NamedTuple):
    """When a photograph was taken, in seconds of the clock of its camera, and by which camera."""

    camera: str
    seconds: float


def value(file: BinaryIO, field: str) -> str:
    """A field of `FIELDS` of an image as a text; empty if the image does not have it."""
    return _read(file, lambda exif: _text(_find(exif, field))) or ""


def taken(file: BinaryIO) -> Taken | None:
    """When and with which camera an image was taken; None if that is not known."""
    return _read(file, _taken)


def _taken(exif: Image.Exif) -> Taken:
    # Programs write the time of their change into DateTime.
    time = _text(_find(exif, "DateTimeOriginal"))
    passed = (datetime.datetime.strptime(time, _TIME) - _EPOCH).total_seconds()
    digits = _text(_find(exif, "SubsecTimeOriginal"))
    if digits.isascii() and digits.isdigit():
        passed += float(f"0.{digits}")
    names = ("Make", "Model", "BodySerialNumber")
    return Taken(" ".join(_text(_find(exif, name)) for name in names), passed)


def _read(file: BinaryIO, find: Callable[[Image.Exif], Any]) -> Any:
    """What a function finds in the EXIF data of an image; None if these cannot be read."""
    try:
        with images.opened(file) as image:
            return find(image.getexif())
    except Exception as error:  # Pillow can raise anything for a damaged file.
        let_through(error)
        return None


def _find(exif: Image.Exif, field: str) -> Any:
    if field in _GPS:
        return exif.get_ifd(ExifTags.IFD.GPSInfo).get(_GPS[field])
    number = _BASE[field]
    found = exif.get(number)
    return exif.get_ifd(ExifTags.IFD.Exif).get(number) if found is None else found


def _text(found: Any) -> str:
    if found is None or (isinstance(found, float) and math.isnan(found)):
        return ""
    text = found.decode("latin-1") if isinstance(found, bytes) else str(found)
    return text.replace("\0", " ").strip()
