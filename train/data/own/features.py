"""A matrix of features with labels: `--config=configs/features.py`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.data import augmentation
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec
from train.data.own import feature_columns, feature_files, listing, own_images
from train.data.own.feature_files import Arrays
from train.data.own.listing import ROLE_NAMES, Role
from train.data.records import Rows, Split
from train.foundation.errors import UserError


@dataclass(frozen=True, kw_only=True)
class FeaturesSpec(DatasetSpec):
    """Features in files, of which the rows of a batch are read when it wants them.

    Attributes:
        path: an .npz file, or a folder of .npy files.
        validation: the fraction of each class that is held out for validation.
        test: the fraction of each class that is held out for the test.
    """

    path: Path
    validation: float
    test: float

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Opens the files, and goes through all features once; see `DatasetSpec`."""
        del data_dir, seed  # They lie where `config.dataset.path` says, and have no noise.
        arrays = feature_files.find(self.path, "config.dataset.path")
        features = feature_files.read_features(arrays)
        labels, class_names = _labels(arrays, len(features))
        roles = _roles(arrays, labels, validation=self.validation, test=self.test)
        listing.check(labels, roles, class_names, arrays.where, "row")
        columns = feature_columns.summarize(features, roles == Role.TRAIN, arrays.where)

        def split(role: Role) -> Split:
            indices = np.flatnonzero(roles == role)
            return Split(Rows(features, indices), labels[indices])

        return Dataset(
            train=split(Role.TRAIN),
            validation=split(Role.VALIDATION),
            test=split(Role.TEST),
            class_names=class_names,
            image_shape=features.shape[1:],
            digest=_digest(features, columns.checksums, labels, roles, class_names),
            mean=tuple(columns.mean.tolist()),
            std=tuple(columns.std.tolist()),
        )


def _labels(arrays: Arrays, length: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each row, int32 [n], and the names of the classes."""
    found = arrays.read("labels")
    if found is None:
        raise UserError(
            f"{arrays.where} must have an array labels; it has {', '.join(arrays.readers)}"
        )
    feature_files.check_length(arrays, "labels", found, length)
    given = feature_files.read_texts(arrays, "class_names", None)
    if given is not None and len(set(given)) < len(given):
        raise UserError(f"{arrays.where}: class_names must be different; two are the same")
    if found.dtype.kind not in "iu":
        if found.dtype.kind not in "US":
            raise UserError(
                f"{arrays.where}: labels must be whole numbers or texts; got {found.dtype}"
            )
        return _of_texts(arrays, feature_files.decode(arrays, "labels", found), given)
    if found.min() < 0:
        row = int((found < 0).argmax())
        raise UserError(
            f"{arrays.where}: labels must not be negative; row {row}, counted from 0, has "
            f"{found[row]}"
        )
    if given is None:
        numbers, labels = np.unique(found, return_inverse=True)
        return labels.astype(np.int32), tuple(map(str, numbers.tolist()))
    if found.max() >= len(given):
        row = int((found >= len(given)).argmax())
        raise UserError(
            f"{arrays.where}: labels must be less than {len(given)}, the number of class_names; "
            f"row {row}, counted from 0, has {found[row]}"
        )
    return found.astype(np.int32), tuple(given)


def _of_texts(
    arrays: Arrays, labels: Sequence[str], given: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    class_names = tuple(sorted(set(labels)) if given is None else given)
    number = {name: label for label, name in enumerate(class_names)}
    for row, name in enumerate(labels):
        if name not in number:
            raise UserError(
                f"{arrays.where}: labels must be among class_names; row {row}, counted from 0, has "
                f"{name!r}"
            )
    return np.fromiter((number[name] for name in labels), np.int32, len(labels)), class_names


def _roles(arrays: Arrays, labels: np.ndarray, *, validation: float, test: float) -> np.ndarray:
    """The split of each row, int8 [n]; those that are missing are held out of the training rows."""
    words = feature_files.read_texts(arrays, "split", len(labels))
    if words is None:
        roles = np.full(len(labels), Role.TRAIN, np.int8)
    else:
        known = {word: ROLE_NAMES.get(word.lower()) for word in set(words)}
        for row, word in enumerate(words):
            if known[word] is None:
                raise UserError(
                    f"{arrays.where}: split must be one of {', '.join(ROLE_NAMES)}; row {row}, "
                    f"counted from 0, has {word!r}"
                )
        roles = np.array([known[word] for word in words], np.int8)
    return listing.hold_out_missing(
        labels, roles, None, given=roles, validation=validation, test=test
    )


def _digest(
    features: np.ndarray,
    checksums: np.ndarray,
    labels: np.ndarray,
    roles: np.ndarray,
    class_names: Sequence[str],
) -> str:
    """A text that is another for other features, labels, splits or names of classes.

    It is the same for the same arrays in another kind of file.
    """
    described = [features.shape, features.dtype.str, class_names]
    digest = hashlib.sha256(json.dumps(described).encode())
    for numbers in (checksums, labels, roles):
        digest.update(numbers.astype("<i8").tobytes())
    return digest.hexdigest()


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    own_images.check_fractions(config)
    return FeaturesSpec(
        name=config["name"],
        num_classes=None,
        image_shape=None,
        augment=augmentation.unchanged,
        mean=(),
        std=(),
        inputs="features",
        path=Path(config["path"]).expanduser().absolute(),
        validation=config["validation_fraction"],
        test=config["test_fraction"],
    )


FEATURES = DatasetFamily(
    _spec,
    options={
        **own_images.PATH,
        **{name: own_images.OPTIONS[name] for name in ("validation_fraction", "test_fraction")},
    },
)
