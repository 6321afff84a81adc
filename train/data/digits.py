"""scikit-learn's 1,797 handwritten digits."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from train.configuration import DatasetFields
from train.data.augmentation import random_shift
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.prepared_spec import PreparedSpec

IMAGE_SHAPE = (8, 8, 1)
# A constant of the data set, not of the run: every run sees the same split.
SPLIT_SEED = 20260101
VALIDATION_SIZE = 270
TEST_SIZE = 270


class Digits(tfds.core.GeneratorBasedBuilder):
    """Handwritten digits, 8 by 8 pixels, that come with scikit-learn.

    The 17 grey levels 0 … 16 are stored as multiples of 15, so that they fill eight bits and can be
    recovered exactly. The split is 1,257 / 270 / 270 examples, stratified by class.
    """

    name = "digits"
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: dict[str, str] = {"1.0.0": "First version."}  # noqa: RUF012 (tfds's convention)

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            description="Handwritten digits, 8x8 pixels, from scikit-learn.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=IMAGE_SHAPE, dtype=np.uint8),
                    "label": tfds.features.ClassLabel(names=[str(digit) for digit in range(10)]),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        del dl_manager  # Nothing to download: the images come with scikit-learn.
        # Imported here, as scikit-learn takes long to import and a data set is generated once.
        from sklearn.datasets import load_digits  # noqa: PLC0415
        from sklearn.model_selection import train_test_split  # noqa: PLC0415

        digits = load_digits()
        rest, test = train_test_split(
            np.arange(len(digits.target)),
            test_size=TEST_SIZE,
            stratify=digits.target,
            random_state=SPLIT_SEED,
        )
        train, validation = train_test_split(
            rest, test_size=VALIDATION_SIZE, stratify=digits.target[rest], random_state=SPLIT_SEED
        )
        return {
            split: self._generate_examples(indices, digits.images[indices], digits.target[indices])
            for split, indices in (("train", train), ("validation", validation), ("test", test))
        }

    def _generate_examples(
        self, indices: np.ndarray, images: np.ndarray, labels: np.ndarray
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, image, label in zip(indices.tolist(), images, labels.tolist(), strict=True):
            pixels = (image * 15).astype(np.uint8)
            # An image object: tfds encodes arrays with TensorFlow, but this without it.
            yield index, {"image": Image.fromarray(pixels), "label": label}


def _spec(fields: DatasetFields) -> DatasetSpec:
    return PreparedSpec(
        name=fields.name,
        num_classes=10,
        image_shape=IMAGE_SHAPE,
        builder=Digits,
        augment=functools.partial(random_shift, pixels=1),
        mean=(0.287,),
        std=(0.354,),
        attribution="Optical Recognition of Handwritten Digits by E. Alpaydin and C. Kaynak "
        "(https://doi.org/10.24432/C50P49), CC BY 4.0",
        generated_on_use=True,
    )


DIGITS = DatasetFamily(_spec, Digits)
