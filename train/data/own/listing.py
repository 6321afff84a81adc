"""A list of image files with their classes and splits: checked, split and identified."""

import contextlib
import dataclasses
import hashlib
import itertools
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from absl import logging

from train.data import splits
from train.foundation import files, names
from train.foundation.messages import in_words

# A constant of the data, not of the run: every run sees the same splits.
_SPLIT_SALT = b"topk_jax own images 1"
_ROW_SEED = 20261122
# The ends of two photographs differ in fewer: compressed pixels come last.
MARK_BYTES = 256
# The size of a file that cannot be looked at.
NO_SIZE = -1


class Role(IntEnum):
    """What the images of a split are for."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


# What stands for the split of an example that has none.
NO_SPLIT = -1
# How folders, tables, features and other data sets may name the splits, in lower case. An official
# "evaluation" split is one for the test, as for the library `datasets`.
ROLE_NAMES = {
    "train": Role.TRAIN,
    "training": Role.TRAIN,
    "val": Role.VALIDATION,
    "valid": Role.VALIDATION,
    "validation": Role.VALIDATION,
    "dev": Role.VALIDATION,
    "development": Role.VALIDATION,
    "test": Role.TEST,
    "testing": Role.TEST,
    "eval": Role.TEST,
    "evaluation": Role.TEST,
    "holdout": Role.TEST,
    "heldout": Role.TEST,
}
# In messages.
SPLIT_WORDS = "train, val or test, or empty for an example without a split"
# As in "test_set" and "Training Images".
_OF_A_SPLIT = re.compile("(set|split|data|images)$")
_BETWEEN_WORDS = re.compile("[ _-]")


def role_named(name: str) -> Role | None:
    """The role of a split by its name, in any case; None if the name says none.

    Examples:
        >>> role_named("Test_Set").name, role_named("rose")
        ('TEST', None)
    """
    word = _BETWEEN_WORDS.sub("", names.same_form(name).casefold())
    return ROLE_NAMES.get(_OF_A_SPLIT.sub("", word))


def role_or_no_split(word: str) -> int | None:
    """The number for the split of an example by its name; `NO_SPLIT` for an empty one."""
    return role_named(word) if names.same_form(word) else NO_SPLIT


@dataclass(frozen=True)
class Listing:
    """Image files in a fixed order.

    Attributes:
        root: the folder that the paths are relative to.
        paths: the paths of the files, with "/" between folders.
        labels: the class of each file, int32 [n].
        roles: the `Role` of each file, int8 [n]; `NO_SPLIT` for one that is left out.
        class_names: the names of the classes.
        unseen_names: the names of further classes, which have no training images.
        given: the roles whose files were given; the files of others are held out of the training
            files.
    """

    root: Path
    paths: tuple[str, ...]
    labels: np.ndarray
    roles: np.ndarray
    class_names: tuple[str, ...]
    unseen_names: tuple[str, ...] = ()
    given: frozenset[Role] = frozenset()

    def __len__(self) -> int:
        """The number of files."""
        return len(self.paths)

    def of_role(self, role: Role) -> np.ndarray:
        """The indices of the files of a split."""
        return np.flatnonzero(self.roles == role)

    def digest(self, sizes: np.ndarray) -> str:
        """A text that is another for other paths, sizes, labels, splits or names of classes."""
        digest = hashlib.sha256()
        # A copy on another file system may have its names in another form of Unicode.
        paths = map(names.same_form, self.paths)
        for texts in (paths, self.class_names, self.unseen_names):
            digest.update("\0".join(texts).encode(errors="surrogateescape"))
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
        roles: the `Role` of each file in the splits that are given, int8 [n]; `NO_SPLIT` for one
            that is in none, in a table that gives others a split.
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

    def take(self, indices: Sequence[int]) -> "GivenImages":
        """Some of the images, with all classes and roles."""
        return dataclasses.replace(
            self,
            paths=tuple(self.paths[index] for index in indices),
            labels=self.labels[list(indices)],
            roles=self.roles[list(indices)],
            keys=tuple(self.keys[index] for index in indices),
        )


def file_sizes(root: Path, paths: Sequence[str]) -> np.ndarray:
    """The bytes of each file below a folder, int64 [n].

    A file that is gone, or a link to nothing, has `NO_SIZE`: whoever reads it finds out why.
    """
    found = np.full(len(paths), NO_SIZE, np.int64)
    for index, path in enumerate(paths):
        # A name can have a null byte.
        with contextlib.suppress(OSError, ValueError):
            found[index] = (root / path).stat().st_size
    return found


def hold_out(
    labels: np.ndarray,
    keys: Sequence[str],
    *,
    validation: float,
    test: float,
) -> np.ndarray:
    """The role of each file: a fraction of every class is held out for validation, one for test.

    Which files are held out is a function of their keys, so that a new file moves few others. Files
    of one key stay together. Each class keeps at least one key for training. A key with files of
    several classes counts for the fraction of the class of its first file.

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
    class_of = labels.tolist()
    for key, indices in members.items():
        by_class.setdefault(class_of[indices[0]], []).append(key)
    # Classes without a key of their own, and those of them that a key has. The last key of each
    # other class is left for training below.
    guests = set(class_of) - by_class.keys()
    guests_of = {
        key: guests.intersection([class_of[index] for index in indices])
        for key, indices in members.items()
        if guests
    }
    keys_for_training = Counter(itertools.chain.from_iterable(guests_of.values()))
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
                # A group that is too large is passed over: smaller ones may come after it. So is
                # one that has all training files of another class.
                inside = guests_of.get(key, set())
                fits = taken + len(members[key]) <= size
                if fits and all(keys_for_training[guest] > 1 for guest in inside):
                    roles[members[key]] = role
                    taken += len(members[key])
                    keys_for_training.subtract(inside)
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


class EncodedImages(Sequence[dict[str, Any]]):
    """Images, undecoded, as the examples of `Records`, that can be looked at in part."""

    @abstractmethod
    def name(self, index: int) -> str:
        """The name of an image, as in its example."""

    @abstractmethod
    def open(self, index: int) -> BinaryIO:
        """An image as a file, of which only what is asked for is read.

        Raises:
            OSError: the file of the image cannot be read.
        """


class MarkedImages(EncodedImages):
    """Images whose contents are cheap to tell apart."""

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
    used = np.flatnonzero(listing.roles != NO_SPLIT)
    groups = (used[indices] for indices in _groups(sizes[used]))
    for indices in _equal_marks(groups, listing.roles, source):
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
    same = names.same_form(key)
    return hashlib.sha256(_SPLIT_SALT + same.encode(errors="surrogateescape")).digest()
