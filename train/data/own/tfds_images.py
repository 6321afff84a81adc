"""Finds the images of a data set of tensorflow-datasets, which is read without TensorFlow."""

import difflib
import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from absl import logging

from train.data import builders, prepared_files
from train.data.own import listing
from train.data.own.found_images import FoundImages
from train.data.own.listing import ROLE_NAMES, Listing, Role
from train.foundation.errors import UserError, first_line

# Of `train.prepare --dataset`.
PREFIX = "tfds:"
_FIELD = "config.dataset.tfds_name"


class Examples(Sequence[dict[str, Any]]):
    """The examples of several prepared splits, one split after another, images undecoded."""

    def __init__(self, splits: Mapping[str, Sequence[dict[str, Any]]], image: str) -> None:
        self._splits = dict(splits)
        self._image = image
        self._ends = np.cumsum([len(split) for split in splits.values()])

    def __len__(self) -> int:
        """The number of examples of all splits."""
        return int(self._ends[-1])

    def __getitem__(self, index: Any) -> Any:
        """The bytes of an image, and its name in messages."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        split, examples = list(self._splits.items())[number]
        position = int(index) - int(self._ends[number]) + len(examples)
        return {"image": examples[position][self._image], "file_name": _name(split, position)}


def open_by_name(
    name: str, *, data_dir: str | None, file_format: str | None = None
) -> tfds.core.DatasetBuilder:
    """The builder of a name, with its config and version, prepared or not.

    Raises:
        UserError: tensorflow-datasets has no data set of the name, and none is prepared.
    """
    try:
        return tfds.builder(name, data_dir=data_dir, file_format=file_format)
    except tfds.core.DatasetNotFoundError as error:
        # The lists of other people's data sets are on the network.
        known = tfds.list_builders(with_community_datasets=False)
        plain, *_ = re.split("[/:]", name)
        near = difflib.get_close_matches(plain, known, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(
            f"{_FIELD} must be a data set of tensorflow-datasets, or one that is prepared in "
            f"config.dataset.data_dir; got {name!r}{meant}"
        ) from error
    except (AssertionError, ImportError, ValueError) as error:
        # tfds names the call, then says that there is no such config or version, for example.
        reason = first_line(error).rpartition('}": ')[2]
        raise UserError(f"{_FIELD} {name!r}: {reason}") from error


def find(
    name: str,
    data_dir: str | None,
    *,
    splits: Mapping[Role, str | None],
    validation: float,
    test: float,
) -> FoundImages:
    """The images of a prepared data set.

    Args:
        name: of the data set, with its config and version where it has several.
        data_dir: the folder of all prepared data sets; `None` for tfds's own default.
        splits: the prepared split of each role; `None` for the one that is named so. Where there is
            none, images of the training split are held out.
        validation: the fraction of each class that is held out for validation.
        test: the fraction of each class that is held out for the test.

    Raises:
        UserError: the data set is not prepared, is no data set of images with classes, or lacks a
            split.
    """
    builder = builders.open_builder(
        functools.partial(open_by_name, name),
        data_dir,
        name=f"{PREFIX}{name}",
        generate_on_use=False,
    )
    where = f"{_FIELD} {name!r}"
    # Of the prepared files, which the builder's code may define differently.
    features = tfds.features.FeatureConnector.from_config(str(builder.data_dir))
    image, label = image_and_label(features, where)
    prepared_files.check_files(builder)
    try:
        labels_of = functools.partial(
            prepared_files.split_labels, builder, image=image, label=label
        )
        labels = _labels_of_roles(builder, labels_of, splits, where)
        examples = {
            split: prepared_files.Examples(builder, split, image=image)
            for split, _ in labels.values()
        }
    except NotImplementedError as error:
        raise UserError(
            f"{where} is prepared in {builder.data_dir} in a format that cannot be read at random; "
            f"prepare it in another config.dataset.data_dir as {builders.FILE_FORMAT}"
        ) from error
    found = _listing(builder, labels, features[label].names, validation=validation, test=test)
    listing.check(found.labels, found.roles, found.class_names, where, "image")
    digest = hashlib.sha256(builder.info.full_name.encode())
    digest.update(found.digest(np.zeros(len(found))).encode())
    return FoundImages(found, Examples(examples, image), digest.hexdigest())


def image_and_label(features: Any, where: str) -> tuple[str, str]:
    """The names of the features of a data set that are the images and the labels.

    Raises:
        UserError: there are none, or several.
    """
    named = dict(features.items()) if isinstance(features, tfds.features.FeaturesDict) else {}
    image = _feature(named, tfds.features.Image, "image", "image", where)
    return image, _feature(named, tfds.features.ClassLabel, "label", "class label", where)


def _feature(features: Mapping[str, Any], kind: type, usual: str, in_words: str, where: str) -> str:
    """The name of the feature of a kind: the only one, or the one with the usual name."""
    names = [name for name, feature in features.items() if isinstance(feature, kind)]
    if usual in names:
        return usual
    if len(names) != 1:
        has = ", ".join(sorted(names or features)) or "no features"
        raise UserError(
            f"{where} must have one {in_words} in each example, or one named {usual!r}; it has "
            f"{has}"
        )
    return names[0]


def _labels_of_roles(
    builder: tfds.core.DatasetBuilder,
    labels_of: Callable[[str], np.ndarray],
    splits: Mapping[Role, str | None],
    where: str,
) -> dict[Role, tuple[str, np.ndarray]]:
    """The split of each role that has one, and its labels."""
    prepared = list(builder.info.splits)
    found: dict[Role, tuple[str, np.ndarray]] = {}
    for role, chosen in splits.items():
        field = f"config.dataset.{role.name.lower()}_split"
        if chosen is not None and chosen not in prepared:
            raise UserError(
                f"{field} must be one of {', '.join(prepared)}, or None; got {chosen!r}"
            )
        named = [split for split in prepared if ROLE_NAMES.get(split) is role]
        split = chosen if chosen is not None else next(iter(named), None)
        if split is None:
            if role is Role.TRAIN:
                raise UserError(
                    f"{where} has no split train: {field} must be one of {', '.join(prepared)}"
                )
            continue
        if split in {other for other, _ in found.values()}:
            raise UserError(f"{field} must be a split of its own; {split!r} has another role too")
        labels = labels_of(split)
        if (labels < 0).any():
            # So are the official test images of many data sets, which nobody may label.
            if chosen is not None or role is Role.TRAIN:
                raise UserError(f"{field}: images of {split!r} have no labels")
            logging.warning("the split %s of %s has no labels, and is not used", split, where)
            continue
        found[role] = split, labels
    return found


def _listing(
    builder: tfds.core.DatasetBuilder,
    labels: Mapping[Role, tuple[str, np.ndarray]],
    class_names: Sequence[str],
    *,
    validation: float,
    test: float,
) -> Listing:
    """The examples of all roles, with those of the training split that are held out."""
    names: list[str] = []
    for split, of_split in labels.values():
        names += [_name(split, position) for position in range(len(of_split))]
    all_labels = np.concatenate([of_split for _, of_split in labels.values()]).astype(np.int32)
    sizes = [len(of_split) for _, of_split in labels.values()]
    roles = listing.hold_out_missing(
        all_labels,
        np.repeat(np.array(list(labels), np.int8), sizes),
        names,
        given=labels,
        validation=validation,
        test=test,
    )
    return Listing(Path(builder.data_dir), tuple(names), all_labels, roles, tuple(class_names))


def _name(split: str, position: int) -> str:
    return f"{split}[{position}]"
