"""New labelled examples for a finished run: found, and their classes matched by their names."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train.data.image_reader import ImageReader
from train.data.own import feature_columns, feature_files, features, folders, tables
from train.data.own.found_images import FoundImages
from train.data.own.listing import Role
from train.data.records import Records, Rows, Split
from train.foundation import names
from train.foundation.errors import UserError
from train.foundation.files import MOST_IMAGE_BYTES
from train.foundation.messages import in_words
from train.foundation.spelling import flags_for_fields


@dataclass(frozen=True)
class Expected:
    """What a classifier takes.

    Attributes:
        class_names: the names of its classes, in the order of the labels.
        inputs: what its examples are; see `DatasetSpec.inputs`.
        shape: the shape of an example.
        reader: makes pixels of images; None for other examples.
        nested: whether each folder with images is a class; see `folders.find`.
        most_bytes: the largest size of an image file.
        name: what messages call it.
    """

    class_names: Sequence[str]
    inputs: str
    shape: tuple[int, ...]
    reader: ImageReader | None
    nested: bool = False
    most_bytes: int = MOST_IMAGE_BYTES
    name: str = "the run"


@dataclass(frozen=True)
class LabelledData:
    """New labelled examples.

    Attributes:
        examples: the examples. Labels from the number of classes on are classes that the classifier
            does not know.
        unknown_names: the names of these classes.
        path: where the examples are.
    """

    examples: Split
    unknown_names: tuple[str, ...]
    path: Path


def find(flag: str, path: Path, expected: Expected) -> LabelledData:
    """The examples that a flag names.

    Args:
        flag: "images", a folder with a folder for each class; "table", a table of images; or
            "features", files of features and labels.
        path: the value of the flag.
        expected: what the classifier takes.

    Raises:
        UserError: the files do not have that form, the classifier takes other examples, or it knows
            none of their classes.
    """
    inputs = "features" if flag == "features" else "images"
    if inputs != expected.inputs:
        raise UserError(f"--{flag} has {inputs}, and {expected.name} takes {expected.inputs}")
    path = names.existing(path.expanduser())
    with flags_for_fields({"config.dataset.path": f"--{flag}"}):
        if flag == "features":
            examples, class_names = _in_features(path, expected.shape)
        else:
            examples, class_names = _in_images(flag, path, expected)
    number = {names.same_form(name): label for label, name in enumerate(expected.class_names)}
    unknown = [name for name in class_names if names.same_form(name) not in number]
    if len(unknown) == len(class_names):
        raise UserError(
            f"--{flag} {path} has no class of {expected.name}: it has "
            f"{in_words(class_names, 'classes')}, and {expected.name} has "
            f"{in_words(expected.class_names, 'classes')}"
        )
    number |= {
        names.same_form(name): label
        for label, name in enumerate(unknown, start=len(expected.class_names))
    }
    numbers = np.array([number[names.same_form(name)] for name in class_names], np.int32)
    examples = dataclasses.replace(examples, labels=numbers[examples.labels])
    return LabelledData(examples, tuple(unknown), path)


def _in_images(flag: str, path: Path, expected: Expected) -> tuple[Split, tuple[str, ...]]:
    """The images with labels by their own list of classes, and this list."""
    if flag == "table":
        found = tables.find(path, most_bytes=expected.most_bytes, uses_splits=False)
    else:
        found = folders.find(path, nested=expected.nested, most_bytes=expected.most_bytes)
        _refuse_splits(found, flag, path)
    listing = found.listing
    assert expected.reader is not None
    indices = np.arange(len(listing))
    records = Records(found.images, indices, str(found.root), expected.reader)
    groups = None if listing.groups is None else np.array(listing.groups, object)
    paths = np.array(listing.paths, object)
    return Split(records, listing.labels, paths, groups), listing.class_names


def _refuse_splits(found: FoundImages, flag: str, path: Path) -> None:
    """Refuses folders of splits, of which one may have the training images."""
    if (found.listing.roles == Role.TRAIN).all():
        return
    splits = dict.fromkeys(one.partition("/")[0] for one in found.listing.paths)
    raise UserError(
        field=f"--{flag}",
        must_be=f"a folder with a folder for each class, as {path / min(splits)}",
        but=f"{path} has the folders of splits {', '.join(sorted(splits))}",
    )


def _in_features(path: Path, shape: tuple[int, ...]) -> tuple[Split, tuple[str, ...]]:
    """The rows with labels by their own list of classes, and this list."""
    arrays = feature_files.find(path, "--features")
    matrix = feature_files.read_features(arrays)
    if matrix.shape[1:] != shape:
        raise UserError(
            field="--features",
            must_be=f"rows of {shape[0]} features, as in training",
            but=f"{path} has {matrix.shape[1]} features a row",
        )
    feature_columns.check_finite(matrix, arrays.where)
    labels, class_names = features.read_labels(arrays, len(matrix))
    texts = feature_files.read_texts(arrays, "names", len(matrix))
    groups = feature_files.read_texts(arrays, "group", len(matrix), may_be_empty=True)
    split = Split(
        Rows(matrix, np.arange(len(matrix))),
        labels,
        None if texts is None else np.array(texts, object),
        None if groups is None else _named_groups(groups),
    )
    return split, class_names


def _named_groups(groups: Sequence[str]) -> np.ndarray:
    """The name of the group of each row; a row without one is a group of its own."""
    return np.array(
        [f"group {group}" if group else f"row {row}" for row, group in enumerate(groups)], object
    )
