"""`Examples`: the one table that every source of data gives, and that batches are made of."""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from train.data.truths import Truths
from train.foundation import names

if TYPE_CHECKING:
    from train.data.crops import ImageReader


class Split(IntEnum):
    """What an example is for. `NONE`: it is not divided yet, or is left out."""

    NONE = -1
    TRAIN = 0
    VALIDATION = 1
    TEST = 2

    @property
    def word(self) -> str:
        """What messages and tables call it."""
        return self.name.lower()


# How folders, tables and data sets may name the splits, in lower case.
_WORDS = {
    Split.TRAIN: ("train", "training"),
    Split.VALIDATION: ("val", "valid", "validation", "dev", "development"),
    Split.TEST: ("test", "testing", "eval", "evaluation", "holdout", "heldout"),
}
_SPLIT_OF = {"": Split.NONE} | {word: split for split, words in _WORDS.items() for word in words}
# What a split may be, in messages.
SPLIT_WORDS = "train, val or test, or empty for an example without a split"
# As in "test_set" and "Training Images".
_ENDING = re.compile("(?<=.)(set|split|data|images)$")
_BETWEEN_WORDS = re.compile("[ _-]")


def split_named(name: str) -> Split | None:
    """The split that folders, tables and data sets call so, in any case; None for another name.

    Examples:
        >>> split_named("Test_Set").word, split_named(""), split_named("rose")
        ('test', <Split.NONE: -1>, None)
    """
    word = _BETWEEN_WORDS.sub("", names.same_form(name).casefold())
    return _SPLIT_OF.get(_ENDING.sub("", word))


def classes(texts: Iterable[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each name of a class, int32 [n], and the sorted names.

    Names that look the same are one; see `names.same_form`.

    Examples:
        >>> classes(["oak", "ash ", "oak"])
        (array([1, 0, 1], dtype=int32), ('ash', 'oak'))
    """
    found = np.array([*map(names.same_form, texts)], object)
    class_names, labels = np.unique(found, return_inverse=True)
    return labels.astype(np.int32), tuple(class_names.tolist())


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Examples in a fixed order: as a source gives them, or those of a split.

    Attributes:
        inputs: images uint8 [N, height, width, channels] or rows of features [N, d], in memory or
            mapped; or encoded images, bytes, whose reading raises `OSError` if it fails. A sequence
            can be sent to processes. It may have more than these examples.
        places: which of the inputs is each example's, int64 [n].
        labels: the class of each example, int32 [n]. The most voted one, or the rarest of several.
        splits: the `Split` of each example, int8 [n].
        class_names: the names of the classes, [L].
        where: the source in messages, such as "config.dataset.path photos".
        names: what messages and results call each example, texts [n]; None if it is its place.
        groups: what stays in one split, as the photographs of one plant, texts [n]; "" for an
            example that is a group of its own. None if all are.
        grammar: what found the groups in the names; see `groups`. None if nothing did.
        truths: what the labels stand for if the truth is more than one class; else None.
        credits: the author and the licence of each image, texts [n]; None if none is known.
        reader: makes pixels of encoded images; None for other inputs.
        content: changes with the content of the inputs; "" if nothing tells.
    """

    inputs: np.ndarray | Sequence[bytes]
    places: np.ndarray
    labels: np.ndarray
    splits: np.ndarray
    class_names: tuple[str, ...]
    where: str
    names: np.ndarray | None = None
    groups: np.ndarray | None = None
    grammar: str | None = None
    truths: Truths | None = None
    credits: np.ndarray | None = None
    reader: "ImageReader | None" = None
    content: str = ""

    @classmethod
    def of_source(
        cls,
        inputs: np.ndarray | Sequence[bytes],
        labels: np.ndarray,
        class_names: Sequence[str],
        where: str,
        **more: Any,
    ) -> "Examples":
        """All examples of a source, without splits unless they are given."""
        number = len(inputs)
        given = {"splits": np.full(number, Split.NONE, np.int8), **more}
        return cls(
            inputs=inputs,
            places=np.arange(number),
            labels=labels.astype(np.int32),
            class_names=tuple(class_names),
            where=where,
            **given,
        )

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.labels)

    def take(self, chosen: np.ndarray) -> "Examples":
        """Some of the examples, by their indices or as a mask."""
        values = {name: getattr(self, name) for name in _OF_EACH}
        taken = {name: own[chosen] for name, own in values.items() if own is not None}
        return dataclasses.replace(self, **taken)

    def of_split(self, split: Split) -> "Examples":
        """The examples of a split."""
        return self.take(np.flatnonzero(self.splits == split))

    @property
    def are_encoded(self) -> bool:
        """Whether the inputs are encoded images."""
        return not isinstance(self.inputs, np.ndarray)

    def encoded(self, index: int) -> bytes:
        """The bytes of an encoded image.

        Raises:
            OSError: they cannot be read.
        """
        assert not isinstance(self.inputs, np.ndarray)
        return self.inputs[int(self.places[index])]

    @property
    def array(self) -> np.ndarray:
        """The inputs of all examples of the source, if they are an array."""
        assert isinstance(self.inputs, np.ndarray)
        return self.inputs

    def rows(self, chosen: np.ndarray) -> np.ndarray:
        """The inputs of some examples that are an array: images or rows of features."""
        return self.array[self.places[chosen]]

    @property
    def are_rows(self) -> bool:
        """Whether the inputs are rows of features."""
        return isinstance(self.inputs, np.ndarray) and self.inputs.ndim == 2

    def name(self, index: int) -> str:
        """What messages and results call an example."""
        if self.names is not None:
            return str(self.names[index])
        return f"row {self.places[index]}" if self.are_rows else f"example {index}"

    def names_of(self, chosen: np.ndarray) -> np.ndarray:
        """The names of some examples, texts."""
        return np.array([self.name(index) for index in chosen.tolist()], object)

    def credit(self, index: int) -> str:
        """The author and the licence of an image; empty if neither is known."""
        return "" if self.credits is None else str(self.credits[index])

    @property
    def num_groups(self) -> int:
        """The number of groups; an example without one is a group of its own."""
        if self.groups is None:
            return len(self)
        return len({*self.groups} - {""}) + int((self.groups == "").sum())

    def truth(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """The labels of some examples, with what they stand for, as arrays of a batch."""
        rows = {} if self.truths is None else self.truths.arrays(chosen)
        return {"labels": self.labels[chosen], **rows}

    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """The index of an example and one of its classes, for all classes of all examples, [v]."""
        if self.truths is None:
            return np.arange(len(self)), self.labels
        of, place = np.nonzero(self.truths.shares > 0)
        return of, self.truths.classes[of, place]

    def occurrences(self) -> np.ndarray:
        """In how many of the examples each class occurs, int64 [L]."""
        return np.bincount(self.entries()[1], minlength=len(self.class_names))

    def renumbered(self, number: np.ndarray, class_names: tuple[str, ...]) -> "Examples":
        """The examples after class c got the number `number[c]` in other names of classes."""
        return dataclasses.replace(
            self,
            labels=number[self.labels].astype(np.int32),
            truths=None if self.truths is None else self.truths.renumbered(number),
            class_names=class_names,
        )

    def digest(self) -> str:
        """A hash of the names, classes, labels, splits and contents."""
        digest = hashlib.sha256()
        # A copy on another file system may have its names in another form of Unicode.
        called = () if self.names is None else map(names.same_form, self.names.tolist())
        for texts in (called, self.class_names, (self.content,)):
            digest.update("\0".join(texts).encode(errors="surrogateescape"))
            digest.update(b"\0\0")
        for numbers in (self.labels, self.splits):
            digest.update(numbers.astype("<i8").tobytes())
        if self.truths is not None:
            digest.update(self.truths.to_bytes())
        return digest.hexdigest()


# The attributes of `Examples` that have a value for each example.
_OF_EACH = ("places", "labels", "splits", "names", "groups", "truths", "credits")


def given_groups(texts: Iterable[str]) -> np.ndarray | None:
    """The groups of examples, texts [n], in one form of Unicode; None if no example has one."""
    found = np.array([*map(names.same_form, texts)], object)
    return found if (found != "").any() else None
