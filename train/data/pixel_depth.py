"""Converts pixels of any depth to eight bits, by the number that is white in the file."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, TiffImagePlugin

from train.data import image_metadata

# Tags of TIFF files for the largest value, unsigned or signed. Some programs write white there, the
# same for all images of a camera, and others the largest value of this image, which must not change
# its brightness. So only a tag that is white for a sensor's number of bits is believed.
_MAX_SAMPLE_VALUE, _S_MAX_SAMPLE_VALUE = 281, 341
_BITS_OF_SENSORS = (10, 12, 14)
_SIGNED, _WHITE_IS_ZERO = 2, 0
# An image whose values use fewer than all but four of the bits is nearly black.
_DARK_BITS = 4
# The place of the depth in a PNG file.
_PNG_DEPTH = 24


@dataclass(frozen=True)
class _Depth:
    """How many bits the values of an image have.

    Attributes:
        bits: white is 2^bits - 1.
        is_said: whether the file states this, and not only in how many bits its pixels are stored.
        white_is_zero: whether larger values are darker.
    """

    bits: int
    is_said: bool
    white_is_zero: bool = False


def in_eight_bits(image: Image.Image, encoded: bytes) -> Image.Image:
    """The image with eight bits per channel: the high eight of the bits of its values.

    An image of eight bits or fewer is returned as it is. A transparent value is scaled like the
    pixels.

    Args:
        image: with its pixels.
        encoded: the bytes of its file.

    Raises:
        ValueError: the file does not state which number is white.
    """
    if image.mode == "F":
        # Pillow clips to 0 and 255, and an image from 0 to 1 would be black.
        raise ValueError(
            "its pixels are floating-point numbers, for which white is not known; save it "
            "with 8 or 16 bits"
        )
    if image.mode == "I" or image.mode.startswith("I;16"):
        return _grey(image, encoded)
    stored = _stored_bits(image, encoded)
    if image.mode in ("RGB", "RGBA") and stored == 16:
        _check_colours(image)
    transparent = image.info.get("transparency")
    if isinstance(transparent, tuple) and stored == 16:
        image.info["transparency"] = tuple(value >> 8 for value in transparent)
    if isinstance(transparent, int) and image.mode == "L" and stored < 8:
        # Pillow has scaled the pixels, and not this value.
        image.info["transparency"] = transparent * 255 // (2**stored - 1)
    return image


def _grey(image: Image.Image, encoded: bytes) -> Image.Image:
    values = np.asarray(image)
    if _is_unsigned(image):
        values = values.view(np.uint32)
    elif image.mode == "I":
        values = np.maximum(values, 0)
    largest = int(values.max())
    depth = _depth(image, encoded, largest)
    white = 2**depth.bits - 1
    if not depth.is_said and 0 < largest < 2 ** (depth.bits - _DARK_BITS):
        raise ValueError(
            f"no value is above {largest:,}, and white is {white:,}: it would be nearly black, and "
            "the number of bits used is not known; scale its values, or save it with 8 bits"
        )
    high = values >> (depth.bits - 8) if depth.bits >= 8 else values * 255 // white
    high = np.minimum(high, 255).astype(np.uint8)
    eight_bits = Image.fromarray(255 - high if depth.white_is_zero else high)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        opaque = np.where(np.asarray(image) == transparent, 0, 255).astype(np.uint8)
        eight_bits = Image.merge("LA", (eight_bits, Image.fromarray(opaque)))
    # The EXIF orientation is among it.
    eight_bits.info = {name: one for name, one in image.info.items() if name != "transparency"}
    return eight_bits


def _depth(image: Image.Image, encoded: bytes, largest: int) -> _Depth:
    """The depth of a grey image, whose largest value is given."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return _tiff_depth(image.tag_v2, largest)
    if image.format == "PPM":
        # The file has the largest value, and Pillow has scaled it to 16 bits.
        return _Depth(16, is_said=True)
    # Some versions of Pillow read the 16 bits of a PNG file as 32.
    bits = 31 if image.mode == "I" and image.format != "PNG" else 16
    measured = image_metadata.significant_bits(encoded) if image.format == "PNG" else None
    # By the standard the values are scaled to all 16 bits. Some programs write them as they are.
    if measured and largest < 2**measured:
        return _Depth(measured, is_said=True)
    return _Depth(bits, is_said=False)


def _tiff_depth(tags: TiffImagePlugin.ImageFileDirectory_v2, largest: int) -> _Depth:
    white_is_zero = tags.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == _WHITE_IS_ZERO
    stored = _first(tags, TiffImagePlugin.BITSPERSAMPLE, 1)
    bits = stored - (_first(tags, TiffImagePlugin.SAMPLEFORMAT, 1) == _SIGNED)
    said = max(_first(tags, tag, 0) for tag in (_MAX_SAMPLE_VALUE, _S_MAX_SAMPLE_VALUE))
    for of_sensor in _BITS_OF_SENSORS:
        if said == 2**of_sensor - 1 and of_sensor < bits and largest <= said:
            return _Depth(of_sensor, is_said=True, white_is_zero=white_is_zero)
    # The file itself gives any other depth.
    return _Depth(bits, is_said=stored not in (16, 32), white_is_zero=white_is_zero)


def _check_colours(image: Image.Image) -> None:
    """Refuses colours of 16 bits that are nearly black in the high eight, which Pillow keeps."""
    largest = int(np.asarray(image)[..., :3].max())
    if largest < 2 ** (8 - _DARK_BITS):
        raise ValueError(
            f"no value is above {256 * largest + 255:,}, and white is {2**16 - 1:,}: it would be "
            "nearly black; scale its values, or save it with 8 bits"
        )


def _stored_bits(image: Image.Image, encoded: bytes) -> int:
    """The bits in which a value is stored; 8 for formats whose values Pillow scales."""
    if image.format == "PNG":
        return encoded[_PNG_DEPTH]
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return _first(image.tag_v2, TiffImagePlugin.BITSPERSAMPLE, 8)
    return 8


def _is_unsigned(image: Image.Image) -> bool:
    """Whether Pillow has read unsigned numbers of 32 bits as signed ones."""
    if image.mode != "I" or not isinstance(image, TiffImagePlugin.TiffImageFile):
        return False
    return _first(image.tag_v2, TiffImagePlugin.SAMPLEFORMAT, 1) != _SIGNED


def _first(tags: TiffImagePlugin.ImageFileDirectory_v2, tag: int, usual: int) -> int:
    """The value of a tag, or the first of several."""
    found = tags.get(tag, usual)
    return int(found[0] if isinstance(found, tuple) else found)
