"""Which part of an image becomes the pixels that a network gets."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image, ImageFile

from train.data import images
from train.data.images import UnreadableImageError

# Width and height.
Size = tuple[int, int]
# The left, upper, right and lower edge.
Box = tuple[float, float, float, float]
_MIDDLE = (0.5, 0.5)
# An image of a user that is resized before it is cropped gets this many times the size of the crop,
# as 256 is to 224.
_MARGIN = 8 / 7


class Cut(NamedTuple):
    """What becomes of an image of a known size: a part of it is resized, and a part of that kept.

    Attributes:
        box: the edges of the part, in pixels of the image.
        size: the width and height that the part gets, by a bilinear filter with antialiasing.
        crop: the edges of what is kept, in pixels after that; None for all.
    """

    box: Box
    size: Size
    crop: tuple[int, int, int, int] | None = None

    def direct(self) -> "Cut":
        """The same crop, for which only its own part of the image is resized.

        That takes a third less time. A value may differ by 1 of 255: Pillow stores the edges of a
        part in 32 bits, and may resize the axes in another order.
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

    def of(self, image: Image.Image) -> Image.Image:
        """The part of the image."""
        # The complete image may be resized although the crop needs less: for photographs of
        # published data sets, these are the pixels that gave the published numbers.
        if (self.box, self.size) != ((0, 0, *image.size), image.size):
            image = image.resize(self.size, Image.Resampling.BILINEAR, box=self.box)
        return image if self.crop is None else image.crop(self.crop)


@dataclass(frozen=True)
class Fit:
    """How the middle of an image of any size becomes pixels of one size, as numbers.

    Evaluation and prediction compute with these numbers. An exported program has them in its
    description, so that other programs can do the same.

    Attributes:
        size: the width and height of the pixels.
        to: what is resized. "cover": the complete image, so that it just covers the size;
            "shorter_side": the complete image, so that its shorter side has a length;
            "middle_part": the middle, as if the image was resized and then cropped, unless the
            image has the size already.
        side: the length for "shorter_side"; else 0.
        margin: for "middle_part", the resized image would just cover this multiple of the size.
    """

    size: Size
    to: Literal["cover", "shorter_side", "middle_part"] = "cover"
    side: int = 0
    margin: float = 1.0

    @property
    def shorter_side(self) -> int:
        """The shorter side of the complete image when it is resized."""
        return self.side or min(self.size)

    @property
    def in_words(self) -> str:
        """How an image is resized, for users who prepare images themselves."""
        width, height = self.size
        if self.to == "shorter_side":
            return f"its shorter side resized to {self.side} pixels"
        if self.to == "cover":
            return f"resized to just cover {width} x {height} pixels"
        margin = Fraction(self.margin).limit_denominator(100)
        return f"unless it has {height} x {width} pixels, resized to just cover {margin} of these"

    def __call__(self, of: Size, position: tuple[float, float] = _MIDDLE) -> Cut:
        """What becomes of an image.

        Args:
            of: its width and height.
            position: for "middle_part", how far right and how far down the part is instead of the
                middle, each in [0, 1].
        """
        if self.to == "middle_part":
            return Cut(self._part(of, position), self.size)
        if self.to == "shorter_side":
            longer = int(self.side * max(of) / min(of))
            resized = (self.side, longer) if of[0] <= of[1] else (longer, self.side)
            # Halves go to the even number, as in torchvision.
            left, top = (round((r - s) / 2) for r, s in zip(resized, self.size, strict=True))
        else:
            scale = max(s / o for s, o in zip(self.size, of, strict=True))
            width, height = (max(s, round(o * scale)) for s, o in zip(self.size, of, strict=True))
            resized = (width, height)
            left, top = ((r - s) // 2 for r, s in zip(resized, self.size, strict=True))
        crop = (left, top, left + self.size[0], top + self.size[1])
        return Cut((0, 0, *of), resized, crop)

    def _part(self, of: Size, position: tuple[float, float]) -> Box:
        """The part that becomes the pixels: only that is resized."""
        if of == self.size:
            return (0, 0, *of)
        scale = self.margin * max(self.size[0] / of[0], self.size[1] / of[1])
        width, height = self.size[0] / scale, self.size[1] / scale
        left, top = position[0] * (of[0] - width), position[1] * (of[1] - height)
        return (left, top, left + width, top + height)


class Change(NamedTuple):
    """A random change of training images.

    Attributes:
        make: makes the training image of an image, the fit and numbers in [0, 1).
        num_draws: how many numbers it gets.
    """

    make: Callable[[Image.Image, Fit, np.ndarray], Image.Image]
    num_draws: int


def unchanged(image: Image.Image, fit: Fit, _draws: np.ndarray) -> Image.Image:
    """What evaluation gets."""
    return fit(image.size).of(image)


NO_CHANGE = Change(unchanged, 0)


def published_crop(image: Image.Image, fit: Fit, draws: np.ndarray) -> Image.Image:
    """A random crop of the resized image, as torchvision makes it: it gave the published results.

    Args:
        image: the image.
        fit: resizes it.
        draws: how far down and how far right the crop is.
    """
    (width, height), (box, resized, _) = fit.size, fit(image.size)
    across, down = resized[0] - width, resized[1] - height
    # Products round down, so that each crop is as likely.
    top, left = (draws * (down + 1, across + 1)).astype(int).tolist()
    return Cut(box, resized, (left, top, left + width, top + height)).direct().of(image)


@dataclass(frozen=True)
class ImageReader:
    """The steps by which an image file becomes pixels, in training, evaluation and prediction.

    1. The file is decoded to RGB, with eight bits a channel, and rotated; see `images.decode`.
    2. A part of it is resized and cropped. Training may draw which part, and change it further.
    3. It becomes grey, for a network that gets one channel.

    The device then normalizes what it gets; see `augmentation.normalize`. A reader is sent to the
    processes that decode.

    Attributes:
        shape: height, width and channels of the pixels.
        fit: which part of the image becomes the pixels; they have its size.
        change: how training images are changed.
        upright: whether images are rotated as their EXIF orientation says.
        grey_first: whether grey values are resized, and not colours.
    """

    shape: tuple[int, int, int]
    fit: Fit
    change: Change = NO_CHANGE
    upright: bool = True
    grey_first: bool = False

    @classmethod
    def plain(cls, shape: tuple[int, int, int]) -> "ImageReader":
        """The reader of data sets in memory: the middle of the image, resized to just cover it."""
        return cls(shape, Fit((shape[1], shape[0])), grey_first=shape[2] == 1)

    @classmethod
    def published(cls, side: int, resized_side: int) -> "ImageReader":
        """The reader that gave the published results.

        The EXIF orientation is not applied, as in torchvision's `ImageFolder`.

        Args:
            side: the height and width of a crop.
            resized_side: the shorter side of the image after resizing.
        """
        fit = Fit((side, side), "shorter_side", side=resized_side)
        return cls((side, side, 3), fit, Change(published_crop, 2), upright=False)

    @classmethod
    def own(
        cls, shape: tuple[int, int, int], change: Change, *, upright: bool = True
    ) -> "ImageReader":
        """The reader of users' images of any size.

        Args:
            shape: height, width and channels of the pixels.
            change: how training images are changed.
            upright: whether images are rotated.
        """
        return cls(shape, Fit((shape[1], shape[0]), "middle_part", margin=_MARGIN), change, upright)

    def for_training(self, encoded: bytes, name: str, draws: np.ndarray) -> np.ndarray:
        """The pixels of a training image, uint8, changed at random.

        Args:
            encoded: the bytes of its file.
            name: its name in messages.
            draws: numbers in [0, 1), as many as `change.num_draws`.

        Raises:
            UnreadableImageError: it is not an image, or not all of one, or it is too long and
                narrow to be resized.
        """
        return self._pixels(self.decode(encoded, name), name, self.change, draws)

    def for_evaluation(self, encoded: bytes | ImageFile.ImageFile, name: str) -> np.ndarray:
        """The pixels of an image, uint8; errors are as in `for_training`.

        Args:
            encoded: the bytes of its file, or what `images.opened` returned for it.
            name: its name in messages.
        """
        return self.pixels(self.decode(encoded, name), name)

    def decode(self, encoded: bytes | ImageFile.ImageFile, name: str) -> Image.Image:
        """The image in RGB; the arguments are as in `for_evaluation`.

        Raises:
            UnreadableImageError: it is not an image, or not all of one.
        """
        return images.decode(encoded, name, upright=self.upright)

    def pixels(self, image: Image.Image, name: str) -> np.ndarray:
        """The pixels of an image that `decode` gave, as `for_evaluation` makes them.

        Raises:
            UnreadableImageError: it is too long and narrow to be resized.
        """
        return self._pixels(image, name, NO_CHANGE, np.empty(0))

    def _pixels(
        self, image: Image.Image, name: str, change: Change, draws: np.ndarray
    ) -> np.ndarray:
        _check_resizable(image.size, self.fit.shorter_side, name)
        image = change.make(image.convert("L") if self.grey_first else image, self.fit, draws)
        if self.shape[-1] == 1:
            image = image.convert("L")
        return np.asarray(image).reshape(self.shape)


def _check_resizable(size: Size, shorter_side: int, name: str) -> None:
    """Refuses an image that is so long and narrow that it would be huge when resized.

    Raises:
        UnreadableImageError: with that shorter side, Pillow would refuse to decode it.
    """
    enlarged = max(size) * shorter_side**2 // min(size)
    # Above twice its limit Pillow takes an image for an attack on the memory.
    if enlarged > 2 * (Image.MAX_IMAGE_PIXELS or 2**30):
        raise UnreadableImageError(
            f"{name} is too long and narrow, {size[0]} x {size[1]} pixels: with its "
            f"shorter side at {shorter_side} it would have {enlarged:,}"
        )
