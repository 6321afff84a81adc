"""From the bytes of an image file to RGB pixels, upright, with Pillow."""

import io
from typing import BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageFile, ImageOps, TiffImagePlugin, UnidentifiedImageError

from train.foundation import packages
from train.foundation.errors import UserError, first_line

try:
    import pillow_heif

    # Nothing else in such a file is used, and so it cannot be damaged.
    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
    _READS_HEIC = True
except ImportError:
    _READS_HEIC = False
Image.init()
# The formats that are read. An EPS file is a program, which Pillow has Ghostscript run.
FORMATS = tuple(name for name in Image.ID if name != "EPS")
# Where Pillow keeps XMP data.
_XMP = ("xmp", "XML:com.adobe.xmp")
# Tags of TIFF files, and their values for a preview and for pixels whose white is zero.
_NEW_SUBFILE_TYPE, _PHOTOMETRIC = 254, 262
_REDUCED, _WHITE_IS_ZERO = 1, 0
_CANON_RAW = b"CR"
# An image of 16 bits whose values use fewer than 12 is nearly black in its high eight.
_LEAST_BRIGHT = 2**12


class UnreadableImageError(UserError):
    """A file that is not an image, or not all of one."""


def opened(file: BinaryIO, formats: tuple[str, ...] = FORMATS) -> ImageFile.ImageFile:
    """An image whose header is read, and whose pixels are not.

    Args:
        file: the file, at its start.
        formats: the formats that it may have, some of `FORMATS`.

    Raises:
        UnidentifiedImageError: it is not an image of these formats.
        Exception: Pillow's many readers can raise anything for a damaged file.
    """
    head = file.read(12)
    file.seek(0)
    try:
        image = Image.open(file, formats=formats)
    except UnidentifiedImageError as error:
        if head[4:8] == b"ftyp" and not _READS_HEIC:
            raise ImportError(packages.missing("HEIC", "pillow-heif", "heic")) from error
        raise
    if isinstance(image, TiffImagePlugin.TiffImageFile) and (
        image.tag_v2.get(_NEW_SUBFILE_TYPE, 0) & _REDUCED or head[8:10] == _CANON_RAW
    ):
        raise ValueError(
            "it has a preview in place of the picture, as the raw photographs of cameras have; "
            "convert it to JPEG or PNG"
        )
    return image


def decode(encoded: bytes | ImageFile.ImageFile, name: str, *, upright: bool = True) -> Image.Image:
    """The image in RGB, without its transparency; of values of 16 bits the high eight.

    Args:
        encoded: the bytes of a file, or what `opened` returned for it.
        name: its name in messages.
        upright: whether it is rotated as its EXIF orientation says.

    Raises:
        UnreadableImageError: it is not an image, or not all of one, or which value is white is not
            known.
    """
    try:
        image = opened(io.BytesIO(encoded)) if isinstance(encoded, bytes) else encoded
        return _rgb(image, upright=upright)
    except UnidentifiedImageError as error:
        raise UnreadableImageError(f"{name} is not an image") from error
    except Exception as error:  # Whatever a damaged file makes Pillow's many readers raise.
        raise UnreadableImageError(f"cannot decode {name}: {first_line(error)}") from error


def _rgb(image: ImageFile.ImageFile, *, upright: bool) -> Image.Image:
    has_deep_colours = any(";16" in str(tile.args) for tile in image.tile)
    # Pillow rotates a TIFF file while it decodes it.
    has_xmp = _forget_xmp(image)
    # Decodes all of it now. Otherwise a truncated file is only noticed later.
    image.load()
    found: Image.Image = image
    if upright:
        has_xmp |= _forget_xmp(image)
        # A JPEG file keeps an orientation that it has found in XMP. A copy does not.
        found = _turned(image.copy() if has_xmp else image)
    if image.mode[0] in "IF":
        found = _high_bits(found, image)
    elif has_deep_colours and np.asarray(image)[..., :3].max() < _LEAST_BRIGHT >> 8:
        raise _nearly_black()
    if found.mode == "P" and "transparency" in found.info:
        # Pillow would convert it to RGB with the same pixels, and a warning.
        found = found.convert("RGBA")
    return found if found.mode == "RGB" else found.convert("RGB")


def _turned(image: Image.Image) -> Image.Image:
    try:
        is_upright = image.getexif().get(ExifTags.Base.Orientation, 1) == 1
        # Pillow would copy an image that is upright.
        return image if is_upright else ImageOps.exif_transpose(image)
    except Exception:  # Pillow can raise anything for damaged EXIF; the pixels are fine.
        return image


def _forget_xmp(image: Image.Image) -> bool:
    """Has Pillow look for the orientation only in EXIF, as browsers do; whether XMP was there."""
    found = [image.info.pop(name, None) for name in _XMP]
    return any(one is not None for one in found)


def _high_bits(grey: Image.Image, file: ImageFile.ImageFile) -> Image.Image:
    """The high eight bits of grey values of 16 bits.

    Raises:
        ValueError: they have more bits, or are nearly black.
    """
    if file.mode == "F" or (
        isinstance(file, TiffImagePlugin.TiffImageFile)
        and (file.mode == "I" or file.tag_v2.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)
    ):
        raise ValueError(
            "its pixels are numbers for which white is not known, as floating-point numbers are; "
            "save it with 8 or 16 bits"
        )
    values = np.asarray(grey)
    if 0 < values.max() < _LEAST_BRIGHT:
        raise _nearly_black()
    return Image.fromarray((values >> 8).astype(np.uint8))


def _nearly_black() -> ValueError:
    return ValueError(
        f"no value is above {_LEAST_BRIGHT - 1:,}, and white is {2**16 - 1:,}: it would be nearly "
        "black; scale its values, or save it with 8 bits"
    )
