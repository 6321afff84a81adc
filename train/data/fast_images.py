"""Decodes JPEG files, and resizes parts of images, in 0.6 of Pillow's time.

simplejpeg decodes JPEG files with libjpeg-turbo, as Pillow does, to the same pixels. Pillow decodes
what simplejpeg does not: files in other formats, with four inks, or damaged. cykooz-resizer applies
Pillow's filter, but to several pixels in one instruction. It resizes the axes in the other order,
and only the part that is wanted. So sums are rounded at other places, and a value may come out a
step of 255 apart.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import simplejpeg
from cykooz_resizer import (
    CropBox,
    FilterType,
    ImageData,
    PixelType,
    ResizeAlg,
    ResizeOptions,
    Resizer,
)
from PIL import Image
from typing_extensions import override

from train.data import images
from train.data.pictures import Box, Cut, Picture

# Pillow's bilinear filter, which is as wide as the scale when it shrinks an image.
_ALGORITHM = ResizeAlg.convolution(FilterType.bilinear)
# Values of the EXIF orientation. A stored picture is mirrored from left to right or from top to
# bottom or both, then its rows become columns.
_UPRIGHT = 1
_MIRRORED_ACROSS = (2, 3, 7, 8)
_MIRRORED_DOWN = (3, 4, 6, 7)
_ON_ITS_SIDE = (5, 6, 7, 8)
# With the colours of other files Pillow decides what RGB is.
_COLOUR_SPACES = frozenset({"YCbCr", "RGB", "Gray"})


@dataclass(frozen=True)
class FastPicture(Picture):
    """A picture that is within a step of 255 of Pillow's wherever it is cut.

    A decoded image of a turned file may be a step from what the file itself gives. The operations
    of RandAugment are Pillow's, and some, such as posterize, make several steps of a step.

    Attributes:
        pixels: as they are stored, uint8 [height, width, 3].
        orientation: the EXIF orientation, by which what was resized is turned: it has fewer pixels.
    """

    pixels: np.ndarray
    orientation: int = _UPRIGHT

    @classmethod
    @override
    def of_file(cls, encoded: bytes, *, upright: bool) -> Self | None:
        pixels = decode_jpeg(encoded)
        if pixels is None:
            return None
        return cls(pixels, images.orientation(encoded) if upright else _UPRIGHT)

    @classmethod
    @override
    def of(cls, image: Image.Image) -> Self:
        return cls(np.asarray(image))

    @property
    @override
    def size(self) -> tuple[int, int]:
        height, width, _ = self.pixels.shape
        return (height, width) if self.orientation in _ON_ITS_SIDE else (width, height)

    @override
    def cut(self, cut: Cut) -> Image.Image:
        # A part of the upright picture becomes a part of the stored one: the axes change places,
        # then each of them is mirrored or not. The result is turned back.
        (left, upper, right, lower), size, _ = cut.direct()
        if self.orientation in _ON_ITS_SIDE:
            size = size[::-1]
            left, upper, right, lower = upper, left, lower, right
        height, width, _ = self.pixels.shape
        if self.orientation in _MIRRORED_ACROSS:
            left, right = width - right, width - left
        if self.orientation in _MIRRORED_DOWN:
            upper, lower = height - lower, height - upper
        found = self.pixels
        if (left, upper, right, lower, *size) != (0, 0, width, height, width, height):
            found = resized(self.pixels, size, (left, upper, right, lower))
        if self.orientation in _MIRRORED_ACROSS:
            found = found[:, ::-1]
        if self.orientation in _MIRRORED_DOWN:
            found = found[::-1]
        if self.orientation in _ON_ITS_SIDE:
            found = found.swapaxes(0, 1)
        return Image.fromarray(np.ascontiguousarray(found))


def decode_jpeg(encoded: bytes) -> np.ndarray | None:
    """The pixels of a file that simplejpeg decodes as Pillow does; None for other files."""
    try:
        height, width, colour_space, _ = simplejpeg.decode_jpeg_header(encoded)
        # Pillow may take a larger image for an attack on the memory.
        small = height * width <= (Image.MAX_IMAGE_PIXELS or math.inf)
        if small and colour_space in _COLOUR_SPACES:
            return simplejpeg.decode_jpeg(encoded)
    except ValueError:
        # libjpeg-turbo only warns of some of these errors. Pillow reports what is wrong, or reads
        # the file.
        pass
    return None


def resized(pixels: np.ndarray, size: tuple[int, int], box: Box) -> np.ndarray:
    """A part of an image, resized, uint8 [height, width, 3].

    Args:
        pixels: the pixels of the complete image, uint8 [height, width, 3].
        size: the width and height that the part gets.
        box: the left, upper, right and lower edge of the part, in pixels of the image.
    """
    height, width, _ = pixels.shape
    left, upper, right, lower = box
    # The resizer wants a copy of the pixels. Only the rows that the filter reaches are copied.
    reach = math.ceil(max(1, (lower - upper) / size[1])) + 1
    first, last = max(0, math.floor(upper) - reach), min(height, math.ceil(lower) + reach)
    rows = ImageData(width, last - first, PixelType.U8x3, pixels[first:last].tobytes())
    found = ImageData(*size, PixelType.U8x3)
    # By rounding, the edges may be slightly beyond the edges of the image.
    part = CropBox(left, upper - first, min(right, width) - left, min(lower, height) - upper)
    # A resizer serves one thread at a time.
    Resizer().resize(rows, found, ResizeOptions(_ALGORITHM, crop_box=part))
    return np.frombuffer(found.get_buffer(), np.uint8).reshape(size[1], size[0], 3)
