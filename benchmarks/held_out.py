"""Data sets of the program with every fifth class held out: only their tests have these classes.

`config.dataset.name` is `benchmarks.held_out:DIGITS_0` or another one; the number is the first
class that is held out. Over all five numbers, each class is held out once.
"""

import dataclasses
from typing import Any

import numpy as np

from train.data.dataset import Dataset, DatasetFamily, DatasetSpec
from train.data.digits import DIGITS
from train.data.records import Split

FOLDS = 5


def _without(family: DatasetFamily, fold: int) -> DatasetFamily:
    def spec(fields: Any) -> DatasetSpec:
        whole = family.spec(fields)

        class HeldOut(type(whole)):  # type: ignore[misc]
            def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
                return _hold_out(super().load(data_dir, seed=seed), fold)

        made: DatasetSpec = HeldOut(**{**vars(whole), "num_classes": None})
        return made

    return dataclasses.replace(family, spec=spec)


def _hold_out(whole: Dataset, fold: int) -> Dataset:
    classes = np.arange(whole.num_classes)
    is_held = classes % FOLDS == fold
    order = np.concatenate([classes[~is_held], classes[is_held]])
    places, known = np.argsort(order), int((~is_held).sum())
    names = [whole.class_names[label] for label in order]

    def renamed(split: Split, *, has_held: bool) -> Split:
        labels = places[split.labels].astype(np.int32)
        chosen = split.take(np.flatnonzero(has_held | (labels < known)))
        return dataclasses.replace(chosen, labels=places[chosen.labels].astype(np.int32))

    return dataclasses.replace(
        whole,
        train=renamed(whole.train, has_held=False),
        validation=renamed(whole.validation, has_held=False),
        test=renamed(whole.test, has_held=True),
        balanced_test=None,
        class_names=tuple(names[:known]),
        unseen_class_names=tuple(names[known:]),
        digest=None if whole.digest is None else f"{whole.digest} without {fold}",
        tree=None,
    )


DIGITS_0, DIGITS_1, DIGITS_2, DIGITS_3, DIGITS_4 = (_without(DIGITS, fold) for fold in range(FOLDS))
