"""What the published data sets of photographs share: how their images become pixels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from train.data import decoding, images, options
from train.data.prepared_spec import PreparedSpec
from train.foundation import fields

# Of ImageNet's training images, which pretrained networks expect for every data set.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# The fields of `config.dataset` of all data sets of photographs.
OPTIONS: Mapping[str, fields.Field] = {**options.STREAMED, **decoding.OPTIONS}


@dataclass(frozen=True)
class PhotographReader:
    """Random crops for training, the central crop for evaluation, as in the published results.

    Attributes:
        shape: height, width and channels of the crops.
        num_draws: where a random crop lies takes two numbers.
        upright: the EXIF orientation is not applied, as in the published results.
    """

    shape: tuple[int, int, int]
    num_draws: int = 2
    upright: bool = False

    @property
    def in_words(self) -> str:
        """See `ImageReader`."""
        return f"its shorter side resized to {images.SHORTER_SIDE} pixels"

    def for_training(self, encoded: bytes, name: str, draws: np.ndarray) -> np.ndarray:
        """A random crop; see `ImageReader`."""
        return images.random_crop(_decoded(encoded, name), draws)

    def for_evaluation(self, encoded: bytes, name: str) -> np.ndarray:
        """The central crop; see `ImageReader`."""
        return images.center_crop(_decoded(encoded, name))

    def fit(self, image: Image.Image, name: str) -> np.ndarray:
        """The central crop of a decoded image; see `ImageReader`."""
        images.check_resizable(image.size, images.SHORTER_SIDE, name)
        return images.center_crop(image)


def _decoded(encoded: bytes, name: str) -> Image.Image:
    image = images.decode(encoded, name)
    images.check_resizable(image.size, images.SHORTER_SIDE, name)
    return image


def photograph_spec(config: Mapping[str, Any], **own: Any) -> PreparedSpec:
    """A data set of photographs.

    Args:
        config: `config.dataset`.
        own: the attributes of `PreparedSpec` that are its own.
    """
    shape = (images.CROP, images.CROP, 3)
    return PreparedSpec(
        name=config["name"],
        image_shape=shape,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        reader=decoding.chosen(config["decoding"], PhotographReader, _fast)(shape),
        **own,
    )


def _fast() -> type[PhotographReader]:
    from train.data.fast_photographs import FastPhotographReader  # noqa: PLC0415

    return FastPhotographReader
