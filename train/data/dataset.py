"""A data set before it is opened (`DatasetSpec`) and after (`Dataset`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from train.data import label_noise, splits
from train.data.label_noise import LabelNoise
from train.data.records import Split
from train.data.splits import Holdout
from train.foundation.errors import UserError
from train.foundation.fields import Field

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


@dataclass(frozen=True)
class Dataset:
    """An opened data set.

    Attributes:
        train: the training examples.
        validation: the validation examples.
        test: the test examples.
        class_names: the names of the classes, in the order of the labels.
        image_shape: height, width and channels of the images that the model gets.
    """

    train: Split
    validation: Split
    test: Split
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int]

    @property
    def num_classes(self) -> int:
        """The number of classes L."""
        return len(self.class_names)


@dataclass(frozen=True)
class TrueDistribution:
    """The true distribution of images and classes, which determines the best classifier.

    Attributes:
        posterior: maps uint8 images [n, ...] to p(y | x), float64 [n, L].
        class_probabilities: p(y) [L], float64.
    """

    posterior: Callable[[np.ndarray], np.ndarray]
    class_probabilities: np.ndarray


@dataclass(frozen=True)
class DatasetSpec:
    """A data set of which no file has been read.

    Attributes:
        name: `config.dataset.name`.
        num_classes: the number of classes L; `None` where only the prepared files have it.
        image_shape: height, width and channels of the images that the model gets.
        builder: makes the tfds builder; called with `data_dir` and `file_format`. Its features are
            "image", "label" and, for messages, optionally "file_name".
        augment: maps a random key and one uint8 image to one uint8 image; runs on the device.
        mean: the mean of a channel over the training images, in [0, 1].
        std: the standard deviation of a channel over the training images, in [0, 1].
        streamed: whether images stay encoded on disk and are decoded, resized and cropped for each
            batch; otherwise all images are in memory.
        generated_on_use: whether the first run generates the files; otherwise `train.prepare` has
            to write them.
        validation: the prepared split for validation, or the examples of the prepared training
            split that are held out for it.
        test: the prepared split that is the test set.
        train_size: the number of training examples used; `None` for all.
        balanced_subset: whether a training subset has as many examples of every class.
        label_noise: the noise of the training labels; `None` for none.
        true_distribution: the distribution of the data; `None` where it is not known.
    """

    name: str
    num_classes: int | None
    image_shape: tuple[int, int, int]
    builder: Callable[..., "tfds.core.DatasetBuilder"]
    augment: Callable[[jax.Array, jax.Array], jax.Array]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    streamed: bool = False
    generated_on_use: bool = False
    validation: str | Holdout = "validation"
    test: str = "test"
    train_size: int | None = None
    balanced_subset: bool = False
    label_noise: LabelNoise | None = None
    true_distribution: TrueDistribution | None = None

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Opens the data set: reads the labels, and the images unless they are streamed.

        Args:
            data_dir: the folder of all prepared data sets; `None` for tfds's own default, the
                environment variable TFDS_DATA_DIR or ~/tensorflow_datasets.
            seed: the run's seed; the label noise is a function of it, and the splits are not.

        Raises:
            UserError: the data set is not prepared, or damaged, or not the one that is expected.
        """
        # Imported here because tensorflow-datasets takes long to import, and only this needs it.
        from train.data import builders, prepared_files  # noqa: PLC0415

        builder = builders.open_builder(
            self.builder, data_dir, name=self.name, generate_on_use=self.generated_on_use
        )
        class_names = prepared_files.class_names(builder)
        num_classes = len(class_names)
        if self.num_classes is not None:
            prepared_files.check_classes(builder, self.num_classes, name=self.name)
        if not self.streamed:  # Streamed images are cropped to the shape.
            prepared_files.check_image_shape(builder, self.image_shape, name=self.name)
        source = prepared_files.read(builder, "train", streamed=self.streamed)
        if isinstance(self.validation, Holdout):
            train, held_out = splits.hold_out(
                source.labels, self.validation, num_classes=num_classes
            )
            validation = Split(source.images[held_out], source.labels[held_out])
        else:
            train = np.arange(len(source.labels))
            validation = prepared_files.read(builder, self.validation, streamed=self.streamed)
        if self.train_size is not None:
            train = self._subset(source.labels, train, self.train_size, num_classes)
        labels = source.labels
        if self.label_noise is not None:
            # Before any example is chosen, so that the noise of one does not depend on the others.
            labels = label_noise.apply(self.label_noise, labels, seed=seed)
        return Dataset(
            train=Split(source.images[train], labels[train]),
            validation=validation,
            test=prepared_files.read(builder, self.test, streamed=self.streamed),
            class_names=class_names,
            image_shape=self.image_shape,
        )

    def _subset(
        self, labels: np.ndarray, train: np.ndarray, size: int, num_classes: int
    ) -> np.ndarray:
        if size > len(train):
            raise UserError(
                f"config.dataset.train_size must be at most the {len(train)} training examples; "
                f"got {size}"
            )
        if not self.balanced_subset:
            return splits.subset(train, size)
        if size % num_classes:
            raise UserError(
                f"config.dataset.train_size must be a multiple of the {num_classes} classes "
                f"of {self.name}, whose subsets are balanced; got {size}"
            )
        return splits.balanced_subset(labels, train, size // num_classes, num_classes=num_classes)


@dataclass(frozen=True)
class DatasetFamily:
    """An entry of the registry: a data set, of which the configuration chooses the variant.

    Attributes:
        spec: makes the data set from `config.dataset`.
        builder: makes the tfds builder for `train.prepare`; called with `data_dir` and
            `file_format`.
        prepare: the import path of the function that writes the files; `None` where the builder
            generates them itself. The function is called with the builder, the folder of the
            downloads and the keyword `skip_unreadable`. It returns the numbers of images that it
            left out, by split.
        options: the fields of `config.dataset` that only this data set has.
    """

    spec: Callable[[Mapping[str, Any]], DatasetSpec]
    builder: Callable[..., "tfds.core.DatasetBuilder"]
    prepare: str | None = None
    options: Mapping[str, Field] = field(default_factory=dict)
