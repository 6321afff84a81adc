"""How the images of the published data sets of photographs become pixels."""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from train.data import images
from train.data.images import DecodeOptions


@dataclass(frozen=True)
class PhotographReader:
    """Random crops for training, the central crop for evaluation, as in the published results.

    Attributes:
        shape: height, width and channels of the crops.
        num_draws: where a random crop lies takes two numbers.
        upright: the EXIF orientation is not applied, as in the published results.
        options: transparency is dropped, and an image that is not whole is unreadable.
    """

    shape: tuple[int, int, int]
    num_draws: int = 2
    upright: bool = False
    options: DecodeOptions = images.USUAL

    @property
    def in_words(self) -> str:
        """See `ImageReader`."""
        return f"its shorter side resized to {images.SHORTER_SIDE} pixels"

    def for_training(self, encoded: bytes, name: str, draws: np.ndarray) -> np.ndarray:
        """A random crop; see `ImageReader`."""
        return images.random_crop(self._checked(encoded, name), draws)

    def for_evaluation(self, encoded: bytes, name: str) -> np.ndarray:
        """The central crop; see `ImageReader`."""
        return images.center_crop(self._checked(encoded, name))

    def decode(self, encoded: bytes, name: str) -> Image.Image:
        """See `ImageReader`."""
        return images.decode(encoded, name, self.options)

    def fit(self, image: Image.Image, name: str) -> np.ndarray:
        """The central crop of a decoded image; see `ImageReader`."""
        images.check_resizable(image.size, images.SHORTER_SIDE, name)
        return images.center_crop(image)

    def _checked(self, encoded: bytes, name: str) -> Image.Image:
        image = self.decode(encoded, name)
        images.check_resizable(image.size, images.SHORTER_SIDE, name)
        return image
