"""A list of image files with their classes and splits: checked, split and identified."""

import hashlib
from abc import abstractmethod
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from train.data import splits
from train.foundation import files
from train.foundation.errors import UserError

# A constant of the data, not of the run: every run sees the same splits.
_SPLIT_SALT = b"topk_jax own images 1"
_ROW_SEED = 20261122
_NAMED = 3
# The ends of two photographs differ in fewer: compressed pixels come last.
MARK_BYTES = 256


class Role(IntEnum):
    """What the images of a split are for."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


# How folders and tables may name the splits.
ROLE_NAMES = {
    "train": Role.TRAIN,
    "training": Role.TRAIN,
    "val": Role.VALIDATION,
    "valid": Role.VALIDATION,
    "validation": Role.VALIDATION,
    "test": Role.TEST,
}


@dataclass(frozen=True)
class Listing:
    """Image files in a fixed order.

    Attributes:
        root: the folder that the paths are relative to.
        paths: the paths of the files, with "/" between folders.
        labels: the class of each file, int32 [n].
        roles: the `Role` of each file, int8 [n].
        class_names: the names of the classes.
    """

    root: Path
    paths: tuple[str, ...]
    labels: np.ndarray
    roles: np.ndarray
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        """The number of files."""
        return len(self.paths)

    def of_role(self, role: Role) -> np.ndarray:
        """The indices of the files of a split."""
        return np.flatnonzero(self.roles == role)

    def digest(self, sizes: np.ndarray) -> str:
        """A text that is another for other paths, sizes, labels, splits or names of classes."""
        digest = hashlib.sha256()
        for names in (self.paths, self.class_names):
            digest.update("\0".join(names).encode(errors="surrogateescape"))
            digest.update(b"\0\0")
        for numbers in (self.labels, self.roles, sizes):
            digest.update(np.ascontiguousarray(numbers.astype("<i8")).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class GivenImages:
    """Images as a folder or a table gives them: splits may be missing.

    Attributes:
        root: the folder that the paths are relative to.
        paths: the paths of the files, with "/" between folders.
        labels: the class of each file, int32 [n].
        roles: the `Role` of each file in the splits that are given, int8 [n].
        given: the roles of the splits that are given, with or without images.
        keys: what the files are told apart by when splits are held out, as in `hold_out`.
        class_names: the names of the classes.
    """

    root: Path
    paths: tuple[str, ...]
    labels: np.ndarray
    roles: np.ndarray
    given: frozenset[Role]
    keys: tuple[str, ...]
    class_names: tuple[str, ...]


def file_sizes(root: Path, paths: Sequence[str]) -> np.ndarray:
    """The bytes of each file below a folder, int64 [n].

    Raises:
        UserError: a file does not exist.
    """
    found = np.empty(len(paths), np.int64)
    for index, path in enumerate(paths):
        try:
            found[index] = (root / path).stat().st_size
        except OSError as error:
            raise UserError(f"cannot read {root / path}: {error.strerror}") from error
    return found


def split(images: GivenImages, where: str, *, validation: float, test: float) -> Listing:
    """Holds out the splits that are missing, of the training images.

    Args:
        images: as they are given.
        where: what they were found in, for messages.
        validation: the fraction of each class that is held out for validation.
        test: the fraction of each class that is held out for the test.

    Raises:
        UserError: no classifier can be trained with them; see `check`.
    """
    roles = hold_out_missing(
        images.labels,
        images.roles,
        images.keys,
        given=images.given,
        validation=validation,
        test=test,
    )
    check(images.labels, roles, images.class_names, where, "image")
    return Listing(images.root, images.paths, images.labels, roles, images.class_names)


def check(
    labels: np.ndarray, roles: np.ndarray, class_names: Sequence[str], where: str, example: str
) -> None:
    """Refuses examples that no classifier can be trained with.

    Args:
        labels: the class of each example, [n].
        roles: the role of each example, [n].
        class_names: the names of the classes.
        where: what the examples were found in, for messages.
        example: what messages call an example, "image" or "row".

    Raises:
        UserError: there are fewer than two classes, a class has no training example, or there are
            no examples for validation or for the test.
    """
    if len(class_names) < 2:
        only = f" ({class_names[0]})" if class_names else ""
        raise UserError(f"{where} must have at least two classes; it has {len(class_names)}{only}")
    _warn_of_similar(class_names, where)
    trained = np.bincount(labels[roles == Role.TRAIN], minlength=len(class_names))
    if without := [class_names[label] for label in np.flatnonzero(trained == 0).tolist()]:
        raise UserError(f"{where} has no training {example} of {in_words(without, 'classes')}")
    for role in (Role.VALIDATION, Role.TEST):
        if role not in roles:
            name = role.name.lower()
            raise UserError(
                f"{where} has no {example}s for {name}; give it some, or a larger "
                f"config.dataset.{name}_fraction"
            )


def _warn_of_similar(class_names: Sequence[str], where: str) -> None:
    """Warns of classes that are most likely one."""
    alike: dict[str, list[str]] = {}
    for name in class_names:
        alike.setdefault(" ".join(name.casefold().split()), []).append(name)
    found = [" and ".join(map(repr, names)) for names in alike.values() if len(names) > 1]
    if found:
        logging.warning(
            "%s has classes whose names differ in case or spaces alone: %s",
            where,
            in_words(found, "groups"),
        )


def hold_out_missing(
    labels: np.ndarray,
    roles: np.ndarray,
    keys: Sequence[str] | None,
    *,
    given: Container[int],
    validation: float,
    test: float,
) -> np.ndarray:
    """The role of each example, where splits that are not given are held out of the training ones.

    Args:
        labels: the class of each example, [n].
        roles: the role of each example in the splits that are given, [n].
        keys: what the examples are told apart by, as in `hold_out`; None for their numbers, as in
            `hold_out_rows`.
        given: the roles of the splits that are given, with or without examples.
        validation: the fraction of each class that is held out for validation.
        test: the fraction of each class that is held out for the test.

    Returns:
        int8 [n].
    """
    missing = {
        "validation": 0.0 if Role.VALIDATION in given else validation,
        "test": 0.0 if Role.TEST in given else test,
    }
    of_train = np.flatnonzero(roles == Role.TRAIN)
    result = roles.copy()
    if keys is None:
        result[of_train] = hold_out_rows(labels[of_train], **missing)
    else:
        result[of_train] = hold_out(
            labels[of_train], [keys[index] for index in of_train.tolist()], **missing
        )
    return result


def hold_out(
    labels: np.ndarray,
    keys: Sequence[str],
    *,
    validation: float,
    test: float,
) -> np.ndarray:
    """The role of each file: a fraction of every class is held out for validation, one for test.

    Which files are held out is a function of their keys, so that a new file moves few others. Files
    of one key stay together. A class keeps at least one key for training.

    Args:
        labels: the class of each file, [n].
        keys: what the files are told apart by, or the group that each belongs to, [n].
        validation: the fraction of each class for validation.
        test: the fraction of each class for the test.

    Returns:
        int8 [n].
    """
    roles = np.full(len(labels), Role.TRAIN, np.int8)
    order = {key: _rank(key) for key in set(keys)}
    members: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        members.setdefault(key, []).append(index)
    by_class: dict[int, list[str]] = {}
    for key, indices in members.items():
        by_class.setdefault(int(labels[indices[0]]), []).append(key)
    for keys_of_class in by_class.values():
        keys_of_class.sort(key=order.__getitem__)
        total = sum(len(members[key]) for key in keys_of_class)
        # Rounded to the nearest, and halves up.
        wanted = {
            Role.TEST: int(test * total + 0.5),
            Role.VALIDATION: int(validation * total + 0.5),
        }
        left = keys_of_class[:-1]
        for role, size in wanted.items():
            taken, rest = 0, []
            for key in left:
                # A group that is too large is passed over: smaller ones may come after it.
                if taken + len(members[key]) <= size:
                    roles[members[key]] = role
                    taken += len(members[key])
                else:
                    rest.append(key)
            left = rest
    return roles


def hold_out_rows(labels: np.ndarray, *, validation: float, test: float) -> np.ndarray:
    """The role of each of many rows: as `hold_out`, but rows are told apart by their numbers.

    Rows that are added at the end move few others.

    Args:
        labels: the class of each row, [n].
        validation: the fraction of each class for validation.
        test: the fraction of each class for the test.

    Returns:
        int8 [n].
    """
    # The first numbers of a generator are the same however many are drawn.
    draws = np.random.default_rng(_ROW_SEED).random(len(labels))
    position = splits.position_in_class(labels, draws)
    counts = np.bincount(labels)
    # One row of each class is left for training.
    available = np.maximum(counts - 1, 0)
    tested = np.minimum((test * counts + 0.5).astype(np.int64), available)
    validated = np.minimum((validation * counts + 0.5).astype(np.int64), available - tested)
    roles = np.full(len(labels), Role.TRAIN, np.int8)
    roles[position < (tested + validated)[labels]] = Role.VALIDATION
    roles[position < tested[labels]] = Role.TEST
    return roles


def end_of(path: str | Path) -> bytes:
    """The end of a file as a mark of its content; nothing if it cannot be read."""
    try:
        return files.read_end(path, MARK_BYTES)
    except OSError:
        return b""


class MarkedImages(Sequence[dict[str, Any]]):
    """Images, undecoded, as the examples of `Records`, whose contents are cheap to tell apart."""

    @abstractmethod
    def mark(self, index: int) -> Hashable:
        """What is the same for the same content, and can be had without all of it."""


def warn_of_duplicates(listing: Listing, sizes: np.ndarray, source: MarkedImages) -> None:
    """Warns of files of different splits with the same content.

    Args:
        listing: the files.
        sizes: the bytes of each, [n].
        source: the files. Only those of equal size and mark are read: of a million photographs,
            which have some 100 GB, nearly all have the size of another.
    """
    found = []
    for indices in _equal_marks(_groups(sizes), listing.roles, source):
        contents: dict[bytes, int] = {}
        for index in indices:
            content = source[index]["image"]
            if not content:
                continue  # No image, or one that cannot be read: told when it is wanted.
            digest = hashlib.sha256(content).digest()
            first = contents.setdefault(digest, index)
            if listing.roles[first] != listing.roles[index]:
                found.append(f"{listing.paths[index]} (also {listing.paths[first]})")
    if found:
        logging.warning(
            "images of one split are in another too, which makes its accuracies too good: %s",
            in_words(found, "images"),
        )


def _equal_marks(
    groups: Iterable[np.ndarray], roles: np.ndarray, source: MarkedImages
) -> Iterator[list[int]]:
    """The indices of each group with equal marks, where they have several roles."""
    for indices in groups:
        if len(np.unique(roles[indices])) == 1:
            continue
        marked: dict[Hashable, list[int]] = {}
        for index in indices.tolist():
            marked.setdefault(source.mark(index), []).append(index)
        yield from (equal for equal in marked.values() if len(set(roles[equal])) > 1)


def _groups(values: np.ndarray) -> list[np.ndarray]:
    """The indices of equal values, where there are at least two."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order])) + 1
    return [indices for indices in np.split(order, starts) if len(indices) > 1]


def _rank(key: str) -> bytes:
    return hashlib.sha256(_SPLIT_SALT + key.encode(errors="surrogateescape")).digest()


def in_words(names: Sequence[str], what: str) -> str:
    """The first names in a message, and the number of all where there are more."""
    text = first_names(names)
    return text if len(names) <= _NAMED else f"{len(names)} {what}: {text}"


def first_names(names: Sequence[str]) -> str:
    """The first names in a message, with dots where there are more."""
    return ", ".join([*names[:_NAMED], *(["…"] if len(names) > _NAMED else [])])
