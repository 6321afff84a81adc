"""Random changes of users' training images, with Pillow."""

import math
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from train.data.crops import Change, Fit, unchanged
from train.data.steps import FILTER, resized

# The part of an image that is cut out at random, and the ratio of its sides (Szegedy et al. 2015).
_AREAS = (0.08, 1.0)
_RATIOS = (3 / 4, 4 / 3)
# RandAugment (Cubuk et al. 2020) with the strength and the number of torchvision's defaults.
_NUM_OPERATIONS = 2
_STRENGTH = 9 / 30
# The place of a crop takes four numbers, a flip one, and each operation two.
NUM_DRAWS = 4 + 1 + 2 * _NUM_OPERATIONS


# The functions take an image, the fit that gives evaluation its middle, and `NUM_DRAWS` numbers.


def flipped(image: Image.Image, fit: Fit, draws: np.ndarray) -> Image.Image:
    """The middle of the image, flipped left to right with probability 1/2."""
    return _flip(unchanged(image, fit, draws), draws)


def cropped_and_flipped(image: Image.Image, fit: Fit, draws: np.ndarray) -> Image.Image:
    """A random crop of the resized image, flipped with probability 1/2.

    An image that has the size already is padded by an eighth of it with zeros.
    """
    size = fit.size
    if image.size != size:
        box, _ = resized(fit.resize, image.size, (draws[0], draws[1]))
        return _flip(image.resize(size, FILTER, box=box), draws)
    padding = (size[0] // 8, size[1] // 8)
    image = ImageOps.expand(image, padding)
    left, top = (int(draw * (2 * pad + 1)) for draw, pad in zip(draws, padding, strict=False))
    return _flip(image.crop((left, top, left + size[0], top + size[1])), draws)


def resized_crop(image: Image.Image, fit: Fit, draws: np.ndarray) -> Image.Image:
    """A random part of the image of random size, resized, flipped with probability 1/2.

    A part that would be wider or higher than the image is cut down to it.
    """
    whole_width, whole_height = image.size
    area = whole_width * whole_height * (_AREAS[0] + draws[2] * (_AREAS[1] - _AREAS[0]))
    low, high = (math.log(ratio) for ratio in _RATIOS)
    ratio = math.exp(low + draws[3] * (high - low))
    width = min(max(1, round(math.sqrt(area * ratio))), whole_width)
    height = min(max(1, round(math.sqrt(area / ratio))), whole_height)
    left = int(draws[0] * (whole_width - width + 1))
    top = int(draws[1] * (whole_height - height + 1))
    box = (left, top, left + width, top + height)
    return _flip(image.resize(fit.size, FILTER, box=box), draws)


def rand_augmented(image: Image.Image, fit: Fit, draws: np.ndarray) -> Image.Image:
    """A random part, flipped with probability 1/2, then two random operations: RandAugment."""
    image = resized_crop(image, fit, draws)
    operations = list(_OPERATIONS.values())
    for choice, sign in draws[5:].reshape(_NUM_OPERATIONS, 2):
        operation = operations[int(choice * len(operations))]
        image = operation(image, _STRENGTH if sign < 0.5 else -_STRENGTH)
    return image


def _flip(image: Image.Image, draws: np.ndarray) -> Image.Image:
    return ImageOps.mirror(image) if draws[4] < 0.5 else image


def _affine(image: Image.Image, *coefficients: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, resample=FILTER)


def _enhanced(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Callable[..., Image.Image]:
    return lambda image, strength: kind(image).enhance(1 + 0.9 * strength)


# Each takes an image and a strength in [-1, 1]; operations without a sign use its absolute value.
_OPERATIONS: Mapping[str, Callable[[Image.Image, float], Image.Image]] = {
    "identity": lambda image, _: image,
    "shear_x": lambda image, by: _affine(image, 1, 0.3 * by, 0, 0, 1, 0),
    "shear_y": lambda image, by: _affine(image, 1, 0, 0, 0.3 * by, 1, 0),
    "translate_x": lambda image, by: _affine(image, 1, 0, 0.45 * by * image.width, 0, 1, 0),
    "translate_y": lambda image, by: _affine(image, 1, 0, 0, 0, 1, 0.45 * by * image.height),
    "rotate": lambda image, by: image.rotate(30 * by, resample=FILTER),
    "brightness": _enhanced(ImageEnhance.Brightness),
    "color": _enhanced(ImageEnhance.Color),
    "contrast": _enhanced(ImageEnhance.Contrast),
    "sharpness": _enhanced(ImageEnhance.Sharpness),
    "posterize": lambda image, by: ImageOps.posterize(image, 8 - round(4 * abs(by))),
    "solarize": lambda image, by: ImageOps.solarize(image, round(255 * (1 - abs(by)))),
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
}
# The values of `config.dataset.augmentation`.
CHANGES: Mapping[str, Change] = {
    "none": Change(unchanged, NUM_DRAWS),
    "flip": Change(flipped, NUM_DRAWS),
    "crop_flip": Change(cropped_and_flipped, NUM_DRAWS),
    "random_resized_crop": Change(resized_crop, NUM_DRAWS),
    "randaugment": Change(rand_augmented, NUM_DRAWS),
}
