"""ImageNet (ILSVRC 2012): tfds's own builder, validation images held out of the training images."""

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow_datasets as tfds

from train.data import augmentation, options
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.photographs import OPTIONS, photograph_spec
from train.data.splits import Holdout

_BUILDER = functools.partial(tfds.builder, "imagenet2012")


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    return photograph_spec(
        config,
        num_classes=1000,
        builder=_BUILDER,
        augment=augmentation.random_flip,
        validation=Holdout(config["validation_size"], balanced=True),
        # Nobody has the labels of the official test images.
        test="validation",
        train_size=config["train_size"],
        balanced_subset=True,
    )


IMAGENET = DatasetFamily(
    _spec,
    _BUILDER,
    prepare="train.data.preparing.imagenet:prepare",
    options={**options.VALIDATION_SIZE, **options.TRAIN_SIZE, **OPTIONS},
)
