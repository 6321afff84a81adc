"""Which part of a picture becomes the pixels that a network gets."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from PIL import Image
from typing_extensions import override

from train.data.pictures import Cut, Picture, whole


@dataclass(frozen=True)
class Framing(ABC):
    """Which part of a picture becomes the pixels, for evaluation and, at random, for training.

    Attributes:
        shape: height, width and channels of the pixels.
        num_draws: how many random numbers an image of a training batch needs.
    """

    shape: tuple[int, int, int]
    num_draws: ClassVar[int] = 0

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the pixels."""
        height, width, _ = self.shape
        return width, height

    @property
    def shorter_side(self) -> int:
        """The shorter side of the whole picture when it is resized."""
        return min(self.size)

    @property
    @abstractmethod
    def in_words(self) -> str:
        """How an image is resized, for people who prepare images themselves."""

    @abstractmethod
    def central(self, size: tuple[int, int]) -> Cut:
        """The part of a picture of some width and height that evaluation gets."""

    def drawn(self, picture: Picture, draws: np.ndarray) -> Image.Image:
        """What training gets, a function of `num_draws` numbers in [0, 1)."""
        del draws
        return picture.cut(self.central(picture.size))


class PlainFraming(Framing):
    """The middle of the picture, resized to just cover the pixels: for data sets in memory."""

    @property
    @override
    def in_words(self) -> str:
        width, height = self.size
        return f"resized to just cover {height} x {width} pixels"

    @override
    def central(self, size: tuple[int, int]) -> Cut:
        width, height = self.size
        scale = max(height / size[1], width / size[0])
        resized = (max(width, round(size[0] * scale)), max(height, round(size[1] * scale)))
        left, top = (resized[0] - width) // 2, (resized[1] - height) // 2
        return Cut(whole(size), resized, (left, top, left + width, top + height))


@dataclass(frozen=True)
class PublishedFraming(Framing):
    """Crops of the resized picture, as torchvision makes them: they gave the published results.

    Attributes:
        resized_side: the shorter side after resizing.
    """

    resized_side: int
    # How far down and how far right a random crop is.
    num_draws: ClassVar[int] = 2

    @property
    @override
    def shorter_side(self) -> int:
        return self.resized_side

    @property
    @override
    def in_words(self) -> str:
        return f"its shorter side resized to {self.resized_side} pixels"

    @override
    def central(self, size: tuple[int, int]) -> Cut:
        across, down = self._room(size)
        # Halves go to the even number, as in torchvision.
        return self._crop(size, round(across / 2), round(down / 2))

    @override
    def drawn(self, picture: Picture, draws: np.ndarray) -> Image.Image:
        across, down = self._room(picture.size)
        # Products round down, so that each crop is as likely.
        top, left = (draws * (down + 1, across + 1)).astype(int).tolist()
        # To resize only the part that is cut out takes a third less time.
        return picture.cut(self._crop(picture.size, left, top).direct())

    def _crop(self, size: tuple[int, int], left: int, top: int) -> Cut:
        width, height = self.size
        return Cut(whole(size), self._resized(size), (left, top, left + width, top + height))

    def _room(self, size: tuple[int, int]) -> tuple[int, int]:
        """How far right and how far down a crop can be."""
        resized, crop = self._resized(size), self.size
        return resized[0] - crop[0], resized[1] - crop[1]

    def _resized(self, size: tuple[int, int]) -> tuple[int, int]:
        """The width and height after resizing; the longer side is rounded down."""
        width, height = size
        if width <= height:
            return self.resized_side, int(self.resized_side * height / width)
        return int(self.resized_side * width / height), self.resized_side
