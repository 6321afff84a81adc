"""Which part of a picture becomes the pixels that a network gets."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from PIL import Image

from train.data.pictures import Cut, Picture, whole


class Framing(Protocol):
    """Which part of a picture becomes the pixels, for evaluation and, at random, for training."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the pixels."""
        ...

    @property
    def num_draws(self) -> int:
        """How many random numbers an image of a training batch needs."""
        ...

    @property
    def shorter_side(self) -> int:
        """The shorter side of the whole picture when it is resized."""
        ...

    @property
    def in_words(self) -> str:
        """How an image is resized, for people who prepare images themselves."""
        ...

    def central(self, size: tuple[int, int]) -> Cut:
        """The part of a picture of some width and height that evaluation gets."""
        ...

    def drawn(self, picture: Picture, draws: np.ndarray) -> Image.Image:
        """What training gets, a function of `num_draws` numbers in [0, 1)."""
        ...


@dataclass(frozen=True)
class PublishedFraming:
    """Crops of the resized picture, as torchvision makes them: they gave the published results.

    Attributes:
        resized_side: the shorter side after resizing.
        crop: the height and width of a crop.
    """

    resized_side: int
    crop: int
    num_draws: ClassVar[int] = 2

    @property
    def shape(self) -> tuple[int, int, int]:
        """See `Framing`."""
        return self.crop, self.crop, 3

    @property
    def shorter_side(self) -> int:
        """See `Framing`."""
        return self.resized_side

    @property
    def in_words(self) -> str:
        """See `Framing`."""
        return f"its shorter side resized to {self.resized_side} pixels"

    def central(self, size: tuple[int, int]) -> Cut:
        """The central crop."""
        width, height = self._resized(size)
        # Halves go to the even number, as in torchvision.
        left, top = round((width - self.crop) / 2), round((height - self.crop) / 2)
        return self._cut(size, left, top)

    def drawn(self, picture: Picture, draws: np.ndarray) -> Image.Image:
        """A random crop; the two numbers are how far down and how far right it is."""
        width, height = self._resized(picture.size)
        # Products round down, so that each crop is as likely.
        places = draws * (height - self.crop + 1, width - self.crop + 1)
        top, left = places.astype(int).tolist()
        # To resize only the part that is cut out takes a third less time.
        return picture.cut(self._cut(picture.size, left, top).direct())

    def _cut(self, size: tuple[int, int], left: int, top: int) -> Cut:
        crop = (left, top, left + self.crop, top + self.crop)
        return Cut(whole(size), self._resized(size), crop)

    def _resized(self, size: tuple[int, int]) -> tuple[int, int]:
        """The width and height after resizing; the longer side is rounded down."""
        width, height = size
        if width <= height:
            return self.resized_side, int(self.resized_side * height / width)
        return int(self.resized_side * width / height), self.resized_side


@dataclass(frozen=True)
class PlainFraming:
    """The middle of the picture, resized to just cover the pixels: for data sets in memory."""

    shape: tuple[int, int, int]
    num_draws: ClassVar[int] = 0

    @property
    def shorter_side(self) -> int:
        """See `Framing`."""
        return min(self.shape[:2])

    @property
    def in_words(self) -> str:
        """See `Framing`."""
        height, width, _ = self.shape
        return f"resized to just cover {height} x {width} pixels"

    def central(self, size: tuple[int, int]) -> Cut:
        """See `Framing`."""
        height, width, _ = self.shape
        scale = max(height / size[1], width / size[0])
        resized = (max(width, round(size[0] * scale)), max(height, round(size[1] * scale)))
        left, top = (resized[0] - width) // 2, (resized[1] - height) // 2
        return Cut(whole(size), resized, (left, top, left + width, top + height))

    def drawn(self, picture: Picture, draws: np.ndarray) -> Image.Image:
        """The same: images in memory are changed on the device."""
        del draws
        return picture.cut(self.central(picture.size))
