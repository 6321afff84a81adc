"""Prepared data sets of tensorflow-datasets, which are read without TensorFlow."""

import contextlib
import dataclasses
import functools
import io
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from absl import logging
from PIL import Image

from train.data.examples import Examples, Split
from train.data.sources import named_splits
from train.foundation import files
from train.foundation.errors import UserError, errors_told

FILE_FORMAT = "array_record"
# The start of a name in `train.prepare --dataset`.
PREFIX = "tfds:"
# The features with the name of an image and who made it, as ImageNet and Pl@ntNet-300K call them.
_TEXTS = ("file_name", "author", "license")
_REMEDY = "; if what is prepared there is damaged, delete it and run train.prepare again"
# The label of an example without one, in tfds.
_NO_LABEL = -1
_LIST = "a list of examples"


def find(name: str, data_dir: str | None, *, splits: Mapping[Split, str]) -> Examples:
    """The images of the prepared data set of a name, also with config and version.

    Raises:
        UserError: it is not prepared, is not a data set of images with classes, or lacks a split.
    """
    builder = open_builder(functools.partial(tfds.builder, name), data_dir, PREFIX + name)
    where = f"{PREFIX}{builder.info.full_name}"
    used = named_splits.chosen(list(builder.info.splits), splits, where)
    parts = [(split, read(builder, name)) for split, name in used.items()]
    return named_splits.joined(parts, splits, where)


def make_builder(
    make: Callable[..., tfds.core.DatasetBuilder], data_dir: str | None, name: str
) -> tfds.core.DatasetBuilder:
    """The builder of a data set, prepared or not, which `make` makes for all prepared data sets.

    Raises:
        UserError: there is no such data set, or the description of the prepared one is damaged.
    """
    below = "" if data_dir is None else f" below {data_dir}"
    with (
        errors_told(f"the data set {name}{below} cannot be opened", _REMEDY),
        quiet(),
    ):
        return make(data_dir=data_dir, file_format=FILE_FORMAT)


def open_builder(
    make: Callable[..., tfds.core.DatasetBuilder], data_dir: str | None, name: str
) -> tfds.core.DatasetBuilder:
    """The builder of a prepared data set; see `make_builder`.

    Raises:
        UserError: it is not prepared, or cannot be opened.
    """
    builder = make_builder(make, data_dir, name)
    with quiet():
        if builder.is_prepared():
            return builder
    where = "" if data_dir is None else f" --data_dir={data_dir}"
    raise UserError(
        f"config.dataset.name: {name} is not prepared in {builder.data_dir}; prepare "
        f"it with python -m train.prepare --dataset={name}{where}"
    )


def class_names(features: Any, where: str) -> tuple[str, ...]:
    """The names of the classes of a data set.

    Raises:
        UserError: it has no feature `image` with images, or no feature `label` with classes.
    """
    known = dict(features) if isinstance(features, tfds.features.FeaturesDict) else {}
    wanted = {"image": tfds.features.Image, "label": tfds.features.ClassLabel}
    for name, kind in wanted.items():
        if not isinstance(known.get(name), kind):
            has = ", ".join(known) or "none"
            must_have = f"a feature {name} of the kind {kind.__name__}"
            raise UserError(f"{where} must have {must_have}; its features are {has}")
    return tuple(known["label"].names)


def read(builder: tfds.core.DatasetBuilder, split: str) -> Examples:
    """The encoded images of a prepared split, which are read when they are wanted.

    All but the images is listed in a file beside the records. Without that file every record is
    read, images and all: `train.prepare` does so once.

    Raises:
        UserError: the prepared files are damaged.
    """
    folder = Path(builder.data_dir)
    with errors_told(f"{folder} cannot be read", _REMEDY):
        # The features of the prepared files. The builder's code may define others.
        features = tfds.features.FeatureConnector.from_config(str(folder))
        classes = class_names(features, f"the data set in {folder}")
        texts = [one for one in _TEXTS if isinstance(dict(features).get(one), tfds.features.Text)]
    records = Records(builder, split)
    listed = _listed(records, _list_of(builder, split), len(classes), texts)
    labels, called = listed.pop("label"), listed.pop("file_name", np.array([], object))
    if len({*called, ""}) <= len(records):  # The names do not tell all images apart.
        called = np.array([f"{split}[{index}]" for index in range(len(records))], object)
    credited = [", ".join(filter(None, one)) for one in zip(*listed.values(), strict=True)]
    return Examples.of_source(
        records,
        labels,
        classes,
        str(folder),
        names=called,
        credits=np.array(credited, object) if listed else None,
        content=builder.info.full_name,
    )


def read_into_memory(builder: tfds.core.DatasetBuilder, split: str) -> Examples:
    """The examples of a prepared split of small images of one shape, as an array uint8.

    Raises:
        UserError: the prepared files are damaged.
    """
    examples = read(builder, split)
    with errors_told(f"{builder.data_dir} cannot be read", _REMEDY):
        shape = builder.info.features["image"].shape
        images = np.empty((len(examples), *shape), np.uint8)
        for index in range(len(examples)):
            image = Image.open(io.BytesIO(examples.encoded(index)))
            images[index] = np.asarray(image).reshape(shape)
    return dataclasses.replace(examples, inputs=images)


class Records(Sequence[bytes]):
    """The encoded images of a prepared split; threads may read them, and processes be sent them."""

    def __init__(self, builder: tfds.core.DatasetBuilder, split: str) -> None:
        """Opens a split."""
        self.folder = Path(builder.data_dir)
        _allow_open_files()
        with errors_told(f"{self.folder} cannot be read", _REMEDY):
            for path in builder.info.splits[split].filepaths:
                if not Path(path).is_file():
                    raise FileNotFoundError(f"{Path(path).name} is missing")
            # The program decodes, not tfds, so that the pixels do not depend on whether OpenCV is
            # installed.
            decoders = {"image": tfds.decode.SkipDecoding()}
            self._source = builder.as_data_source(split, decoders=decoders)

    def __len__(self) -> int:
        """The number of images."""
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        """The bytes of an image, counted from 0."""
        if not 0 <= index < len(self):
            raise IndexError(index)  # Ends an iteration.
        return self.example(index)["image"]

    def example(self, index: int) -> dict[str, Any]:
        """All features of an example; the image is not decoded."""
        with errors_told(f"{self.folder} cannot be read", _REMEDY):
            example: dict[str, Any] = self._source[index]
            return example


def leave_out(builder: tfds.core.DatasetBuilder, split: str, places: Sequence[int]) -> None:
    """Takes the labels of examples of a split away, so that no run takes them."""
    path = _list_of(builder, split)
    listed = files.read_checked(path, _LIST)
    for place in places:
        listed["label"][place] = _NO_LABEL
    files.write_whole(path, files.to_json(files.with_checksum(listed)))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides tfds's progress bars, its messages, and its warning that a new folder is empty."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    tfds.disable_progress_bar()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        tfds.enable_progress_bar()
        logging.set_verbosity(verbosity)


def _list_of(builder: tfds.core.DatasetBuilder, split: str) -> Path:
    return Path(builder.data_dir) / f"examples-{split}.json"


def _listed(
    records: Records, path: Path, num_classes: int, texts: Sequence[str]
) -> dict[str, np.ndarray]:
    """The labels and some texts of all records, as the file at `path` lists them."""
    remedy = "; delete it, and it is made again"
    with errors_told(f"{path} cannot be read", remedy):
        try:
            listed = files.read_checked(path, _LIST)
        except FileNotFoundError:
            listed = _read_list(records, texts)
            # If the folder cannot be written to, every opening reads the records again.
            with contextlib.suppress(OSError):
                files.write_whole(path, files.to_json(files.with_checksum(listed)))
        except UserError as error:
            raise UserError(f"{error}{remedy}") from error
        found = {"label": np.array(listed["label"])}
        found |= {name: np.array(listed[name], object) for name in texts}
        is_class = (found["label"] >= _NO_LABEL) & (found["label"] < num_classes)
        if found["label"].dtype.kind != "i" or not is_class.all():
            raise ValueError(f"it must have labels of {num_classes} classes")
        if any(column.shape != (len(records),) for column in found.values()):
            raise ValueError(f"it must list {len(records)} examples")
    return found


def _read_list(records: Records, texts: Sequence[str]) -> dict[str, list[Any]]:
    """The labels and some texts of all records."""
    listed: dict[str, list[Any]] = {name: [] for name in ("label", *texts)}
    for index in range(len(records)):
        example = records.example(index)
        listed["label"].append(int(example["label"]))
        for name in texts:
            listed[name].append(example[name].decode(errors="replace"))
    return listed


def _allow_open_files() -> None:
    """Lets this process have as many open files as it can: each file of records stays open.

    ImageNet has 1,088. Many systems allow 1,024 to a process that does not ask for more.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems have a lower limit than they tell.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
