"""Data sets of the program without every fifth class.

`config.dataset.name` is `benchmarks.held_out:DIGITS_0` or another one; the number is the first
class that is held out. Over all five numbers, each class is held out once.
"""

import dataclasses
from typing import Any

import numpy as np

from train.data.dataset import Dataset, DatasetFamily, DatasetSpec
from train.data.digits import DIGITS
from train.data.examples import Examples

FOLDS = 5


def _without(family: DatasetFamily, fold: int) -> DatasetFamily:
    def spec(fields: Any) -> DatasetSpec:
        whole = family.spec(fields)

        class HeldOut(type(whole)):  # type: ignore[misc]
            def load(self, data_dir: str | None) -> Dataset:
                return _hold_out(super().load(data_dir), fold)

        made: DatasetSpec = HeldOut(**{**vars(whole), "num_classes": None})
        return made

    return dataclasses.replace(family, spec=spec)


def _hold_out(whole: Dataset, fold: int) -> Dataset:
    is_known = np.arange(whole.num_classes) % FOLDS != fold
    number = np.cumsum(is_known) - 1
    names = tuple(np.array(whole.class_names)[is_known].tolist())

    def known(split: Examples) -> Examples:
        return split.take(is_known[split.labels]).renumbered(number, names)

    return dataclasses.replace(
        whole,
        train=known(whole.train),
        validation=known(whole.validation),
        test=known(whole.test),
        balanced_test=None,
        class_names=names,
        digest=None if whole.digest is None else f"{whole.digest} without {fold}",
        tree=None,
    )


DIGITS_0, DIGITS_1, DIGITS_2, DIGITS_3, DIGITS_4 = (_without(DIGITS, fold) for fold in range(FOLDS))
