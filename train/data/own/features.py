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
from train.data.own import (
    class_names,
    determinations,
    division,
    feature_columns,
    feature_files,
    votes,
)
from train.data.own.determinations import Determinations, Reading
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
from train.data.truths import ONE, SEVERAL, Truths
from train.foundation.errors import UserError
from train.foundation.names import same_form, shown
from train.foundation.stored_rows import StoredRows

# The array of the groups if `config.dataset.group` names no other.
_GROUP = "group"


@dataclass(frozen=True, kw_only=True)
class FeaturesSpec(DatasetSpec):
    """Features in files; the rows of a batch are read when it wants them.

    Attributes:
        fields: `config.dataset`.
    """

    fields: FeaturesFields

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Opens the files, and goes through all features once; see `DatasetSpec`."""
        del data_dir, seed  # They are at `config.dataset.path`, and have no noise.
        path = Path(self.fields.path).expanduser().absolute()
        arrays = feature_files.find(path, "config.dataset.path")
        features = feature_files.read_features(arrays)
        labels, names, truths = read_truths(arrays, len(features), Reading.of(self.fields, None))
        roles = _roles(arrays, len(labels))
        given = Listing(
            labels=labels,
            roles=roles,
            class_names=names,
            given=roles_given(roles),
            groups=read_groups(arrays, self.fields.group, len(labels)),
            truths=truths,
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
            Rows(features, np.arange(len(rows))),
            rows.labels,
            _in_objects(names_of_rows),
            groups,
            rows.truths,
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
            embedded_by=feature_files.read_embedded_by(arrays),
        )


def read_truths(
    arrays: Arrays, length: int, reading: Reading
) -> tuple[np.ndarray, tuple[str, ...], Truths | None]:
    """The class that stands for each row, int32 [n], the names of the classes, and the truths.

    If a row may have several labels, `labels` is [rows, m] with empty texts or -1 in places that a
    row does not need. `shares` [rows, m] are their shares or numbers of votes, and `annotators`
    [rows, m] who gave them. Without `labels`, the columns of `shares` are in the order of
    `class_names`.

    Args:
        arrays: the arrays.
        length: the number of rows.
        reading: how labels are read.

    Raises:
        UserError: there are no labels, or they have another form.
    """
    if reading.labels == ONE:
        return *read_labels(arrays, length), None
    given = _determinations(arrays, length, reading)
    known = feature_files.read_texts(arrays, "class_names", None)
    if known is None:
        classes, found_names = class_names.numbered(given.texts, arrays.where)
    else:
        number = {same_form(name): label for label, name in enumerate(known)}
        missing = [text for text in given.texts if same_form(text) not in number]
        if missing:
            raise UserError(
                f"{arrays.where}: labels must be among class_names; got {shown(missing[0])!r}"
            )
        found = np.array([number[same_form(text)] for text in given.texts], np.int32)
        classes, found_names = class_names.unified(found, known, arrays.where)
    truths = votes.truths_of(given, classes, len(found_names), reading)
    return truths.labels, found_names, truths


def _determinations(arrays: Arrays, length: int, reading: Reading) -> Determinations:
    shares = _matrix(arrays, "shares", length, "biuf")
    labels = _matrix(arrays, "labels", length, "iuUS")
    known = feature_files.read_texts(arrays, "class_names", None)
    if labels is None:
        if shares is None or known is None or shares.shape[1] != len(known):
            raise UserError(
                f"{arrays.where} must have an array labels, or shares with a column for each of "
                f"class_names; it has {', '.join(arrays.finders)}"
            )
        width = max(int((shares != 0).sum(axis=1).max(initial=0)), 1)
        # The columns with a share, in their order; the further places have no class.
        columns = np.argsort(shares == 0, axis=1, kind="stable")[:, :width]
        shares = np.take_along_axis(shares, columns, axis=1)
        texts = [
            [known[column] if share else "" for column, share in zip(*row, strict=True)]
            for row in zip(columns.tolist(), shares.tolist(), strict=True)
        ]
    elif labels.dtype.kind in "iu":
        if labels.max(initial=-1) >= (np.inf if known is None else len(known)):
            raise UserError(
                f"{arrays.where}: labels must be less than {len(known or ())}, the number of "
                f"class_names; got {labels.max()}"
            )
        texts = [
            ["" if one < 0 else str(one) if known is None else known[one] for one in row]
            for row in labels.tolist()
        ]
    else:
        texts = _texts(arrays, "labels", labels)
    voters = _matrix(arrays, "annotators", length, "iuUS")
    for name, array in (("shares", shares), ("annotators", voters)):
        if array is not None and array.shape[1] != len(texts[0]):
            raise UserError(
                f"{arrays.where}: {name} must have the shape of labels; got {list(array.shape)}"
            )
    return determinations.in_lists(
        texts,
        None if shares is None or reading.labels == SEVERAL else shares.astype(np.float64),
        None if voters is None else _texts(arrays, "annotators", voters),
        reading,
        arrays.where,
    )


def _matrix(arrays: Arrays, name: str, length: int, kinds: str) -> np.ndarray | None:
    """An array [rows, m], or [rows] for one entry a row; None if there is no such array."""
    found = arrays.read(name)
    if found is None:
        return None
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or len(found) != length or found.shape[1] == 0:
        raise UserError(
            f"{arrays.where}: {name} must be [{length}, m], for the rows of features; got the "
            f"shape {list(found.shape)}"
        )
    if found.dtype.kind not in kinds:
        raise UserError(f"{arrays.where}: {name} cannot be of the type {found.dtype}")
    return found


def _texts(arrays: Arrays, name: str, found: np.ndarray) -> list[list[str]]:
    if found.dtype.kind in "iu":
        return [[*map(str, row)] for row in found.tolist()]
    flat = feature_files.decode(arrays, name, found.ravel(), may_be_empty=True)
    width = found.shape[1]
    return [flat[start : start + width] for start in range(0, len(flat), width)]


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
            raise UserError(f"{arrays.where}: labels must be integers or texts; got {found.dtype}")
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
    """Texts, or integers as texts, one for each row; None if there is no such array."""
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
    if rows.truths is not None:
        digest.update(rows.truths.to_bytes())
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
