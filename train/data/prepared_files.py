"""Prepared data sets on disk: opened, checked, and read without TensorFlow."""

import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from absl import logging
from PIL import Image

from train.data.records import Records, Split
from train.foundation.errors import UserError

FILE_FORMAT = "array_record"


def labels_file(split: str) -> str:
    """The file beside the records with the labels of a split, which spares reading the images."""
    return f"labels-{split}.npy"


def make_builder(
    builder: Callable[..., tfds.core.DatasetBuilder], data_dir: str | None, *, name: str
) -> tfds.core.DatasetBuilder:
    """The builder of a data set, prepared or not.

    Args:
        builder: called with `data_dir` and `file_format`.
        data_dir: where prepared data sets lie; `None` for tfds's own default.
        name: what messages call the data set.

    Raises:
        UserError: the description of the prepared data set is damaged.
    """
    try:
        with quiet_tfds():
            return builder(data_dir=data_dir, file_format=FILE_FORMAT)
    except OSError:
        raise
    except Exception as error:  # What a damaged description makes tfds raise.
        below = "" if data_dir is None else f" below {data_dir}"
        raise _damaged(f"{name}{below}", error) from error


def open_builder(
    builder: Callable[..., tfds.core.DatasetBuilder],
    data_dir: str | None,
    *,
    name: str,
    prepare: bool,
) -> tfds.core.DatasetBuilder:
    """The builder of a prepared data set.

    Args:
        builder: called with `data_dir` and `file_format`.
        data_dir: where prepared data sets lie; `None` for tfds's own default.
        name: what messages call the data set.
        prepare: whether it is prepared here if it is not yet; otherwise that is an error.
    """
    made = make_builder(builder, data_dir, name=name)
    with quiet_tfds():
        is_prepared = made.is_prepared()
    if is_prepared:
        return made
    if not prepare:
        where = "" if data_dir is None else f" --data_dir={data_dir}"
        raise UserError(
            f"config.dataset.name: {name} is not prepared in {made.data_dir}; prepare it with "
            f"python -m train.prepare --dataset={name}{where}"
        )
    generate(made)
    return made


def generate(builder: tfds.core.DatasetBuilder) -> None:
    """Prepares a data set that needs no files."""
    check_writable(builder)
    try:
        with quiet_tfds():
            builder.download_and_prepare()
    except RuntimeError as error:
        raise full_disk(builder.data_dir, error) from error


def full_disk(path: Any, error: RuntimeError) -> OSError:
    """What the writer of records reports as a RuntimeError of several clauses."""
    return OSError(f"cannot write {path}: {str(error).partition(';')[0]}")


def check_writable(builder: tfds.core.DatasetBuilder) -> None:
    """Says before any work is done that the place of the data set cannot be written to."""
    folder = Path(builder.data_dir).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written to ({error.strerror}); where prepared data sets lie is "
            "said by --data_dir of train.prepare, --config.dataset.data_dir, or the environment "
            "variable TFDS_DATA_DIR"
        ) from error


def check_classes(builder: tfds.core.DatasetBuilder, expected: int, *, name: str) -> None:
    """Refuses a prepared data set with another number of classes."""
    found = _prepared_label(builder).num_classes
    if found != expected:
        raise UserError(
            f"the prepared data set in {builder.data_dir} has {found} classes, and {name} as it is "
            f"configured has {expected}; prepare that one, or configure the one that is there"
        )


def class_names(builder: tfds.core.DatasetBuilder) -> tuple[str, ...]:
    """The names of the classes of a prepared data set; their numbers, where they have none."""
    return tuple(_prepared_label(builder).names)


def check_files(builder: tfds.core.DatasetBuilder) -> None:
    """Refuses a prepared data set of which a file of records is gone."""
    for split in builder.info.splits.values():
        for path in split.filepaths:
            if not Path(path).is_file():
                raise _damaged(builder.data_dir, FileNotFoundError(f"{Path(path).name} is missing"))


def read(builder: tfds.core.DatasetBuilder, split: str, *, streamed: bool) -> Split:
    """All examples of a prepared split, in memory or, where streamed, as records and labels."""
    check_files(builder)
    try:
        source = _Examples(builder, split)
        if not streamed:
            return _read_into_memory(source, builder.info.features["image"].shape)
        records = Records(source, np.arange(len(source)), f"{split} in {builder.data_dir}")
        labels = split_labels(builder, split)
        if len(labels) != len(source):
            raise ValueError(f"{labels_file(split)} is of {len(labels)} of {len(source)} examples")
        return Split(records, labels)
    except UserError:
        raise
    except Exception as error:  # Whatever a damaged file makes the readers raise.
        raise _damaged(builder.data_dir, error) from error


def split_labels(builder: tfds.core.DatasetBuilder, split: str) -> np.ndarray:
    """The labels int32 [n] of a prepared split, kept in a file beside its records.

    Finding them out takes reading every record, images and all: `train.prepare` does it once.
    """
    path = Path(builder.data_dir) / labels_file(split)
    if path.exists():
        return np.load(path)
    source = _Examples(builder, split)
    labels = np.array([source[index]["label"] for index in range(len(source))], np.int32)
    # Written under another name first: a file that is there is whole. Where the folder cannot be
    # written to, the labels are found out anew each time.
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        with temporary.open("wb") as file:
            np.save(file, labels)
        temporary.replace(path)
    return labels


def _prepared_label(builder: tfds.core.DatasetBuilder) -> Any:
    """The label as it was prepared, which need not be as the builder's code has it today."""
    return tfds.features.FeatureConnector.from_config(str(builder.data_dir))["label"]


class _Examples(Sequence[dict[str, Any]]):
    """The examples of a prepared split, images undecoded; sent to the processes that decode."""

    def __init__(self, builder: tfds.core.DatasetBuilder, split: str) -> None:
        # Decoded by the program and not by tfds, so that the pixels do not depend on whether OpenCV
        # is installed.
        self._source = builder.as_data_source(split, decoders={"image": tfds.decode.SkipDecoding()})
        self._folder = str(builder.data_dir)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)  # How a sequence says that it ends.
        try:
            return self._source[index]
        except Exception as error:  # Whatever a damaged file makes the reader raise.
            raise _damaged(self._folder, error) from error


def _read_into_memory(source: _Examples, shape: tuple[int, int, int]) -> Split:
    images = np.empty((len(source), *shape), np.uint8)
    labels = np.empty(len(source), np.int32)
    for index in range(len(source)):
        example = source[index]
        image = np.asarray(Image.open(io.BytesIO(example["image"])))
        images[index] = image.reshape(shape)
        labels[index] = example["label"]
    return Split(images, labels)


def _damaged(which: Any, error: Exception) -> UserError:
    first_line = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(
        f"the prepared data set {which} is damaged ({first_line}); delete its folder and prepare "
        "it again"
    )


@contextlib.contextmanager
def quiet_tfds() -> Iterator[None]:
    """Without tfds's bars, its talk of downloads, and its warning that a new folder is empty."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    tfds.disable_progress_bar()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        tfds.enable_progress_bar()
        logging.set_verbosity(verbosity)
