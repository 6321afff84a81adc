"""Decodes JPEG files, and resizes parts of images, in 0.6 of Pillow's time.

simplejpeg decodes JPEG files with libjpeg-turbo, as Pillow does, to the same pixels. Pillow decodes
what simplejpeg does not: files in other formats, with four inks, or damaged. cykooz-resizer applies
Pillow's filter, but to several pixels in one instruction. It resizes the axes in the other order,
and only the part that is wanted. So sums are rounded at other places, and a value may come out a
step of 255 apart.
"""

import math

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

from train.data import images

# Pillow's bilinear filter, which is as wide as the scale when it shrinks an image.
_ALGORITHM = ResizeAlg.convolution(FilterType.bilinear)
# With the colours of other files Pillow decides what RGB is.
_COLOUR_SPACES = frozenset({"YCbCr", "RGB", "Gray"})


def decode(encoded: bytes, name: str) -> np.ndarray:
    """The pixels that `images.decode` gives, uint8 [height, width, 3].

    Raises:
        UnreadableImageError: it is not an image, or not all of one.
    """
    pixels = decode_jpeg(encoded)
    return np.asarray(images.decode(encoded, name)) if pixels is None else pixels


def decode_jpeg(encoded: bytes) -> np.ndarray | None:
    """The pixels of a file that simplejpeg decodes as Pillow does; None for other files."""
    try:
        height, width, colour_space, _ = simplejpeg.decode_jpeg_header(encoded)
        # Pillow may take a larger image for an attack on the memory.
        small = height * width <= (Image.MAX_IMAGE_PIXELS or math.inf)
        if small and colour_space in _COLOUR_SPACES:
            return simplejpeg.decode_jpeg(encoded)
    except ValueError:
        # Also what libjpeg-turbo only warns of. Pillow says what is wrong, or reads the file.
        pass
    return None


def resized(
    pixels: np.ndarray, size: tuple[int, int], box: tuple[float, float, float, float]
) -> np.ndarray:
    """A part of an image, resized, uint8 [height, width, 3].

    Args:
        pixels: the pixels of the whole image, uint8 [height, width, 3].
        size: the width and height that the part gets.
        box: the left, upper, right and lower edge of the part, in pixels of the image.
    """
    height, width, _ = pixels.shape
    left, upper, right, lower = box
    # The resizer wants a copy of the pixels: that of the rows which the filter reaches.
    reach = math.ceil(max(1, (lower - upper) / size[1])) + 1
    first, last = max(0, math.floor(upper) - reach), min(height, math.ceil(lower) + reach)
    rows = ImageData(width, last - first, PixelType.U8x3, pixels[first:last].tobytes())
    found = ImageData(*size, PixelType.U8x3)
    # The edges may be a rounding beyond those of the image.
    part = CropBox(left, upper - first, min(right, width) - left, min(lower, height) - upper)
    # A resizer serves one thread at a time.
    Resizer().resize(rows, found, ResizeOptions(_ALGORITHM, crop_box=part))
    return np.frombuffer(found.get_buffer(), np.uint8).reshape(size[1], size[0], 3)
