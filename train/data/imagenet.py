"""ImageNet (ILSVRC 2012): tfds's own builder, validation images held out of the training images."""

import functools

import tensorflow_datasets as tfds

from train.configuration.datasets import ImagenetFields
from train.data import augmentation
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.photographs import IMAGENET_ATTRIBUTION, photograph_spec
from train.data.splits import Holdout

_BUILDER = functools.partial(tfds.builder, "imagenet2012")


def _spec(fields: ImagenetFields) -> DatasetSpec:
    return photograph_spec(
        fields,
        num_classes=1000,
        builder=_BUILDER,
        augment=augmentation.random_flip,
        attribution=IMAGENET_ATTRIBUTION,
        validation=Holdout(fields.validation_size, balanced=True),
        # Nobody has the labels of the official test images.
        test="validation",
        train_size=fields.train_size,
        balanced_subset=True,
    )


IMAGENET = DatasetFamily(
    _spec,
    _BUILDER,
    prepare="train.data.preparing.imagenet:prepare",
    fields=ImagenetFields,
)
