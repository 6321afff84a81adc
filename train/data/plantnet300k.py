"""Pl@ntNet-300K, versions 1.1 and 2: photographs of plants, labelled with the species."""

from typing import ClassVar

import numpy as np
import tensorflow_datasets as tfds

from train.configuration.datasets import StreamedFields
from train.data import augmentation
from train.data.builders import ReadOnlyBuilder
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.photographs import photograph_spec
from train.foundation import ranks


class Plantnet(ReadOnlyBuilder):
    """What both versions share.

    Attributes:
        TITLE: the name of the version in messages.
        NUM_CLASSES: the number of species.
        URL: the address at which it is published.
    """

    TITLE: ClassVar[str]
    NUM_CLASSES: ClassVar[int]
    URL: ClassVar[str]

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"{self.TITLE}: photographs of plants, labelled with the species.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), dtype=np.uint8),
                    "label": tfds.features.ClassLabel(num_classes=self.NUM_CLASSES),
                    "organ": tfds.features.Text(),
                    "file_name": tfds.features.Text(),
                }
            ),
            supervised_keys=("image", "label"),
            homepage=self.URL,
        )


class Plantnet300k(Plantnet):
    """Pl@ntNet-300K, version 1.1: 306,146 images of 1,081 species."""

    name = "plantnet300k"
    VERSION = tfds.core.Version("1.1.0")
    TITLE = "Pl@ntNet-300K version 1.1"
    NUM_CLASSES = 1081
    URL = "https://zenodo.org/records/5645731"


class Plantnet300kV2(Plantnet):
    """Pl@ntNet-300K, version 2: 306,087 images of 1,000 species."""

    name = "plantnet300k_v2"
    VERSION = tfds.core.Version("2.0.0")
    TITLE = "Pl@ntNet-300K version 2"
    NUM_CLASSES = 1000
    URL = "https://zenodo.org/records/10419064"


def _family(builder: type[Plantnet]) -> DatasetFamily:
    def spec(fields: StreamedFields) -> DatasetSpec:
        return photograph_spec(
            fields,
            num_classes=builder.NUM_CLASSES,
            builder=builder,
            # Without flips, as in the published results.
            augment=augmentation.unchanged,
            attribution=f"{builder.TITLE} ({builder.URL}), whose metadata have the author and the "
            "licence of each image",
            # The names of the species start with the genus.
            ranks_of=ranks.first_words,
        )

    return DatasetFamily(
        spec,
        builder,
        prepare="train.data.preparing.plantnet300k:prepare",
        shares_preparation=True,
        fields=StreamedFields,
    )


PLANTNET300K = _family(Plantnet300k)
PLANTNET300K_V2 = _family(Plantnet300kV2)
