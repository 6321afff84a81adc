"""Data sets that tensorflow-datasets reads: prepared once, for all runs."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from train.data import label_noise, splits
from train.data.dataset import Dataset, DatasetSpec
from train.data.label_noise import LabelNoise
from train.data.splits import Holdout
from train.data.taxonomy import ClassTree
from train.foundation.errors import UserError

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


@dataclass(frozen=True, kw_only=True)
class PreparedSpec(DatasetSpec):
    """A data set with a builder of tensorflow-datasets.

    Attributes:
        builder: makes the builder of what `train.prepare` wrote; called with `data_dir` and
            `file_format`. Its features are "image", "label" and, for messages, optionally
            "file_name".
        validation: the prepared split for validation, or the examples of the prepared training
            split that are held out for it.
        test: the prepared split that is the test set.
        train_size: the number of training examples used; `None` for all.
        balanced_subset: whether a training subset has equally many examples of every class.
        imbalance_factor: the ratio of the largest class to the smallest one in a long tail that is
            made of the training examples; 1 for the classes as they are.
        label_noise: the noise of the training labels; `None` for none.
        tree_of: finds what is above the classes by their names; `None` if nothing is.
    """

    image_shape: tuple[int, int, int]
    builder: Callable[..., "tfds.core.DatasetBuilder"]
    validation: str | Holdout = "validation"
    test: str = "test"
    train_size: int | None = None
    balanced_subset: bool = False
    imbalance_factor: float = 1.0
    label_noise: LabelNoise | None = None
    tree_of: Callable[[Sequence[str]], ClassTree | None] | None = None

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Opens the data set; see `DatasetSpec`."""
        # Imported here because tensorflow-datasets takes long to import, and only this needs it.
        from train.data import builders, prepared_files  # noqa: PLC0415

        builder = builders.open_builder(self.builder, data_dir, name=self.name)
        prepared_files.check_files(builder)
        class_names = prepared_files.class_names(builder)
        num_classes = len(class_names)
        if self.num_classes is not None:
            prepared_files.check_classes(builder, self.num_classes, name=self.name)
        if self.reader is None:  # A reader crops to the shape.
            prepared_files.check_image_shape(builder, self.image_shape, name=self.name)
        source = prepared_files.read(builder, "train", reader=self.reader)
        if isinstance(self.validation, Holdout):
            train, held_out = splits.hold_out(
                source.labels, self.validation, num_classes=num_classes
            )
            validation = source.take(held_out)
        else:
            train = np.arange(len(source.labels))
            validation = prepared_files.read(builder, self.validation, reader=self.reader)
        if self.train_size is not None:
            train = self._subset(source.labels, train, self.train_size, num_classes)
        if self.imbalance_factor != 1:
            train = splits.long_tail(
                source.labels, train, self.imbalance_factor, num_classes=num_classes
            )
        labels = source.labels
        if self.label_noise is not None:
            # Before any example is chosen, so that the noise of one does not depend on the others.
            labels = label_noise.apply(self.label_noise, labels, seed=seed)
        return Dataset(
            train=dataclasses.replace(source.take(train), labels=labels[train]),
            validation=validation,
            test=prepared_files.read(builder, self.test, reader=self.reader),
            class_names=class_names,
            image_shape=self.image_shape,
            tree=None if self.tree_of is None else self.tree_of(class_names),
        )

    def _subset(
        self, labels: np.ndarray, train: np.ndarray, size: int, num_classes: int
    ) -> np.ndarray:
        if size > len(train):
            raise UserError(
                field="config.dataset.train_size",
                must_be=f"at most the {len(train)} training examples",
                got=size,
            )
        if not self.balanced_subset:
            return splits.subset(train, size)
        if size % num_classes:
            raise UserError(
                field="config.dataset.train_size",
                must_be=(
                    f"a multiple of the {num_classes} classes of {self.name}, whose subsets are "
                    "balanced"
                ),
                got=size,
            )
        return splits.balanced_subset(labels, train, size // num_classes, num_classes=num_classes)
