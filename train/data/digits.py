"""scikit-learn's 1,797 handwritten digits, in memory."""

import functools
from dataclasses import dataclass

import numpy as np

from train.configuration import DatasetFields
from train.data.augmentation import random_shift
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec
from train.data.examples import Examples
from train.data.splits import shuffled

# A constant of the data set, not of the run: every run sees the same split.
_SPLIT_SEED = 20260101
# The number of validation images, and of test images.
_HELD_OUT = 270
_CLASS_NAMES = tuple("0123456789")


@dataclass(frozen=True, kw_only=True)
class DigitsSpec(DatasetSpec):
    """Images of 8 by 8 pixels, in three splits that are stratified by class."""

    image_shape: tuple[int, int, int] = (8, 8, 1)

    def load(self, data_dir: str | None) -> Dataset:
        """Reads the images of the package; see `DatasetSpec`."""
        del data_dir
        # Imported here because scikit-learn takes long to import, and only this needs it.
        from sklearn.datasets import load_digits  # noqa: PLC0415
        from sklearn.model_selection import train_test_split  # noqa: PLC0415

        images, labels = load_digits(return_X_y=True)
        # The 17 grey levels 0 … 16 as multiples of 15 fill eight bits.
        pixels = (15 * images).astype(np.uint8).reshape(-1, *self.image_shape)
        every = Examples.of_source(pixels, labels, _CLASS_NAMES, self.name)

        hold_out = functools.partial(
            train_test_split, test_size=_HELD_OUT, random_state=_SPLIT_SEED
        )
        rest, test = hold_out(np.arange(len(labels)), stratify=labels)
        train, validation = hold_out(rest, stratify=labels[rest])
        return Dataset(
            train=every.take(shuffled("train", train)),
            validation=every.take(shuffled("validation", validation)),
            test=every.take(shuffled("test", test)),
            class_names=_CLASS_NAMES,
            image_shape=self.image_shape,
        )


def _spec(fields: DatasetFields) -> DatasetSpec:
    return DigitsSpec(
        name=fields.name,
        num_classes=10,
        augment=functools.partial(random_shift, pixels=1),
        mean=(0.287,),
        std=(0.354,),
        attribution="Optical Recognition of Handwritten Digits by E. Alpaydin and C. Kaynak "
        "(https://doi.org/10.24432/C50P49), CC BY 4.0",
    )


DIGITS = DatasetFamily(_spec)
