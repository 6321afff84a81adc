"""The framing of users' own images, and random changes of training images."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from PIL import Image, ImageEnhance, ImageOps
from typing_extensions import override

from train.data import ten_crops
from train.data.fitting import Fit, MiddlePart
from train.data.framing import Framing
from train.data.pictures import Cut, Picture, whole

_FILTER = Image.Resampling.BILINEAR
# An image that is resized before it is cropped gets this many times the size of the crop, as 256 is
# to 224.
_MARGIN = 8 / 7
# The part of an image that is cut out at random, and the ratio of its sides (Szegedy et al. 2015).
_AREAS = (0.08, 1.0)
_RATIOS = (3 / 4, 4 / 3)
# RandAugment (Cubuk et al. 2020) with the strength and the number of torchvision's defaults.
_NUM_OPERATIONS = 2
_STRENGTH = 9 / 30
# The place of a crop takes four numbers, a flip one, and each operation two.
NUM_DRAWS = 4 + 1 + 2 * _NUM_OPERATIONS


# A picture, the size (width, height) that it gets, and `NUM_DRAWS` numbers in [0, 1), to an image.
Change = Callable[[Picture, tuple[int, int], np.ndarray], Image.Image]


def unchanged(picture: Picture, size: tuple[int, int], _draws: np.ndarray) -> Image.Image:
    """The middle of the image resized; an image that has the size already is left as it is."""
    return picture.cut(_middle(size)(picture.size))


def flipped(picture: Picture, size: tuple[int, int], draws: np.ndarray) -> Image.Image:
    """The middle of the image, flipped left to right with probability 1/2."""
    return _flip(unchanged(picture, size, draws), draws)


def cropped_and_flipped(picture: Picture, size: tuple[int, int], draws: np.ndarray) -> Image.Image:
    """A random crop of the resized image, flipped with probability 1/2.

    An image that has the size already is padded by an eighth of it with zeros.
    """
    if picture.size != size:
        box, resized = _part(size).at(picture.size, (draws[0], draws[1]))
        return _flip(picture.cut(Cut(box, resized)), draws)
    padding = (size[0] // 8, size[1] // 8)
    image = ImageOps.expand(picture.cut(Cut(whole(size), size)), padding)
    left, top = (int(draw * (2 * pad + 1)) for draw, pad in zip(draws, padding, strict=False))
    return _flip(image.crop((left, top, left + size[0], top + size[1])), draws)


def resized_crop(picture: Picture, size: tuple[int, int], draws: np.ndarray) -> Image.Image:
    """A random part of the image of random size, resized, flipped with probability 1/2.

    A part that would be wider or higher than the image is cut down to it.
    """
    whole_width, whole_height = picture.size
    area = whole_width * whole_height * (_AREAS[0] + draws[2] * (_AREAS[1] - _AREAS[0]))
    low, high = (math.log(ratio) for ratio in _RATIOS)
    ratio = math.exp(low + draws[3] * (high - low))
    width = min(max(1, round(math.sqrt(area * ratio))), whole_width)
    height = min(max(1, round(math.sqrt(area / ratio))), whole_height)
    left = int(draws[0] * (whole_width - width + 1))
    top = int(draws[1] * (whole_height - height + 1))
    box = (left, top, left + width, top + height)
    return _flip(picture.cut(Cut(box, size)), draws)


def rand_augmented(picture: Picture, size: tuple[int, int], draws: np.ndarray) -> Image.Image:
    """A random part, flipped with probability 1/2, then two random operations: RandAugment."""
    image = resized_crop(picture, size, draws)
    operations = list(_OPERATIONS.values())
    for choice, sign in draws[5:].reshape(_NUM_OPERATIONS, 2):
        operation = operations[int(choice * len(operations))]
        image = operation(image, _STRENGTH if sign < 0.5 else -_STRENGTH)
    return image


def _part(size: tuple[int, int]) -> MiddlePart:
    """A part of a picture, the middle or another one, with the usual margin beside it."""
    return MiddlePart(size, _MARGIN)


def _middle(size: tuple[int, int]) -> Fit:
    return Fit(_part(size))


def _flip(image: Image.Image, draws: np.ndarray) -> Image.Image:
    return ImageOps.mirror(image) if draws[4] < 0.5 else image


def _affine(image: Image.Image, *coefficients: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, resample=_FILTER)


def _enhanced(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Callable[..., Image.Image]:
    return lambda image, strength: kind(image).enhance(1 + 0.9 * strength)


# Each takes an image and a strength in [-1, 1]; operations without a sign use its absolute value.
_OPERATIONS: Mapping[str, Callable[[Image.Image, float], Image.Image]] = {
    "identity": lambda image, _: image,
    "shear_x": lambda image, strength: _affine(image, 1, 0.3 * strength, 0, 0, 1, 0),
    "shear_y": lambda image, strength: _affine(image, 1, 0, 0, 0.3 * strength, 1, 0),
    "translate_x": lambda image, strength: _affine(
        image, 1, 0, 0.45 * strength * image.width, 0, 1, 0
    ),
    "translate_y": lambda image, strength: _affine(
        image, 1, 0, 0, 0, 1, 0.45 * strength * image.height
    ),
    "rotate": lambda image, strength: image.rotate(30 * strength, resample=_FILTER),
    "brightness": _enhanced(ImageEnhance.Brightness),
    "color": _enhanced(ImageEnhance.Color),
    "contrast": _enhanced(ImageEnhance.Contrast),
    "sharpness": _enhanced(ImageEnhance.Sharpness),
    "posterize": lambda image, strength: ImageOps.posterize(image, 8 - round(4 * abs(strength))),
    "solarize": lambda image, strength: ImageOps.solarize(image, round(255 * (1 - abs(strength)))),
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
}
# The values of `config.dataset.augmentation`.
CHANGES: Mapping[str, Change] = {
    "none": unchanged,
    "flip": flipped,
    "crop_flip": cropped_and_flipped,
    "random_resized_crop": resized_crop,
    "randaugment": rand_augmented,
}


@dataclass(frozen=True)
class OwnFraming(Framing):
    """Images of any size, resized and cropped to one.

    Attributes:
        augmentation: how training images are changed, one of `CHANGES`.
    """

    augmentation: str = "none"
    num_draws: ClassVar[int] = NUM_DRAWS

    @property
    @override
    def in_words(self) -> str:
        width, height = self.size
        return f"unless it has {height} x {width} pixels, resized to just cover 8/7 of these"

    @property
    @override
    def fit(self) -> Fit:
        return _middle(self.size)

    @override
    def drawn(self, picture: Picture, draws: np.ndarray) -> Image.Image:
        return CHANGES[self.augmentation](picture, self.size, draws)

    @override
    def corners_and_middle(self, picture: Picture) -> list[Image.Image]:
        if picture.size == self.size:
            return super().corners_and_middle(picture)
        part = _part(self.size)
        return [
            picture.cut(Cut(*part.at(picture.size, position))) for position in ten_crops.POSITIONS
        ]
