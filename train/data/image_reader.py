"""From the bytes of an image file to the pixels that the network gets."""

from typing import Protocol

import numpy as np
from PIL import Image

from train.data.images import DecodeOptions


class ImageReader(Protocol):
    """How the images of a streamed data set become pixels, for training and for evaluation.

    It is sent to the processes that decode.
    """

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the pixels."""
        ...

    @property
    def num_draws(self) -> int:
        """How many random numbers an image of a training batch needs."""
        ...

    @property
    def upright(self) -> bool:
        """Whether images are rotated as their EXIF orientation says."""
        ...

    @property
    def options(self) -> DecodeOptions:
        """What is made of images that are not opaque, or not whole."""
        ...

    @property
    def in_words(self) -> str:
        """How an image is resized, for people who prepare images themselves."""
        ...

    def for_training(self, encoded: bytes, name: str, draws: np.ndarray) -> np.ndarray:
        """The pixels of a training image, uint8, changed at random.

        Args:
            encoded: the bytes of its file.
            name: its name in messages.
            draws: numbers in [0, 1), [num_draws].

        Raises:
            UnreadableImageError: it is not an image, or not all of one.
        """
        ...

    def for_evaluation(self, encoded: bytes, name: str) -> np.ndarray:
        """The pixels of an image, uint8; the arguments are those of `for_training`.

        Raises:
            UnreadableImageError: it is not an image, or not all of one.
        """
        ...

    def decode(self, encoded: bytes, name: str) -> Image.Image:
        """The image in RGB, upright if the reader is; the arguments are those of `for_training`.

        Raises:
            UnreadableImageError: it is not an image, or not all of one.
        """
        ...

    def fit(self, image: Image.Image, name: str) -> np.ndarray:
        """The pixels of an image that `decode` gave, as `for_evaluation` makes them.

        Raises:
            UnreadableImageError: it is too long and narrow to be resized.
        """
        ...
