"""ImageNet (ILSVRC 2012): tfds's own builder; the official validation images are the test set."""

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow_datasets as tfds

from train.data import options
from train.data.augmentation import random_flip
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.splits import Holdout

# Of the channels of its training images; the pre-trained networks of others expect them too.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
IMAGE_SHAPE = (224, 224, 3)


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    return DatasetSpec(
        name="imagenet",
        num_classes=1000,
        image_shape=IMAGE_SHAPE,
        builder=functools.partial(tfds.builder, "imagenet2012"),
        augment=random_flip,
        mean=MEAN,
        std=STD,
        streamed=True,
        validation=Holdout(config["validation_size"], balanced=True),
        test="validation",
        train_size=config["train_size"],
        balanced_subset=True,
    )


IMAGENET = DatasetFamily(
    _spec, {**options.VALIDATION_SIZE, **options.TRAIN_SIZE, **options.STREAMED}
)
