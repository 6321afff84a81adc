"""From the bytes of somebody's image file to the pixels that the network gets."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from train.data import images
from train.data.own import image_changes
from train.data.own.image_changes import Change

# The values of `config.dataset.augmentation`.
CHANGES: Mapping[str, Change] = {
    "none": lambda image, size, _draws: image_changes.fitted(image, size),
    "flip": image_changes.flipped,
    "crop_flip": image_changes.cropped_and_flipped,
    "random_resized_crop": image_changes.resized_crop,
    "randaugment": image_changes.rand_augmented,
}


@dataclass(frozen=True)
class OwnImageReader:
    """Images of any size, resized and cropped to one; see `ImageReader`.

    Attributes:
        shape: height, width and channels of the pixels.
        upright: whether images are rotated as their EXIF orientation says.
        augmentation: how training images are changed, one of `CHANGES`.
    """

    shape: tuple[int, int, int]
    upright: bool
    augmentation: str
    num_draws: int = image_changes.NUM_DRAWS

    @property
    def in_words(self) -> str:
        """See `ImageReader`."""
        height, width, _ = self.shape
        return f"unless it has {height} x {width} pixels, resized to just cover 8/7 of these"

    def for_training(self, encoded: bytes, name: str, draws: np.ndarray) -> np.ndarray:
        """See `ImageReader`."""
        image = self._decoded(encoded, name)
        self._check(image, name)
        return self._pixels(CHANGES[self.augmentation](image, self._size, draws))

    def for_evaluation(self, encoded: bytes, name: str) -> np.ndarray:
        """See `ImageReader`."""
        return self.fit(self._decoded(encoded, name), name)

    def fit(self, image: Image.Image, name: str) -> np.ndarray:
        """See `ImageReader`."""
        self._check(image, name)
        return self._pixels(image_changes.fitted(image, self._size))

    @property
    def _size(self) -> tuple[int, int]:
        height, width, _ = self.shape
        return width, height

    def _decoded(self, encoded: bytes, name: str) -> Image.Image:
        image = images.decode(encoded, name)
        return images.turned_upright(image) if self.upright else image

    def _check(self, image: Image.Image, name: str) -> None:
        images.check_resizable(image.size, min(self._size), name)

    def _pixels(self, image: Image.Image) -> np.ndarray:
        if self.shape[-1] == 1:
            image = image.convert("L")
        return np.asarray(image).reshape(self.shape)
