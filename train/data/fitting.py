"""How the middle of a picture of any size becomes pixels of one size, as numbers.

Evaluation and prediction compute with these numbers, and an exported program has them in its
description, so that other programs can do the same.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from train.data.pictures import Box, Cut, whole

# Width and height.
Size = tuple[int, int]


class Resizing(ABC):
    """Which part of a picture is resized, and to which size."""

    @abstractmethod
    def __call__(self, of: Size) -> tuple[Box, Size]:
        """The part of a picture of that size, and the size that the part gets."""


@dataclass(frozen=True)
class Cover(Resizing):
    """The complete picture, so that it just covers a size. Halves are rounded to the even number.

    Attributes:
        size: the width and height.
    """

    size: Size

    @override
    def __call__(self, of: Size) -> tuple[Box, Size]:
        width, height = self.size
        scale = max(height / of[1], width / of[0])
        return whole(of), (max(width, round(of[0] * scale)), max(height, round(of[1] * scale)))


@dataclass(frozen=True)
class ShorterSide(Resizing):
    """The complete picture, so that its shorter side has a length. The longer is rounded down.

    Attributes:
        side: the length.
    """

    side: int

    @override
    def __call__(self, of: Size) -> tuple[Box, Size]:
        width, height = of
        if width <= height:
            return whole(of), (self.side, int(self.side * height / width))
        return whole(of), (int(self.side * width / height), self.side)


@dataclass(frozen=True)
class MiddlePart(Resizing):
    """The middle of the picture, to a size, as if the picture was resized and then cropped.

    A picture that has the size already stays as it is.

    Attributes:
        size: the width and height.
        margin: the resized picture would just cover this multiple of the size.
    """

    size: Size
    margin: float

    @override
    def __call__(self, of: Size) -> tuple[Box, Size]:
        return self.at(of, (0.5, 0.5))

    def at(self, of: Size, position: tuple[float, float]) -> tuple[Box, Size]:
        """Another part than the middle.

        Args:
            of: the width and height of the picture.
            position: how far right and how far down the part is, each in [0, 1].
        """
        size = self.size
        if of == size:
            return whole(of), size
        scale = self.margin * max(size[0] / of[0], size[1] / of[1])
        # Only the part that becomes the crop is resized.
        width, height = size[0] / scale, size[1] / scale
        left, top = position[0] * (of[0] - width), position[1] * (of[1] - height)
        return (left, top, left + width, top + height), size


@dataclass(frozen=True)
class MiddleCrop:
    """The middle of a resized picture.

    Attributes:
        size: the width and height.
        halves: whether half a pixel at the left or the top is rounded down, or to the even number.
    """

    size: Size
    halves: Literal["down", "even"]

    def __call__(self, of: Size) -> tuple[int, int, int, int]:
        """The left, upper, right and lower edge in a picture of that size."""
        rooms = (of[0] - self.size[0], of[1] - self.size[1])
        left, top = (room // 2 if self.halves == "down" else round(room / 2) for room in rooms)
        return left, top, left + self.size[0], top + self.size[1]


@dataclass(frozen=True)
class Fit:
    """The steps from a picture of any size to pixels of one size.

    Attributes:
        resizing: which part is resized, and to which size.
        crop: what is kept of that; None for all.
    """

    resizing: Resizing
    crop: MiddleCrop | None = None

    def __call__(self, of: Size) -> Cut:
        """What becomes of a picture of that size."""
        box, size = self.resizing(of)
        return Cut(box, size, None if self.crop is None else self.crop(size))
