"""What makes the pixels that a network gets of image files, in training and elsewhere."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image

from train.data import images
from train.data.images import DECODE, ORIENT
from train.data.steps import FILTER, Size, Step, check_resizable, prepare, resized, run

# An image of a user that is resized before it is cropped gets this many times the size of the crop,
# as 256 is to 224.
_MARGIN = 8 / 7
# How Pillow makes a grey value: the weighted sum of red, green and blue, plus a half, without its
# last 16 bits.
_GREY: Step = {"step": "grey", "weights": [19595, 38470, 7471], "bits": 16}


@dataclass(frozen=True)
class Fit:
    """The steps by which the middle of an image of any size becomes pixels of one size.

    Attributes:
        resize: resizes the complete image ("cover", "shorter_side") or, unless the image has the
            size already, the middle that would stay if it were resized to `margin` times the size
            and cropped ("middle_part"); see `steps.resized`.
        crop: keeps the middle of what was resized; None if all of it is kept.
    """

    resize: Step
    crop: Step | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in their order."""
        return (self.resize,) if self.crop is None else (self.resize, self.crop)

    @property
    def size(self) -> Size:
        """The width and height of the pixels."""
        width, height = self.steps[-1]["size"]
        return width, height


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
    return run(image, fit.steps)


NO_CHANGE = Change(unchanged, 0)


def published_crop(image: Image.Image, fit: Fit, draws: np.ndarray) -> Image.Image:
    """A random crop of the resized image, as torchvision makes it: it gave the published results.

    Only the part of the image that is the crop is resized, which takes a third less time. A value
    may differ by 1 of 255: Pillow stores the edges of a part in 32 bits, and may resize the axes in
    another order. `draws` are how far down and how far right the crop is.
    """
    (width, height), (_, size) = fit.size, resized(fit.resize, image.size)
    # Products round down, so that each crop is as likely.
    left, top = (draws[::-1] * (np.subtract(size, fit.size) + 1)).astype(int).tolist()
    across, down = image.width / size[0], image.height / size[1]
    right = min((left + width) * across, image.width)
    lower = min((top + height) * down, image.height)
    return image.resize(fit.size, FILTER, box=(left * across, top * down, right, lower))


@dataclass(frozen=True)
class ImageReader:
    """What makes pixels of image files by steps, in training, evaluation and prediction.

    1. The file is decoded to RGB, with eight bits a channel, and rotated.
    2. A part of it is resized and cropped. Training may draw which part, and change it further.
    3. It becomes grey, for a network that gets one channel.

    The device then normalizes what it gets; see `augmentation.normalize`. A reader is sent to the
    processes that decode.

    Attributes:
        shape: height, width and channels of the pixels.
        steps: the steps, in their order; see `steps`.
        change: how training images are changed, in place of the steps of `fit`.
    """

    shape: tuple[int, int, int]
    steps: tuple[Step, ...]
    change: Change = NO_CHANGE

    @classmethod
    def plain(cls, shape: tuple[int, int, int]) -> "ImageReader":
        """The reader of data sets in memory: the middle of the image, resized to just cover it."""
        height, width, channels = shape
        resize = {"step": "resize", "to": "cover", "size": [width, height]}
        crop = {"step": "crop", "size": [width, height], "halves": "down"}
        # Grey values are resized, and not colours.
        grey = [_GREY] if channels == 1 else []
        return cls(shape, (DECODE, ORIENT, *grey, resize, crop))

    @classmethod
    def published(cls, side: int, resized_side: int) -> "ImageReader":
        """The reader that gave the published results: the middle of the resized image.

        The EXIF orientation is not applied, as in torchvision's `ImageFolder`.
        """
        resize = {"step": "resize", "to": "shorter_side", "side": resized_side}
        crop = {"step": "crop", "size": [side, side], "halves": "even"}
        return cls((side, side, 3), (DECODE, resize, crop), Change(published_crop, 2))

    @classmethod
    def own(cls, shape: tuple[int, int, int], change: Change) -> "ImageReader":
        """The reader of users' images of any size."""
        height, width, channels = shape
        part = {"step": "resize", "to": "middle_part", "size": [width, height], "margin": _MARGIN}
        grey = [_GREY] if channels == 1 else []
        return cls(shape, (DECODE, ORIENT, part, *grey), change)

    @property
    def fit(self) -> Fit:
        """The steps that resize and crop."""
        return Fit(*(step for step in self.steps if step["step"] in ("resize", "crop")))

    @property
    def upright(self) -> bool:
        """Whether images are rotated as their EXIF orientation says."""
        return ORIENT in self.steps

    def for_training(self, encoded: bytes, name: str, draws: np.ndarray) -> np.ndarray:
        """The pixels of a training image, uint8, changed by `change.num_draws` numbers in [0, 1).

        Raises:
            UnreadableImageError: it is not an image, or not all of one, or too long and narrow.
        """
        fit = self.fit
        start = self.steps.index(fit.resize)
        image = images.decode(encoded, name, self.steps[:start])
        with images.told(name):
            check_resizable(image, fit.resize)
            changed = self.change.make(image, fit, draws)
            return prepare(changed, self.steps[start + len(fit.steps) :])

    def for_evaluation(self, encoded: bytes | Image.Image, name: str) -> np.ndarray:
        """The pixels of an image, uint8; `encoded` may be what `images.opened` returned."""
        return self.pixels(self.decode(encoded, name), name)

    def decode(self, encoded: bytes | Image.Image, name: str) -> Image.Image:
        """The image in RGB; see `images.decode`."""
        return images.decode(encoded, name, self.steps[: self._decoded])

    def pixels(self, image: Image.Image, name: str) -> np.ndarray:
        """The pixels of an image that `decode` gave, as `for_evaluation` makes them."""
        with images.told(name):
            return prepare(image, self.steps[self._decoded :])

    @property
    def _decoded(self) -> int:
        """The number of the first steps that decode the file."""
        of_file = itertools.takewhile(lambda step: step["step"] in ("decode", "orient"), self.steps)
        return len([*of_file])
