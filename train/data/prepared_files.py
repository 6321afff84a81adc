"""Prepared data sets on disk: checked, and read without TensorFlow.

Each record has a checksum in its file, which is compared when the record is read. The checksums of
the other files, which describe the records, are in `checksums.json` if this program has prepared
the data set.
"""

import contextlib
import io
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from train.data.builders import damaged
from train.data.credits import Credits
from train.data.crops import ImageReader
from train.data.record_shards import RecordRange, RecordShards
from train.data.records import Records, Split
from train.foundation import array_files, checksums, host_memory, json_files
from train.foundation.errors import UserError, first_line

# How the names of lists start that are made from the records if they are missing.
_FROM_RECORDS = ("labels-", "file_names-")
# The label of an example without one, in tfds.
_NO_LABEL = -1


def labels_file(split: str) -> str:
    """The file with the labels of a split, which are read from it without the images."""
    return f"labels-{split}.npy"


def credits_file(split: str) -> str:
    """The file with the authors and licences of a split; missing if they are not known."""
    return f"credits-{split}.json"


def check_classes(builder: tfds.core.DatasetBuilder, expected: int, *, name: str) -> None:
    """Refuses a prepared data set with another number of classes."""
    with report_damage(builder):
        found = _prepared_label(builder).num_classes
    if found != expected:
        raise UserError(
            f"the prepared data set in {builder.data_dir} has {found} classes, and {name} as it is "
            f"configured has {expected}; prepare that one, or configure the one that is there"
        )


def check_image_shape(
    builder: tfds.core.DatasetBuilder, expected: tuple[int, int, int], *, name: str
) -> None:
    """Refuses a prepared data set with images of another shape."""
    with report_damage(builder):
        found = builder.info.features["image"].shape
    if found != expected:
        raise UserError(
            f"the prepared data set in {builder.data_dir} has images of shape {found}, and {name} "
            f"as it is configured has {expected}; prepare that one, or configure the one that is "
            "there"
        )


def class_names(builder: tfds.core.DatasetBuilder) -> tuple[str, ...]:
    """The names of the classes of a prepared data set; their numbers if they have no names."""
    with report_damage(builder):
        return tuple(_prepared_label(builder).names)


def check_files(builder: tfds.core.DatasetBuilder) -> None:
    """Refuses a prepared data set that lacks a file of records, or has another file damaged."""
    folder = Path(builder.data_dir)
    if (folder / checksums.FILE).exists():
        try:
            changed = checksums.changed(folder)
        except OSError as error:
            raise UserError(
                f"the prepared data set {folder} cannot be checked ({first_line(error)}); without "
                f"its {checksums.FILE} it is read unchecked"
            ) from error
        for name, state in changed.items():
            if not name.startswith(_FROM_RECORDS):
                raise damaged(folder, ValueError(f"{name} {state}"))
            if (folder / name).exists():
                raise _damaged_list(folder / name, ValueError(state))
    with report_damage(builder):
        for split in builder.info.splits.values():
            for path in split.filepaths:
                if not Path(path).is_file():
                    raise FileNotFoundError(f"{Path(path).name} is missing")


def read(builder: tfds.core.DatasetBuilder, split: str, *, reader: ImageReader | None) -> Split:
    """All examples of a prepared split, in memory or, with a reader, as records and labels."""
    with report_damage(builder):
        source = PreparedExamples(builder, split)
        if reader is None:
            return _read_into_memory(source, builder.info.features["image"].shape)
        name = f"{split} in {builder.data_dir}"
        records = Records(source, np.arange(len(source)), name, reader)
        labels = split_labels(builder, split)
        if (labels < 0).any():
            raise ValueError(f"{split} has an example without a label")
        return Split(records, labels, credits=_read_credits(builder, split, len(labels)))


@contextlib.contextmanager
def report_damage(builder: tfds.core.DatasetBuilder) -> Iterator[None]:
    """Turns the errors of readers of damaged files, which can be any, into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise damaged(builder.data_dir, error) from error


def split_labels(
    builder: tfds.core.DatasetBuilder, split: str, *, image: str = "image", label: str = "label"
) -> np.ndarray:
    """The labels int32 [n] of a prepared split, kept in a file beside its records.

    Without that file every record is read, images and all: `train.prepare` does so once.

    Args:
        builder: the builder of the prepared data set.
        split: the name of the split.
        image: the name of the feature with the images.
        label: the name of the feature with the labels.

    Returns:
        The classes; -1 for an example without one.

    Raises:
        UserError: the file or a record is damaged, or a label is not a class.
    """
    path = Path(builder.data_dir) / labels_file(split)
    num_examples = builder.info.splits[split].num_examples
    num_classes = _prepared_label(builder, label).num_classes
    if path.exists():
        try:
            return _read_labels(path, num_examples, num_classes)
        except Exception as error:  # A damaged file can make NumPy raise anything.
            raise _damaged_list(path, error) from error
    source = PreparedExamples(builder, split, image=image)
    labels = np.array([source[index][label] for index in range(len(source))], np.int64)
    _check_labels(labels, num_classes)
    labels = labels.astype(np.int32)
    # If the folder cannot be written to, every opening reads the records again.
    with contextlib.suppress(OSError):
        checksums.add(path.parent, path.name, labels_content(labels))
    return labels


def _read_credits(builder: tfds.core.DatasetBuilder, split: str, num_images: int) -> Credits | None:
    """The authors and licences of a prepared split; None if they are not known."""
    path = Path(builder.data_dir) / credits_file(split)
    if not path.exists():
        return None
    return Credits.from_plain(json.loads(json_files.read_bytes(path)), num_images)


def labels_content(labels: np.ndarray) -> bytes:
    """The content of a file of labels."""
    content = io.BytesIO()
    np.save(content, labels)
    return content.getvalue()


def _read_labels(path: Path, num_examples: int, num_classes: int) -> np.ndarray:
    found = array_files.in_npy(path)
    if found.dtype.kind not in "iu":
        raise TypeError("its numbers are not integers")
    if found.shape != (num_examples,):
        raise ValueError(f"it is of {list(found.shape)} of {num_examples} examples")
    labels = found.read()
    _check_labels(labels, num_classes)
    return labels.astype(np.int32)


def _check_labels(labels: np.ndarray, num_classes: int) -> None:
    wrong = np.flatnonzero((labels < _NO_LABEL) | (labels >= num_classes))
    if wrong.size:
        raise ValueError(
            f"the label of example {wrong[0]} is {labels[wrong[0]]}, of {num_classes} classes"
        )


def _damaged_list(path: Path, error: Exception) -> UserError:
    return UserError(
        f"the prepared data set {path.parent} is damaged ({path.name}: {first_line(error)}); "
        "delete that file, and it is made again from the records"
    )


def _prepared_label(builder: tfds.core.DatasetBuilder, name: str = "label") -> Any:
    """A label feature of the prepared files, which the builder's code may define differently."""
    return tfds.features.FeatureConnector.from_config(str(builder.data_dir))[name]


class PreparedExamples(Sequence[dict[str, Any]]):
    """The examples of a prepared split, images undecoded; sent to the processes that decode."""

    def __init__(
        self, builder: tfds.core.DatasetBuilder, split: str, *, image: str = "image"
    ) -> None:
        # The program decodes, not tfds, so that the pixels do not depend on whether OpenCV is
        # installed.
        self._source = builder.as_data_source(split, decoders={image: tfds.decode.SkipDecoding()})
        self._source.data_source = RecordShards(
            [
                RecordRange(str(file.filename), file.skip, file.take)
                for file in builder.info.splits[split].file_instructions
            ]
        )
        self._folder = str(builder.data_dir)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)  # Ends an iteration.
        try:
            return self._source[index]
        except Exception as error:  # A damaged file can make the reader raise anything.
            raise damaged(self._folder, error) from error


def _read_into_memory(source: PreparedExamples, shape: tuple[int, int, int]) -> Split:
    what = f"the {len(source):,} images of a split of the prepared data set"
    host_memory.check_fits(what, len(source) * math.prod(shape))
    images = np.empty((len(source), *shape), np.uint8)
    labels = np.empty(len(source), np.int32)
    for index in range(len(source)):
        example = source[index]
        image = np.asarray(Image.open(io.BytesIO(example["image"])))
        images[index] = image.reshape(shape)
        labels[index] = example["label"]
    return Split(images, labels)
