"""ImageNet-LT: a long-tailed part of ImageNet, by three published lists."""

import numpy as np
import tensorflow_datasets as tfds

from train.configuration.datasets import StreamedFields
from train.data import augmentation
from train.data.builders import ReadOnlyBuilder
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.photographs import IMAGENET_ATTRIBUTION, photograph_spec

NUM_CLASSES = 1000
URL = "https://github.com/facebookresearch/classifier-balancing/tree/main/data/ImageNet_LT"


class ImagenetLt(ReadOnlyBuilder):
    """ImageNet-LT, with the features of tfds's ImageNet."""

    name = "imagenet_lt"
    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="ImageNet-LT: a long-tailed part of ImageNet, by the published lists.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), dtype=np.uint8),
                    "label": tfds.features.ClassLabel(num_classes=NUM_CLASSES),
                    "file_name": tfds.features.Text(),
                }
            ),
            supervised_keys=("image", "label"),
            homepage=URL,
        )


def _spec(fields: StreamedFields) -> DatasetSpec:
    return photograph_spec(
        fields,
        num_classes=NUM_CLASSES,
        builder=ImagenetLt,
        augment=augmentation.random_flip,
        attribution=IMAGENET_ATTRIBUTION,
    )


IMAGENET_LT = DatasetFamily(
    _spec,
    ImagenetLt,
    prepare="train.data.preparing.imagenet_lt:prepare",
    shares_preparation=True,
    fields=StreamedFields,
)
