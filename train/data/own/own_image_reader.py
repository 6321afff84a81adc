"""From the bytes of somebody's image file to the pixels that the network gets."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from train.data import images
from train.data.images import DecodeOptions
from train.data.own import image_changes
from train.data.own.image_changes import Change, Picture

# The values of `config.dataset.augmentation`.
CHANGES: Mapping[str, Change] = {
    "none": lambda picture, size, _draws: image_changes.fitted(picture, size),
    "flip": image_changes.flipped,
    "crop_flip": image_changes.cropped_and_flipped,
    "random_resized_crop": image_changes.resized_crop,
    "randaugment": image_changes.rand_augmented,
}


@dataclass(frozen=True)
class _PillowPicture:
    """See `Picture`."""

    image: Image.Image

    @property
    def size(self) -> tuple[int, int]:
        """See `Picture`."""
        return self.image.size

    def resized(self, size: tuple[int, int], box: tuple[float, float, float, float]) -> Image.Image:
        """See `Picture`."""
        return self.image.resize(size, Image.Resampling.BILINEAR, box=box)


@dataclass(frozen=True)
class OwnImageReader:
    """Images of any size, resized and cropped to one; see `ImageReader`.

    Attributes:
        shape: height, width and channels of the pixels.
        upright: whether images are rotated as their EXIF orientation says.
        augmentation: how training images are changed, one of `CHANGES`.
        options: what is made of images that are not opaque, or not whole.
    """

    shape: tuple[int, int, int]
    upright: bool
    augmentation: str
    options: DecodeOptions = images.USUAL
    num_draws: int = image_changes.NUM_DRAWS

    @property
    def in_words(self) -> str:
        """See `ImageReader`."""
        height, width, _ = self.shape
        return f"unless it has {height} x {width} pixels, resized to just cover 8/7 of these"

    def for_training(self, encoded: bytes, name: str, draws: np.ndarray) -> np.ndarray:
        """See `ImageReader`."""
        picture = self._decoded(encoded, name)
        self._check(picture, name)
        return self._pixels(CHANGES[self.augmentation](picture, self._size, draws))

    def for_evaluation(self, encoded: bytes, name: str) -> np.ndarray:
        """See `ImageReader`."""
        return self._fitted(self._decoded(encoded, name), name)

    def decode(self, encoded: bytes, name: str) -> Image.Image:
        """See `ImageReader`."""
        image = images.decode(encoded, name, self.options)
        return images.turned_upright(image) if self.upright else image

    def fit(self, image: Image.Image, name: str) -> np.ndarray:
        """See `ImageReader`."""
        return self._fitted(self._of_image(image), name)

    @property
    def _size(self) -> tuple[int, int]:
        height, width, _ = self.shape
        return width, height

    def _decoded(self, encoded: bytes, name: str) -> Picture:
        return self._of_image(self.decode(encoded, name))

    def _of_image(self, image: Image.Image) -> Picture:
        return _PillowPicture(image)

    def _check(self, picture: Picture, name: str) -> None:
        images.check_resizable(picture.size, min(self._size), name)

    def _fitted(self, picture: Picture, name: str) -> np.ndarray:
        self._check(picture, name)
        return self._pixels(image_changes.fitted(picture, self._size))

    def _pixels(self, image: Image.Image) -> np.ndarray:
        if self.shape[-1] == 1:
            image = image.convert("L")
        return np.asarray(image).reshape(self.shape)
