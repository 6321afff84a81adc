"""Prepared data sets on disk: checked, and read without TensorFlow."""

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from train.data.builders import damaged
from train.data.image_reader import ImageReader
from train.data.record_shards import RecordShards, Shard
from train.data.records import Records, Split
from train.foundation.errors import UserError


def labels_file(split: str) -> str:
    """The file with the labels of a split, which are read from it without the images."""
    return f"labels-{split}.npy"


def check_classes(builder: tfds.core.DatasetBuilder, expected: int, *, name: str) -> None:
    """Refuses a prepared data set with another number of classes."""
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
    found = builder.info.features["image"].shape
    if found != expected:
        raise UserError(
            f"the prepared data set in {builder.data_dir} has images of shape {found}, and {name} "
            f"as it is configured has {expected}; prepare that one, or configure the one that is "
            "there"
        )


def class_names(builder: tfds.core.DatasetBuilder) -> tuple[str, ...]:
    """The names of the classes of a prepared data set; their numbers, where they have none."""
    return tuple(_prepared_label(builder).names)


def check_files(builder: tfds.core.DatasetBuilder) -> None:
    """Refuses a prepared data set that lacks a file of records."""
    for split in builder.info.splits.values():
        for path in split.filepaths:
            if not Path(path).is_file():
                raise damaged(builder.data_dir, FileNotFoundError(f"{Path(path).name} is missing"))


def read(builder: tfds.core.DatasetBuilder, split: str, *, reader: ImageReader | None) -> Split:
    """All examples of a prepared split, in memory or, with a reader, as records and labels."""
    check_files(builder)
    try:
        source = Examples(builder, split)
        if reader is None:
            return _read_into_memory(source, builder.info.features["image"].shape)
        name = f"{split} in {builder.data_dir}"
        records = Records(source, np.arange(len(source)), name, reader)
        labels = split_labels(builder, split)
        if len(labels) != len(source):
            raise ValueError(f"{labels_file(split)} is of {len(labels)} of {len(source)} examples")
        return Split(records, labels)
    except UserError:
        raise
    except Exception as error:  # A damaged file can make the readers raise anything.
        raise damaged(builder.data_dir, error) from error


def split_labels(
    builder: tfds.core.DatasetBuilder, split: str, *, image: str = "image", label: str = "label"
) -> np.ndarray:
    """The labels int32 [n] of a prepared split, kept in a file beside its records.

    Without that file every record is read, images and all: `train.prepare` does so once.

    Args:
        builder: of the prepared data set.
        split: the name of the split.
        image: the name of the feature with the images.
        label: the name of the feature with the labels.
    """
    path = Path(builder.data_dir) / labels_file(split)
    if path.exists():
        return np.load(path)
    source = Examples(builder, split, image=image)
    labels = np.array([source[index][label] for index in range(len(source))], np.int32)
    # Written under another name first, so that a file of this name is whole. Where the folder
    # cannot be written to, every opening reads the records again.
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        with temporary.open("wb") as file:
            np.save(file, labels)
        temporary.replace(path)
    return labels


def _prepared_label(builder: tfds.core.DatasetBuilder) -> Any:
    """The label feature of the prepared files, which the builder's code may define differently."""
    return tfds.features.FeatureConnector.from_config(str(builder.data_dir))["label"]


class Examples(Sequence[dict[str, Any]]):
    """The examples of a prepared split, images undecoded; sent to the processes that decode."""

    def __init__(
        self, builder: tfds.core.DatasetBuilder, split: str, *, image: str = "image"
    ) -> None:
        # The program decodes, not tfds, so that the pixels do not depend on whether OpenCV is
        # installed.
        self._source = builder.as_data_source(split, decoders={image: tfds.decode.SkipDecoding()})
        self._source.data_source = RecordShards(
            [
                Shard(str(file.filename), file.skip, file.take)
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


def _read_into_memory(source: Examples, shape: tuple[int, int, int]) -> Split:
    images = np.empty((len(source), *shape), np.uint8)
    labels = np.empty(len(source), np.int32)
    for index in range(len(source)):
        example = source[index]
        image = np.asarray(Image.open(io.BytesIO(example["image"])))
        images[index] = image.reshape(shape)
        labels[index] = example["label"]
    return Split(images, labels)
