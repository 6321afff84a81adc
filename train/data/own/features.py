"""A matrix of features with labels: `--config=configs/features.py`."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train.configuration.datasets import FeaturesFields
from train.data import augmentation
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec
from train.data.own import class_names, division, feature_columns, feature_files
from train.data.own.feature_files import Arrays
from train.data.own.listing import (
    SPLIT_WORDS,
    Listing,
    Role,
    name_groups,
    read_splits,
    roles_given,
)
from train.data.records import Rows, Split
from train.foundation.errors import UserError
from train.foundation.names import same_form, shown
from train.foundation.stored_rows import StoredRows

# The array of the groups if `config.dataset.group` names no other.
_GROUP = "group"


@dataclass(frozen=True, kw_only=True)
class FeaturesSpec(DatasetSpec):
    """Features in files, of which the rows of a batch are read when it wants them.

    Attributes:
        fields: `config.dataset`.
    """

    fields: FeaturesFields

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Opens the files, and goes through all features once; see `DatasetSpec`."""
        del data_dir, seed  # They lie where `config.dataset.path` says, and have no noise.
        path = Path(self.fields.path).expanduser().absolute()
        arrays = feature_files.find(path, "config.dataset.path")
        features = feature_files.read_features(arrays)
        labels, names = read_labels(arrays, len(features))
        roles = _roles(arrays, len(labels))
        given = Listing(
            labels=labels,
            roles=roles,
            class_names=names,
            given=roles_given(roles),
            groups=read_groups(arrays, self.fields.group, len(labels)),
        )
        names_of_rows = texts_of_rows(arrays, "names", len(labels))
        rows = division.divide(
            given,
            self.fields,
            where=arrays.where,
            example="row",
            names=names_of_rows or (),
        )
        columns = feature_columns.summarize(features, rows.roles == Role.TRAIN, arrays.where)
        groups = _in_objects(rows.groups if rows.has_groups else None)
        every = Split(
            Rows(features, np.arange(len(rows))), rows.labels, _in_objects(names_of_rows), groups
        )

        def split(role: Role) -> Split:
            return every.take(rows.of_role(role))

        return Dataset(
            train=split(Role.TRAIN),
            validation=split(Role.VALIDATION),
            test=split(Role.TEST),
            class_names=rows.class_names,
            unseen_class_names=rows.unseen_names,
            image_shape=features.shape[1:],
            digest=_digest(features, columns.checksums, rows),
            mean=tuple(columns.mean.tolist()),
            std=tuple(columns.std.tolist()),
        )


def read_labels(arrays: Arrays, length: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each row, int32 [n], and the names of the classes.

    Args:
        arrays: the arrays.
        length: the number of rows.

    Raises:
        UserError: there are no labels, or they have another form.
    """
    found = arrays.read("labels")
    if found is None:
        raise UserError(
            f"{arrays.where} must have an array labels; it has {', '.join(arrays.finders)}"
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
    return class_names.unified(found, given, arrays.where)


def _of_texts(
    arrays: Arrays, labels: Sequence[str], given: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    if given is None:
        return class_names.numbered(labels, arrays.where)
    number = {same_form(name): label for label, name in enumerate(given)}
    numbers = [number.get(same_form(name), -1) for name in labels]
    if -1 in numbers:
        row = numbers.index(-1)
        raise UserError(
            f"{arrays.where}: labels must be among class_names; row {row}, counted from 0, has "
            f"{shown(labels[row])!r}"
        )
    return class_names.unified(np.array(numbers, np.int32), given, arrays.where)


def read_groups(arrays: Arrays, name: str | None, length: int) -> tuple[str, ...] | None:
    """The name of the group of each row; None if the file has no groups."""
    if name is not None and name not in arrays.finders:
        raise UserError(
            field="config.dataset.group",
            must_be=f"an array of {arrays.where}, which are {', '.join(arrays.finders)}",
            got=name,
        )
    texts = texts_of_rows(arrays, name or _GROUP, length)
    otherwise = (f"row {row}" for row in range(length))
    return None if texts is None else name_groups(texts, otherwise)


def texts_of_rows(arrays: Arrays, name: str, length: int) -> list[str] | None:
    """Texts or whole numbers as texts, one of each row; None if there is no such array."""
    found = arrays.read(name)
    if found is None:
        return None
    feature_files.check_length(arrays, name, found, length)
    if found.dtype.kind in "iu":
        return [*map(str, found.tolist())]
    return feature_files.decode(arrays, name, found, may_be_empty=True)


def _in_objects(texts: Sequence[str] | None) -> np.ndarray | None:
    return None if texts is None else np.array(texts, object)


def _roles(arrays: Arrays, length: int) -> np.ndarray:
    """The split of each row, int8 [n]; none has one if the file has no splits."""
    words = feature_files.read_texts(arrays, "split", length, may_be_empty=True)
    roles, wrong = read_splits([""] * length if words is None else words)
    if words is not None and wrong is not None:
        raise UserError(
            f"{arrays.where}: split must be {SPLIT_WORDS}; row {wrong}, counted from 0, has "
            f"{shown(words[wrong])!r}"
        )
    return roles


def _digest(
    features: np.ndarray | StoredRows,
    checksums: np.ndarray,
    rows: Listing,
) -> str:
    """A hash that changes with the features, labels, splits, groups or names of classes.

    It is the same for the same arrays in another kind of file.
    """
    described = [
        *(features.shape, features.dtype.str),
        *(rows.class_names, rows.unseen_names),
    ]
    digest = hashlib.sha256(json.dumps(described).encode())
    for numbers in (checksums, rows.labels, rows.roles):
        digest.update(numbers.astype("<i8").tobytes())
    digest.update("\0".join(rows.groups or ()).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _spec(fields: FeaturesFields) -> DatasetSpec:
    division.check_fractions(fields)
    return FeaturesSpec(
        name=fields.name,
        num_classes=None,
        image_shape=None,
        augment=augmentation.unchanged,
        mean=(),
        std=(),
        inputs="features",
        fields=fields,
    )


FEATURES = DatasetFamily(_spec, fields=FeaturesFields)
