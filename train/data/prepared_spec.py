"""Data sets that tensorflow-datasets reads: prepared once, for all runs."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.data import splits
from train.data.dataset import Dataset, DatasetSpec
from train.data.examples import Examples
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
            `file_format`. Its features are "image" and "label".
        validation: the prepared split for validation, or the examples of the prepared training
            split that are held out for it.
        test: the prepared split that is the test set.
        tree_of: finds what is above the classes by their names; `None` if nothing is.
    """

    image_shape: tuple[int, int, int]
    builder: Callable[..., "tfds.core.DatasetBuilder"]
    validation: str | Holdout = "validation"
    test: str = "test"
    tree_of: Callable[[Sequence[str]], ClassTree | None] | None = None

    def load(self, data_dir: str | None) -> Dataset:
        """Opens the data set; see `DatasetSpec`."""
        # Imported here because tensorflow-datasets takes long to import, and only this needs it.
        from train.data.sources import named_splits, tfds  # noqa: PLC0415

        builder = tfds.open_builder(self.builder, data_dir, self.name)

        def read(split: str) -> Examples:
            read_split = tfds.read_into_memory if self.reader is None else tfds.read
            found = named_splits.with_labels(read_split(builder, split))
            return dataclasses.replace(found, reader=self.reader)

        train, test = read("train"), read(self.test)
        self._check(train, str(builder.data_dir))
        if isinstance(self.validation, Holdout):
            classes = len(train.class_names)
            kept, held_out = splits.hold_out(train.labels, self.validation, num_classes=classes)
            train, validation = train.take(kept), train.take(held_out)
        else:
            validation = read(self.validation)
        return Dataset(
            train=train,
            validation=validation,
            test=test,
            class_names=train.class_names,
            image_shape=self.image_shape,
            tree=None if self.tree_of is None else self.tree_of(train.class_names),
        )

    def _check(self, train: Examples, folder: str) -> None:
        """Refuses a prepared data set that is another one."""
        classes = len(train.class_names)
        # A reader crops to the shape.
        shape = self.image_shape if train.are_encoded else train.array.shape[1:]
        expected = (self.num_classes or classes, self.image_shape)
        if (classes, shape) != expected:
            raise UserError(
                f"the prepared data set in {folder} has {classes} classes and images of the shape "
                f"{shape}, and {self.name} as it is configured has {expected[0]} and "
                f"{expected[1]}; prepare that one, or configure the one that is there"
            )
