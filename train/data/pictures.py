"""Decoded images that do not have their size yet, and the parts of them that get it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Self

from PIL import Image
from typing_extensions import override

Box = tuple[float, float, float, float]


class Cut(NamedTuple):
    """What becomes of a picture of a known size: a part of it is resized, and a part of that kept.

    Attributes:
        box: the left, upper, right and lower edge of the part, in pixels of the picture.
        size: the width and height that the part gets, by a bilinear filter with antialiasing.
        crop: the edges of what is kept, in pixels after that; None for all.
    """

    box: Box
    size: tuple[int, int]
    crop: tuple[int, int, int, int] | None = None

    def direct(self) -> "Cut":
        """The same crop, for which only its own part of the picture is resized.

        A value may differ by 1 of 255: Pillow stores the edges of a part in 32 bits, and may resize
        the axes in another order.
        """
        if self.crop is None:
            return self
        left, upper, right, lower = self.box
        across, down = (right - left) / self.size[0], (lower - upper) / self.size[1]
        first, top, last, bottom = self.crop
        part = (
            left + first * across,
            upper + top * down,
            min(left + last * across, right),
            min(upper + bottom * down, lower),
        )
        return Cut(part, (last - first, bottom - top))


def whole(size: tuple[int, int]) -> Box:
    """The edges of a picture by its width and height."""
    return (0, 0, *size)


class Picture(ABC):
    """A decoded image in RGB that does not have its size yet."""

    @classmethod
    def of_file(cls, encoded: bytes, *, upright: bool) -> Self | None:
        """The picture of a file that this kind decodes by itself; None for other files.

        Args:
            encoded: the bytes of the file.
            upright: whether it is rotated as its EXIF orientation says.
        """
        del encoded, upright
        return None

    @classmethod
    @abstractmethod
    def of(cls, image: Image.Image) -> Self:
        """The picture of a decoded image."""

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Its width and height."""

    @abstractmethod
    def cut(self, cut: Cut) -> Image.Image:
        """A part of it with another size."""


@dataclass(frozen=True)
class PillowPicture(Picture):
    """A picture that Pillow resizes."""

    image: Image.Image

    @classmethod
    @override
    def of(cls, image: Image.Image) -> Self:
        return cls(image)

    @property
    @override
    def size(self) -> tuple[int, int]:
        return self.image.size

    @override
    def cut(self, cut: Cut) -> Image.Image:
        image = self.image
        # The complete image may be resized although the crop needs less: for photographs of
        # published data sets, these are the pixels that gave the published numbers.
        if (cut.box, cut.size) != (whole(image.size), image.size):
            image = image.resize(cut.size, Image.Resampling.BILINEAR, box=cut.box)
        return image if cut.crop is None else image.crop(cut.crop)


class GreyPicture(PillowPicture):
    """A picture whose grey pixels are resized, and not its colours."""

    @classmethod
    @override
    def of(cls, image: Image.Image) -> Self:
        return cls(image.convert("L"))
