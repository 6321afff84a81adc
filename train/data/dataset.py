"""A data set before it is opened (`DatasetSpec`) and after (`Dataset`)."""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from train.configuration import DatasetFields
from train.data import taxonomy
from train.data.crops import ImageReader
from train.data.examples import Examples
from train.data.look import Seen
from train.data.near_duplicates import Alike
from train.data.taxonomy import ClassTree

if TYPE_CHECKING:
    import jax
    import tensorflow_datasets as tfds

# What `DatasetSpec.inputs` may be, and what one of them is called.
_EXAMPLES = {"images": "image", "features": "row"}
# The types of the arrays that programs take.
INPUT_DTYPES: Mapping[str, np.dtype] = {"images": np.dtype("u1"), "features": np.dtype("f4")}


def unchanged(_key: "jax.Array", image: "jax.Array") -> "jax.Array":
    """The image as it is, for `DatasetSpec.augment`."""
    return image


@dataclass(frozen=True)
class Dataset:
    """An opened data set.

    Attributes:
        train: the training examples.
        validation: the validation examples.
        test: the test examples.
        class_names: the names of the classes, in the order of the labels.
        image_shape: height, width and channels of the images that the model gets; only the number
            of features for other examples.
        digest: a hash of the files, labels and splits of the user's own files, which may change
            between two starts of a run; `None` for data sets that do not change.
        mean: the mean of each feature over the training rows; `None` for images.
        std: the standard deviation of each feature over the training rows; `None` for images.
        balanced_test: a test set with equally many examples of each class; `None` for most data
            sets.
        tree: what the data set has above its classes; `None` if nothing has two of them.
        seen: what a look at each of the user's own images has found, which a run keeps; `None` for
            other data.
        alike: the images of different splits that look alike, after a new look.
        embedded_by: the network that made the features, as `train.embed` describes it; `None` if
            it is not known, and for other data.
    """

    train: Examples
    validation: Examples
    test: Examples
    class_names: tuple[str, ...]
    image_shape: tuple[int, ...]
    digest: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    balanced_test: Examples | None = None
    tree: ClassTree | None = None
    embedded_by: Mapping[str, Any] | None = None
    seen: Seen | None = None
    alike: Alike | None = None

    @property
    def num_classes(self) -> int:
        """The number of classes L."""
        return len(self.class_names)

    @property
    def splits(self) -> dict[str, Examples]:
        """The splits that the data set has, by their names."""
        usual = {"train": self.train, "validation": self.validation, "test": self.test}
        balanced = self.balanced_test
        return usual if balanced is None else {**usual, "balanced_test": balanced}

    def tree_named(self, given: str | None) -> ClassTree | None:
        """What is above the classes by `config.dataset.taxonomy`; None for the data set's own."""
        return self.tree if given is None else taxonomy.read(given, self.class_names)


@dataclass(frozen=True)
class TrueDistribution:
    """The true distribution of examples and classes, which determines the best classifier.

    Attributes:
        posterior: maps uint8 images [n, ...], or features [n, d], to p(y | x), float64 [n, L].
        class_probabilities: p(y) [L], float64.
    """

    posterior: Callable[[np.ndarray], np.ndarray]
    class_probabilities: np.ndarray


@dataclass(frozen=True, kw_only=True)
class DatasetSpec(abc.ABC):
    """A data set before any of its files is read.

    Attributes:
        name: `config.dataset.name`.
        num_classes: the number of classes L; `None` if only the files have it.
        image_shape: height, width and channels of the images that the model gets; only the number
            of features for other examples; `None` if only the files have it.
        mean: the mean of a channel over the training images, in [0, 1]; the mean of each feature,
            empty if only the files have it.
        std: the standard deviation, as `mean`.
        augment: maps a random key and one uint8 image to one uint8 image; runs on the device.
        reader: makes pixels of images that stay encoded on disk and are decoded, resized and
            cropped for each batch; `None` if all images are in memory.
        true_distribution: the distribution of the data; `None` if it is not known.
        inputs: what the examples are: "images" or "features".
        attribution: the names to attribute the data to, with their licence; may be empty.
    """

    name: str
    num_classes: int | None
    image_shape: tuple[int, ...] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: "Callable[[jax.Array, jax.Array], jax.Array]" = unchanged
    reader: ImageReader | None = None
    true_distribution: TrueDistribution | None = None
    inputs: str = "images"
    attribution: str = ""

    @property
    def has_images(self) -> bool:
        """Whether the examples are images."""
        return self.inputs == "images"

    @property
    def image_reader(self) -> ImageReader:
        """How an image file becomes the input, also for a data set whose images are in memory."""
        if self.reader is not None:
            return self.reader
        assert self.image_shape is not None
        height, width, channels = self.image_shape
        return ImageReader.plain((height, width, channels))

    @property
    def example(self) -> str:
        """What messages call an example."""
        return _EXAMPLES[self.inputs]

    @abc.abstractmethod
    def load(self, data_dir: str | None) -> Dataset:
        """Opens the data set: reads the labels, and the images unless a reader reads them later.

        Args:
            data_dir: the folder of all prepared data sets; `None` for tfds's own default, the
                environment variable TFDS_DATA_DIR or ~/tensorflow_datasets.

        Raises:
            UserError: the data set is not there, or damaged, or not the one that is expected.
        """

    def of_shape(self, image_shape: tuple[int, ...]) -> "DatasetSpec":
        """The data set with the shape that was found in its files."""
        return dataclasses.replace(self, image_shape=image_shape)


@dataclass(frozen=True)
class DatasetFamily:
    """An entry of the registry: a data set. The configuration chooses its variant.

    Attributes:
        spec: makes the data set from `config.dataset`.
        builder: makes the tfds builder for `train.prepare`; called with `data_dir` and
            `file_format`. `None` if the files are read in place.
        check_archives: refuses a folder of downloads with an incomplete archive that the builder
            would take for a complete one; `None` if the builder notices.
        fields: the fields of `config.dataset`, a subclass of `DatasetFields` if it has more.
    """

    spec: Callable[[Any], DatasetSpec]
    builder: Callable[..., "tfds.core.DatasetBuilder"] | None = None
    check_archives: Callable[[Path], None] | None = None
    fields: type[DatasetFields] = DatasetFields
