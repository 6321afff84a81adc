"""A list of the user's own examples with their classes and splits: what all kinds of them share."""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from train.data.credits import Credits
from train.data.truths import Truths
from train.foundation import names


class Role(IntEnum):
    """What the examples of a split are for."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


# Stands for the split of an example without a split.
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
# What a split may be, in messages.
SPLIT_WORDS = "train, val or test, or empty for an example without a split"
# The start of the name of a group that is given.
_NAMED = "group "
# As in "test_set" and "Training Images".
_OF_A_SPLIT = re.compile("(set|split|data|images)$")
_BETWEEN_WORDS = re.compile("[ _-]")


def role_named(name: str) -> Role | None:
    """The role of a split by its name, in any case; None if the name is not the name of a role.

    Examples:
        >>> role_named("Test_Set").name, role_named("rose")
        ('TEST', None)
    """
    word = _BETWEEN_WORDS.sub("", names.same_form(name).casefold())
    return ROLE_NAMES.get(_OF_A_SPLIT.sub("", word))


def read_splits(words: Sequence[str]) -> tuple[np.ndarray, int | None]:
    """The split of each example by its name, int8 [n]; `NO_SPLIT` for an empty one.

    Returns:
        The splits, and the first example whose word names none; None if all words do.
    """
    known = {word: role_named(word) if names.same_form(word) else NO_SPLIT for word in set(words)}
    wrong = next((row for row, word in enumerate(words) if known[word] is None), None)
    return np.array([known[word] or 0 for word in words], np.int8), wrong


def roles_given(roles: np.ndarray) -> frozenset[Role]:
    """The roles that some examples are given with."""
    return frozenset(map(Role, np.unique(roles[roles != NO_SPLIT]).tolist()))


def name_groups(groups: Sequence[str], otherwise: Iterable[str]) -> tuple[str, ...]:
    """The name of the group of each example. An example without a group has a name of its own.

    Args:
        groups: the groups as they are given, [n]; empty for an example that is a group of its own.
            Names that look the same are one; see `names.same_form`.
        otherwise: the names for examples without a group, as "path P", [n].

    Raises:
        UserError: a group is an accent without a letter, or else cannot be seen.
    """
    same = {group: names.same_form(group) for group in set(groups)}
    found = []
    for group, other in zip(groups, otherwise, strict=True):
        names.check_visible(same[group], f"{other}: a group")
        found.append(f"{_NAMED}{same[group]}" if same[group] else other)
    return tuple(found)


def given_group(name: str) -> str:
    """A group as it was given, from `name_groups`; empty for an example that is a group of its own.

    Examples:
        >>> given_group("group plant 17"), given_group("path 1.jpg")
        ('plant 17', '')
    """
    return name.removeprefix(_NAMED) if name.startswith(_NAMED) else ""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Examples in a fixed order: as they are given, or after `division.divide` with all splits.

    Attributes:
        paths: the names of images, as the paths of their files with "/" between folders; empty for
            rows of features, which have numbers.
        sizes: the bytes of each image, int64 [n]; 0 if the digest does not depend on them, negative
            if they could not be found out; empty for rows.
        labels: the class of each example, int32 [n].
        roles: the `Role` of each example, int8 [n]; `NO_SPLIT` for one without a split, or that is
            left out.
        class_names: the names of the classes.
        unseen_names: the names of further classes, which have no training examples.
        given: the roles that are given, with or without examples; the other roles are held out of
            the training examples.
        groups: the group of each example, [n], as `name_groups` names it. Examples of one group
            stay together when splits are held out. None if each is a group of its own.
        truths: what the labels stand for, [n], if the truth of an example is more than one class;
            else None.
        credits: the authors and the licences of images, [n]; None if none is given. The digest does
            not depend on them.
    """

    paths: tuple[str, ...] = ()
    sizes: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    labels: np.ndarray
    roles: np.ndarray
    class_names: tuple[str, ...]
    unseen_names: tuple[str, ...] = ()
    given: frozenset[Role] = frozenset()
    groups: tuple[str, ...] | None = None
    truths: Truths | None = None
    credits: Credits | None = None

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.labels)

    def occurrences(self, chosen: np.ndarray) -> np.ndarray:
        """In how many of some examples each class occurs, int64 [L]."""
        if self.truths is not None:
            return self.truths[chosen].occurrences(len(self.class_names))
        return np.bincount(self.labels[chosen], minlength=len(self.class_names))

    def have_any(self, classes: np.ndarray) -> np.ndarray:
        """Whether each example has one of some classes, bool [L]: bool [n]."""
        if self.truths is None:
            found: np.ndarray = classes[self.labels]
            return found
        return (classes[self.truths.classes] & (self.truths.shares > 0)).any(axis=1)

    def renumbered(self, number: np.ndarray) -> "Listing":
        """The examples after class c got the number `number[c]`; names are not changed."""
        truths = None if self.truths is None else self.truths.renumbered(number)
        labels = number[self.labels].astype(np.int32)
        return dataclasses.replace(self, labels=labels, truths=truths)

    @property
    def has_groups(self) -> bool:
        """Whether an example is given with a group; the others are groups of their own."""
        return any(group.startswith(_NAMED) for group in self.groups or ())

    def given_groups(self) -> list[str]:
        """The groups as they are given, [n]; empty for an example that is a group of its own."""
        return [*map(given_group, self.groups or ())]

    def of_role(self, role: Role) -> np.ndarray:
        """The indices of the examples of a split."""
        return np.flatnonzero(self.roles == role)

    def take(self, indices: Sequence[int]) -> "Listing":
        """Some of the images, with all classes and roles."""
        chosen = list(indices)
        return dataclasses.replace(
            self,
            paths=tuple(self.paths[index] for index in chosen),
            sizes=self.sizes[chosen],
            labels=self.labels[chosen],
            roles=self.roles[chosen],
            groups=self.groups and tuple(self.groups[index] for index in chosen),
            truths=None if self.truths is None else self.truths[np.array(chosen, np.int64)],
            credits=None if self.credits is None else self.credits[np.array(chosen, np.int64)],
        )

    def digest(self, version: str = "") -> str:
        """A hash of the paths, sizes, labels, splits and names of the classes.

        Args:
            version: the version of the data, if they have one.
        """
        digest = hashlib.sha256()
        # A copy on another file system may have its names in another form of Unicode.
        paths = map(names.same_form, self.paths)
        for texts in (paths, self.class_names, self.unseen_names):
            digest.update("\0".join(texts).encode(errors="surrogateescape"))
            digest.update(b"\0\0")
        for numbers in (self.labels, self.roles, self.sizes):
            digest.update(np.ascontiguousarray(numbers.astype("<i8")).tobytes())
        if self.truths is not None:
            digest.update(self.truths.to_bytes())
        found = digest.hexdigest()
        return hashlib.sha256((version + found).encode()).hexdigest() if version else found


@dataclass(frozen=True)
class ListedFiles:
    """The images of a data set as a run found them when it started, so that it can recognize them.

    Attributes:
        digest: the digest of the data set; see `Dataset.digest`.
        image_shape: the image shape of the data set; see `Dataset.image_shape`.
        listing: the images, divided; without groups if none is given.
    """

    digest: str
    image_shape: tuple[int, int, int]
    listing: Listing

    def to_plain(self) -> dict[str, Any]:
        """A JSON value; a path that is not UTF-8 is not a text, and is written as its bytes."""
        listing = self.listing
        return {
            "digest": self.digest,
            "image_shape": list(self.image_shape),
            "class_names": [_printed(name) for name in listing.class_names],
            "unseen_class_names": [_printed(name) for name in listing.unseen_names],
            "given": sorted(listing.given),
            "paths": [_printed(path) for path in listing.paths],
            "labels": listing.labels,
            "roles": listing.roles,
            "sizes": listing.sizes,
            **({} if listing.truths is None else {"truths": listing.truths.to_plain()}),
        } | ({"groups": [*map(_printed, listing.groups or ())]} if listing.has_groups else {})

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "ListedFiles":
        """The files from the result of `to_plain`.

        Raises:
            ValueError: the lists are of different lengths, or a label is not a class.
        """
        height, width, channels = plain["image_shape"]
        class_names, unseen_names, paths, groups = (
            tuple(map(_read, plain.get(name, ())))
            for name in ("class_names", "unseen_class_names", "paths", "groups")
        )
        listing = Listing(
            paths=paths,
            sizes=np.array(plain["sizes"], np.int64),
            labels=np.array(plain["labels"], np.int32),
            roles=np.array(plain["roles"], np.int8),
            class_names=class_names,
            unseen_names=unseen_names,
            given=frozenset(map(Role, plain["given"])),
            groups=groups or None,
            truths=Truths.from_plain(plain["truths"], len(paths)) if "truths" in plain else None,
        )
        lists = (paths, listing.roles, listing.sizes, groups or paths)
        if any(len(one) != len(listing) for one in lists):
            raise ValueError("its lists are of different lengths")
        # An image that is left out may be of a class that is left out, too.
        used = listing.labels[listing.roles != NO_SPLIT]
        if used.size and not used.max() < len(class_names) + len(unseen_names):
            raise ValueError("it has a label that is not a class")
        return cls(plain["digest"], (height, width, channels), listing)


def _printed(text: str) -> str:
    # JSON files of the program have no half characters, which names of files can have.
    return text.encode(errors="surrogateescape").decode("latin-1")


def _read(text: str) -> str:
    return text.encode("latin-1").decode(errors="surrogateescape")
