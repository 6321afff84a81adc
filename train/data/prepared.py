"""Prepared data sets on disk: opened, checked, and read without TensorFlow."""

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from absl import logging
from PIL import Image

from train.data.records import Records, Split
from train.errors import UserError


def open_builder(
    make_builder: Callable[..., tfds.core.DatasetBuilder],
    data_dir: str | None,
    *,
    name: str,
    prepare: bool,
) -> tfds.core.DatasetBuilder:
    """The builder of a prepared data set.

    Args:
        make_builder: called with `data_dir` and `file_format`.
        data_dir: where prepared data sets lie; `None` for tfds's own default.
        name: what messages call the data set.
        prepare: whether it is prepared here if it is not yet; otherwise that is an error.
    """
    with quiet_tfds():
        try:
            builder = make_builder(data_dir=data_dir, file_format="array_record")
        except OSError:
            raise
        except Exception as error:  # What a damaged description makes tfds raise.
            raise _damaged(data_dir or "the folder of prepared data sets", error) from error
        if builder.is_prepared():
            return builder
        if not prepare:
            where = "" if data_dir is None else f" --data_dir={data_dir}"
            raise UserError(
                f"config.dataset.name: {name} is not prepared in {builder.data_dir}; prepare it "
                f"with python -m train.prepare --dataset={name}{where}"
            )
        try:
            builder.download_and_prepare()
        except RuntimeError as error:  # How the writer reports a full disk.
            raise OSError(f"cannot prepare the data set in {builder.data_dir}: {error}") from error
        return builder


def check_classes(builder: tfds.core.DatasetBuilder, expected: int, *, name: str) -> None:
    """Refuses a prepared data set with another number of classes."""
    # As it was prepared, which need not be as the builder's code has it today.
    features = tfds.features.FeatureConnector.from_config(str(builder.data_dir))
    found = features["label"].num_classes
    if found != expected:
        raise UserError(
            f"the prepared data set in {builder.data_dir} has {found} classes, and {name} as it is "
            f"configured has {expected}; prepare that one, or configure the one that is there"
        )


def read(builder: tfds.core.DatasetBuilder, split: str, *, streamed: bool) -> Split:
    """All examples of a prepared split, in memory or, where streamed, as records and labels."""
    try:
        source = _source(builder, split)
        if not streamed:
            return _read_into_memory(source, builder.info.features["image"].shape)
        records = Records(source, np.arange(len(source)), f"{split} in {builder.data_dir}")
        labels = split_labels(builder, split)
        if len(labels) != len(source):
            raise ValueError(f"labels-{split}.npy is of {len(labels)} of {len(source)} examples")
        return Split(records, labels)
    except Exception as error:  # Whatever a damaged file makes the readers raise.
        raise _damaged(builder.data_dir, error) from error


def split_labels(builder: tfds.core.DatasetBuilder, split: str) -> np.ndarray:
    """The labels int32 [n] of a prepared split, kept in a file beside its records.

    Finding them out takes reading every record, images and all: `train.prepare` does it once.
    """
    path = Path(builder.data_dir) / f"labels-{split}.npy"
    if path.exists():
        return np.load(path)
    source = _source(builder, split)
    labels = np.array([source[index]["label"] for index in range(len(source))], np.int32)
    # Written under another name first: a file that is there is whole. Where the folder cannot be
    # written to, the labels are found out anew each time.
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        with temporary.open("wb") as file:
            np.save(file, labels)
        temporary.replace(path)
    return labels


def _source(builder: tfds.core.DatasetBuilder, split: str) -> Any:
    # Decoded by the program and not by tfds, so that the pixels do not depend on whether OpenCV is
    # installed.
    return builder.as_data_source(split, decoders={"image": tfds.decode.SkipDecoding()})


def _read_into_memory(source: Any, shape: tuple[int, int, int]) -> Split:
    images = np.empty((len(source), *shape), np.uint8)
    labels = np.empty(len(source), np.int32)
    for index in range(len(source)):
        example = source[index]
        image = np.asarray(Image.open(io.BytesIO(example["image"])))
        images[index] = image.reshape(shape)
        labels[index] = example["label"]
    return Split(images, labels)


def _damaged(folder: Any, error: Exception) -> UserError:
    first_line = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(
        f"the prepared data set in {folder} is damaged ({first_line}); delete it, and it is "
        "prepared again"
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
