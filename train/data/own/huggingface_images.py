"""Finds the images of a data set of Hugging Face."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow

from train.configuration.datasets import HuggingfaceFields
from train.data.own import arrow_images, huggingface_files, named_splits
from train.data.own.arrow_images import ArrowImages
from train.data.own.found_images import FoundImages
from train.data.own.huggingface_files import OpenedSplit
from train.data.own.listing import Role, name_groups
from train.data.own.named_splits import SplitImages
from train.foundation.errors import UserError

# Stands for the label of an image without a label.
_NO_LABEL = frozenset({None, "", -1})
# The column of the groups if `config.dataset.group` names no other.
_GROUP = "group"


def find(fields: HuggingfaceFields, data_dir: str | None) -> FoundImages:
    """The images of the data set of `config.dataset`.

    Args:
        fields: `config.dataset`.
        data_dir: the folder that Arrow files are written to; `None` for the one of `datasets`.

    Raises:
        UserError: the data set cannot be opened, is not a data set of images with classes, or lacks
            a split.
    """
    cache = None if data_dir is None else str(Path(data_dir).expanduser().absolute())
    if fields.path is not None:
        path = Path(fields.path).expanduser().absolute()
        where, root = f"config.dataset.path {path}", path if path.is_dir() else path.parent
        opened = huggingface_files.open_folder(path, fields.huggingface_config, cache)
    else:
        name = str(fields.huggingface_name)
        where, root = f"config.dataset.huggingface_name {name!r}", Path(name)
        opened = huggingface_files.open_name(name, fields.huggingface_config, cache)
    features = next(iter(opened.values())).features
    image = _image_column(features, fields.image_column, where)
    label = _label_column(features, fields.label_column, where)
    labels, class_names = _labels(opened, features, label, where)
    of_roles = named_splits.labels_of_roles(list(labels), labels.__getitem__, fields, where)
    if not isinstance(features[label], datasets.ClassLabel):
        of_roles, class_names = _only_used(of_roles, class_names)
    images = {
        split: ArrowImages(opened[split].files, image, root) for split, _ in of_roles.values()
    }
    sizes = {split: of_split.sizes() for split, of_split in images.items()}
    listing = named_splits.listed(of_roles, class_names, where, sizes)
    groups = _groups(opened, _group_column(features, fields.group), of_roles)
    if groups is not None:
        own = (f"path {path}" for path in listing.paths)
        listing = dataclasses.replace(listing, groups=name_groups(groups, own))
    return FoundImages(listing, SplitImages(images), root, where)


def _image_column(features: Any, chosen: str | None, where: str) -> str:
    """The column of the images: of their type in `datasets`, or else of bytes."""
    types, holds = _types(features), arrow_images.holds_images
    if chosen is not None:
        words = "images, of their bytes or of their paths"
        return _checked(chosen, types, "image_column", holds, words)
    names = [name for name, kind in features.items() if isinstance(kind, datasets.Image)] or [
        name for name, kind in types.items() if holds(kind) and not arrow_images.holds_text(kind)
    ]
    hint = "; config.dataset.image_column names one"
    return named_splits.the_only(
        names, "image", what="column of images", has=types, where=where, hint=hint
    )


def _label_column(features: Any, chosen: str | None, where: str) -> str:
    """The column of the labels: of class labels, or else of texts or integers."""
    types = _types(features)
    if chosen is not None:
        words = "class labels, texts or integers"
        return _checked(chosen, types, "label_column", _holds_labels, words)
    names = [name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    names = names or [name for name, kind in types.items() if _holds_labels(kind)]
    hint = "; config.dataset.label_column names one"
    return named_splits.the_only(
        names, "label", what="column of labels", has=types, where=where, hint=hint
    )


def _group_column(features: Any, chosen: str | None) -> str | None:
    """The column of the groups: of texts or integers; None if there is none."""
    types = _types(features)
    if chosen is None:
        return _GROUP if _GROUP in types and _holds_labels(types[_GROUP]) else None
    return _checked(chosen, types, "group", _holds_labels, "texts or integers")


def _groups(
    opened: Mapping[str, OpenedSplit],
    column: str | None,
    of_roles: Mapping[Role, tuple[str, np.ndarray]],
) -> list[str] | None:
    """The group of each image in the order of the roles; empty for an image without one."""
    if column is None:
        return None
    values = (
        value
        for split, _ in of_roles.values()
        for value in arrow_images.read_column(opened[split].files, column).to_pylist()
    )
    return ["" if value is None else str(value) for value in values]


def _checked(
    chosen: str,
    types: Mapping[str, pyarrow.DataType],
    field: str,
    holds: Callable[[pyarrow.DataType], bool],
    words: str,
) -> str:
    """A column that `config.dataset` names, if there is one with values of that kind."""
    if chosen not in types:
        raise UserError(
            field=f"config.dataset.{field}",
            must_be=f"one of {', '.join(types)}, or None",
            got=chosen,
        )
    if not holds(types[chosen]):
        raise UserError(
            field=f"config.dataset.{field}",
            must_be=f"a column of {words}",
            but=f"{chosen!r} is a column of {types[chosen]}",
        )
    return chosen


def _types(features: Any) -> dict[str, pyarrow.DataType]:
    """The types of the columns in Arrow files, by their names."""
    return {field.name: field.type for field in features.arrow_schema}


def _holds_labels(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_integer(kind)) or arrow_images.holds_text(kind)


def _labels(
    opened: Mapping[str, OpenedSplit], features: Mapping[str, Any], column: str, where: str
) -> tuple[dict[str, np.ndarray], Sequence[str]]:
    """The labels of each split, -1 for an image without a label, and the names of the classes."""
    columns = {
        split: arrow_images.read_column(one.files, column).to_pylist()
        for split, one in opened.items()
    }
    kind = features[column]
    if isinstance(kind, datasets.ClassLabel):
        number: Mapping[Any, int] = {label: label for label in range(kind.num_classes)}
        class_names: Sequence[str] = kind.names
    else:
        values = sorted(_different(columns.values()))
        number = {value: label for label, value in enumerate(values)}
        class_names = [str(value) for value in values]
    if unknown := _different(columns.values()) - number.keys():
        raise UserError(
            f"{where}: the column {column!r} has the label {min(unknown)} and the names of "
            f"{len(number)} classes"
        )
    labels = {
        split: np.array([number.get(value, -1) for value in of_split], np.int32)
        for split, of_split in columns.items()
    }
    return labels, class_names


def _different(columns: Iterable[Sequence[Any]]) -> set[Any]:
    """The labels that occur."""
    return {value for column in columns for value in column} - _NO_LABEL


def _only_used(
    labels: Mapping[Role, tuple[str, np.ndarray]], class_names: Sequence[str]
) -> tuple[dict[Role, tuple[str, np.ndarray]], Sequence[str]]:
    """Labels of classes that the splits in use have; others may occur in other splits."""
    used = np.unique(np.concatenate([of_split for _, of_split in labels.values()]))
    renumbered = {
        role: (split, np.searchsorted(used, of_split).astype(np.int32))
        for role, (split, of_split) in labels.items()
    }
    return renumbered, [class_names[label] for label in used.tolist()]
