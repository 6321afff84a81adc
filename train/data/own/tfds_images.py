"""Finds the images of a data set of tensorflow-datasets, which is read without TensorFlow."""

import difflib
import functools
import re
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from typing_extensions import override

from train.configuration.datasets import TfdsFields
from train.data import builders, prepared_files
from train.data.own import named_splits
from train.data.own.encoded_images import EncodedImages
from train.data.own.found_images import FoundImages
from train.data.own.named_splits import SplitImages
from train.foundation.errors import UserError, first_line

# The start of a name in `train.prepare --dataset`.
PREFIX = "tfds:"
_FIELD = "config.dataset.tfds_name"


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
        # The lists of data sets of other publishers are on the network.
        known = tfds.list_builders(with_community_datasets=False)
        plain, *_ = re.split("[/:]", name)
        near = difflib.get_close_matches(plain, known, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(
            f"{_FIELD} must be a data set of tensorflow-datasets, or one that is prepared in "
            f"config.dataset.data_dir; got {name!r}{meant}"
        ) from error
    except (AssertionError, ImportError, ValueError) as error:
        # tfds names the call, and then reports, for example, that there is no such config or
        # version.
        reason = first_line(error).rpartition('}": ')[2]
        raise UserError(f"{_FIELD} {name!r}: {reason}") from error


def find(fields: TfdsFields, data_dir: str | None) -> FoundImages:
    """The images of the prepared data set of `config.dataset`.

    Args:
        fields: `config.dataset`.
        data_dir: the folder of all prepared data sets; `None` for tfds's own default.

    Raises:
        UserError: the data set is not prepared, is not a data set of images with classes, or lacks
            a split.
    """
    name = fields.tfds_name
    builder = builders.open_builder(
        functools.partial(open_by_name, name), data_dir, name=f"{PREFIX}{name}"
    )
    where = f"{_FIELD} {name!r}"
    prepared_files.check_files(builder)
    # The features of the prepared files. The builder's code may define others.
    with prepared_files.report_damage(builder):
        features = tfds.features.FeatureConnector.from_config(str(builder.data_dir))
    image, label = image_and_label(features, where)
    try:
        labels_of = functools.partial(
            prepared_files.split_labels, builder, image=image, label=label
        )
        labels = named_splits.labels_of_roles(list(builder.info.splits), labels_of, fields, where)
        images = {
            split: _Images(prepared_files.PreparedExamples(builder, split, image=image), image)
            for split, _ in labels.values()
        }
    except NotImplementedError as error:
        raise UserError(
            f"{where} is prepared in {builder.data_dir} in a format that cannot be read at random; "
            f"prepare it in another config.dataset.data_dir as {builders.FILE_FORMAT}"
        ) from error
    listing = named_splits.listed(labels, features[label].names, where)
    root, version = Path(builder.data_dir), builder.info.full_name
    return FoundImages(listing, SplitImages(images), root, where, version)


class _Images(EncodedImages):
    """The images of a split; `image` is the name of their feature."""

    def __init__(self, examples: prepared_files.PreparedExamples, image: str) -> None:
        self._examples = examples
        self._image = image

    def __len__(self) -> int:
        return len(self._examples)

    @override
    def read(self, index: int) -> bytes:
        encoded: bytes = self._examples[index][self._image]
        return encoded


def image_and_label(features: Any, where: str) -> tuple[str, str]:
    """The names of the features of a data set that are the images and the labels.

    Raises:
        UserError: there are none, or several.
    """
    named = dict(features.items()) if isinstance(features, tfds.features.FeaturesDict) else {}

    def find_one(kind: type, usual: str, what: str) -> str:
        names = [name for name, feature in named.items() if isinstance(feature, kind)]
        return named_splits.the_only(names, usual, what=what, has=named, where=where)

    image = find_one(tfds.features.Image, "image", "image")
    return image, find_one(tfds.features.ClassLabel, "label", "class label")
