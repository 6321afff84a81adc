"""The pixels of somebody's images by `fast_images`, at most a step of 255 from those of Pillow.

The operations of RandAugment are Pillow's. Some of them, such as posterize and equalize, make
several steps of a step.
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from train.data import fast_images, images
from train.data.own.image_changes import Picture
from train.data.own.own_image_reader import OwnImageReader

# Values of the EXIF orientation. A stored picture is mirrored from left to right or from top to
# bottom or both, then its rows become columns.
_UPRIGHT = 1
_MIRRORED_ACROSS = (2, 3, 7, 8)
_MIRRORED_DOWN = (3, 4, 6, 7)
_ON_ITS_SIDE = (5, 6, 7, 8)


class FastOwnImageReader(OwnImageReader):
    """The images of `OwnImageReader`, to a step of 255.

    `fit` gets an image that is upright already, and may be a step from what `for_evaluation` makes
    of the file of a turned one.
    """

    def _decoded(self, encoded: bytes, name: str) -> Picture:
        pixels = fast_images.decode_jpeg(encoded)
        if pixels is None:
            return super()._decoded(encoded, name)
        return _FastPicture(pixels, images.orientation(encoded) if self.upright else _UPRIGHT)

    def _of_image(self, image: Image.Image) -> Picture:
        return _FastPicture(np.asarray(image), _UPRIGHT)


@dataclass(frozen=True)
class _FastPicture:
    """See `Picture`.

    Attributes:
        pixels: as they are stored, uint8 [height, width, 3].
        orientation: the EXIF orientation, by which what was resized is turned: it has fewer pixels.
    """

    pixels: np.ndarray
    orientation: int

    @property
    def size(self) -> tuple[int, int]:
        """See `Picture`."""
        height, width, _ = self.pixels.shape
        return (height, width) if self.orientation in _ON_ITS_SIDE else (width, height)

    def resized(self, size: tuple[int, int], box: tuple[float, float, float, float]) -> Image.Image:
        """See `Picture`."""
        # From the upright picture to the stored one and back: the axes change places, then each of
        # them is mirrored or not.
        left, upper, right, lower = box
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
            found = fast_images.resized(self.pixels, size, (left, upper, right, lower))
        if self.orientation in _MIRRORED_ACROSS:
            found = found[:, ::-1]
        if self.orientation in _MIRRORED_DOWN:
            found = found[::-1]
        if self.orientation in _ON_ITS_SIDE:
            found = found.swapaxes(0, 1)
        return Image.fromarray(np.ascontiguousarray(found))
