"""The data sets of photographs, whose images are decoded on their way to the device."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import tensorflow_datasets as tfds

from train.data import augmentation, images, options
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.imagenet_lt import ImagenetLt
from train.data.plantnet300k import Plantnet300k, Plantnet300kV2
from train.data.splits import Holdout

_spec = functools.partial(
    DatasetSpec,
    image_shape=(images.CROP, images.CROP, 3),
    # Of ImageNet's training images; pre-trained networks expect them, whatever the data set.
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    streamed=True,
)


def _imagenet(config: Mapping[str, Any]) -> DatasetSpec:
    return _spec(
        name="imagenet",
        num_classes=1000,
        builder=functools.partial(tfds.builder, "imagenet2012"),
        augment=augmentation.random_flip,
        validation=Holdout(config["validation_size"], balanced=True),
        # Nobody has the labels of the official test images.
        test="validation",
        train_size=config["train_size"],
        balanced_subset=True,
    )


def _divided(
    builder: type[tfds.core.DatasetBuilder],
    num_classes: int,
    augment: Callable[[jax.Array, jax.Array], jax.Array],
) -> DatasetFamily:
    """A data set of ours that is prepared in its three splits."""
    spec = _spec(name=builder.name, num_classes=num_classes, builder=builder, augment=augment)
    return DatasetFamily(lambda _config: spec, options.STREAMED)


IMAGENET = DatasetFamily(
    _imagenet, {**options.VALIDATION_SIZE, **options.TRAIN_SIZE, **options.STREAMED}
)
IMAGENET_LT = _divided(ImagenetLt, 1000, augmentation.random_flip)
# Without flips, as in the published results.
PLANTNET300K = _divided(Plantnet300k, 1081, augmentation.unchanged)
PLANTNET300K_V2 = _divided(Plantnet300kV2, 1000, augmentation.unchanged)
