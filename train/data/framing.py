"""Which part of a picture becomes the pixels that a network gets."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from PIL import Image, ImageOps
from typing_extensions import override

from train.data import ten_crops
from train.data.fitting import Cover, Fit, MiddleCrop, ShorterSide
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
        """The shorter side of the complete picture when it is resized."""
        return min(self.size)

    @property
    @abstractmethod
    def in_words(self) -> str:
        """How an image is resized, for users who prepare images themselves."""

    @property
    @abstractmethod
    def fit(self) -> Fit:
        """The part of a picture of any size that evaluation gets."""

    def drawn(self, picture: Picture, draws: np.ndarray) -> Image.Image:
        """What training gets, a function of `num_draws` numbers in [0, 1)."""
        del draws
        return picture.cut(self.fit(picture.size))

    def corners_and_middle(self, picture: Picture) -> list[Image.Image]:
        """Five crops; see `ten_crops`. The last is what `fit` gives."""
        across, down = ten_crops.padding(self.size)
        middle = ImageOps.expand(picture.cut(self.fit(picture.size)), (across, down))
        return _crops(middle, self.size)


class PlainFraming(Framing):
    """The middle of the picture, resized to just cover the pixels: for data sets in memory."""

    @property
    @override
    def in_words(self) -> str:
        width, height = self.size
        return f"resized to just cover {height} x {width} pixels"

    @property
    @override
    def fit(self) -> Fit:
        return Fit(Cover(self.size), MiddleCrop(self.size, "down"))


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

    @property
    @override
    def fit(self) -> Fit:
        # Halves go to the even number, as in torchvision.
        return Fit(ShorterSide(self.resized_side), MiddleCrop(self.size, "even"))

    @override
    def drawn(self, picture: Picture, draws: np.ndarray) -> Image.Image:
        width, height = self.size
        _, resized = ShorterSide(self.resized_side)(picture.size)
        across, down = resized[0] - width, resized[1] - height
        # Products round down, so that each crop is as likely.
        top, left = (draws * (down + 1, across + 1)).astype(int).tolist()
        cut = Cut(whole(picture.size), resized, (left, top, left + width, top + height))
        # To resize only the part that is cut out takes a third less time.
        return picture.cut(cut.direct())

    @override
    def corners_and_middle(self, picture: Picture) -> list[Image.Image]:
        # Resized once, because the crops overlap.
        image = picture.cut(Cut(*ShorterSide(self.resized_side)(picture.size)))
        return _crops(image, self.size)


def _crops(image: Image.Image, size: tuple[int, int]) -> list[Image.Image]:
    width, height = size
    return [
        image.crop((left, top, left + width, top + height))
        for left, top in ten_crops.edges((image.width - width, image.height - height))
    ]
