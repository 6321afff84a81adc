"""The crops of photographs by `fast_images`, at most one step of 255 from those of Pillow."""

import numpy as np
from PIL import Image

from train.data import fast_images, images
from train.data.photograph_reader import PhotographReader


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


def _checked(encoded: bytes, name: str) -> np.ndarray:
    pixels = fast_images.decode(encoded, name)
    images.check_resizable(_size(pixels), images.SHORTER_SIDE, name)
    return pixels


def crop(pixels: np.ndarray, place: tuple[int, int]) -> np.ndarray:
    """A crop of the resized image, uint8 [224, 224, 3].

    Args:
        pixels: the pixels of the whole image before it is resized, uint8 [height, width, 3].
        place: where the crop lies in the resized image, as in `images.random_place`.
    """
    box = images.part_of(_size(pixels), place)
    return fast_images.resized(pixels, (images.CROP, images.CROP), box)


def _central(pixels: np.ndarray) -> np.ndarray:
    return crop(pixels, images.center_place(_size(pixels)))


def _size(pixels: np.ndarray) -> tuple[int, int]:
    height, width, _ = pixels.shape
    return width, height
