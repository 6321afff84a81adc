"""Crops of photographs in 0.6 of Pillow's time, at most one step of 255 apart.

simplejpeg decodes JPEG files with libjpeg-turbo, as Pillow does, to the same pixels. Pillow decodes
what simplejpeg does not: files in other formats, with four inks, or damaged. cykooz-resizer applies
Pillow's filter, but to several pixels in one instruction. It resizes the axes in the other order,
and only what the crop shows. So sums are rounded at other places, and a value may come out a step
apart.
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
from train.data.photographs import PhotographReader

# Pillow's bilinear filter, which is as wide as the scale when it shrinks an image.
_ALGORITHM = ResizeAlg.convolution(FilterType.bilinear)
# With the colours of other files Pillow decides what RGB is.
_COLOUR_SPACES = frozenset({"YCbCr", "RGB", "Gray"})


class FastPhotographReader(PhotographReader):
    """The crops of `PhotographReader`, to a step of 255."""

    def for_training(self, encoded: bytes, name: str, draws: np.ndarray) -> np.ndarray:
        """A random crop; see `ImageReader`."""
        pixels = _checked(encoded, name)
        return crop(pixels, images.random_place(_size(pixels), draws))

    def for_evaluation(self, encoded: bytes, name: str) -> np.ndarray:
        """The central crop; see `ImageReader`."""
        return _central(_checked(encoded, name))

    def fit(self, image: Image.Image, name: str) -> np.ndarray:
        """The central crop of a decoded image; see `ImageReader`."""
        images.check_resizable(image.size, images.SHORTER_SIDE, name)
        return _central(np.asarray(image))


def decode(encoded: bytes, name: str) -> np.ndarray:
    """The pixels that `images.decode` gives, uint8 [height, width, 3].

    Raises:
        UnreadableImageError: it is not an image, or not all of one.
    """
    try:
        height, width, colour_space, _ = simplejpeg.decode_jpeg_header(encoded)
        # Pillow may take a larger image for an attack on the memory.
        small = height * width <= (Image.MAX_IMAGE_PIXELS or math.inf)
        if small and colour_space in _COLOUR_SPACES:
            return simplejpeg.decode_jpeg(encoded)
    except ValueError:
        # Also what libjpeg-turbo only warns of. Pillow says what is wrong, or reads the file.
        pass
    return np.asarray(images.decode(encoded, name))


def _checked(encoded: bytes, name: str) -> np.ndarray:
    pixels = decode(encoded, name)
    images.check_resizable(_size(pixels), images.SHORTER_SIDE, name)
    return pixels


def crop(pixels: np.ndarray, place: tuple[int, int]) -> np.ndarray:
    """A crop of the resized image, uint8 [224, 224, 3].

    Args:
        pixels: those of the whole image before it is resized, uint8 [height, width, 3].
        place: where the crop lies in the resized image, as in `images.random_place`.
    """
    width, height = _size(pixels)
    left, upper, right, lower = images.part_of((width, height), place)
    # The resizer wants a copy of the pixels: that of the rows which the filter reaches.
    reach = math.ceil(max(1, height / images.resized((width, height))[1])) + 1
    first, last = max(0, math.floor(upper) - reach), min(height, math.ceil(lower) + reach)
    rows = ImageData(width, last - first, PixelType.U8x3, pixels[first:last].tobytes())
    resized = ImageData(images.CROP, images.CROP, PixelType.U8x3)
    part = CropBox(left, upper - first, right - left, lower - upper)
    # A resizer serves one thread at a time.
    Resizer().resize(rows, resized, ResizeOptions(_ALGORITHM, crop_box=part))
    return np.frombuffer(resized.get_buffer(), np.uint8).reshape(images.CROP, images.CROP, 3)


def _central(pixels: np.ndarray) -> np.ndarray:
    return crop(pixels, images.center_place(_size(pixels)))


def _size(pixels: np.ndarray) -> tuple[int, int]:
    height, width, _ = pixels.shape
    return width, height
