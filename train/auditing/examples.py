"""The examples of all splits of a data set of features, as an audit takes them."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from train.data import grouping
from train.data.dataset import Dataset, DatasetSpec
from train.data.examples import Examples, Split


@dataclass(frozen=True)
class AuditedExamples:
    """Examples with features, in any order.

    Attributes:
        parts: the splits that have their features.
        places: the index of each in all splits, one after another, [n].
        labels: the classes, int32 [n].
        names: the names, texts [n].
        splits: the names of their splits, texts [n].
        groups: the names of their groups, texts [n]; None if they have none.
        class_names: the names of the classes.
        mean: the mean of each feature over the training rows, float32 [d].
        scale: what makes the rows have a mean square length of 1, float32 [d].
    """

    parts: tuple[Examples, ...]
    places: np.ndarray
    labels: np.ndarray
    names: np.ndarray
    splits: np.ndarray
    groups: np.ndarray | None
    class_names: tuple[str, ...]
    mean: np.ndarray
    scale: np.ndarray

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.labels)

    def take(self, chosen: np.ndarray) -> "AuditedExamples":
        """Some of the examples."""
        return dataclasses.replace(
            self,
            places=self.places[chosen],
            labels=self.labels[chosen],
            names=self.names[chosen],
            splits=self.splits[chosen],
            groups=None if self.groups is None else self.groups[chosen],
        )

    def rows(self, chosen: np.ndarray) -> np.ndarray:
        """The normalized features of some examples, float32 [m, d]."""
        places = self.places[chosen]
        found = np.empty((len(places), len(self.mean)), np.float32)
        start = 0
        for part in self.parts:
            here = np.flatnonzero((places >= start) & (places < start + len(part)))
            found[here] = part.rows(places[here] - start)
            start += len(part)
        return (found - self.mean) * self.scale

    def group_names(self) -> Iterator[str]:
        """The name of the group of each example; empty for an example that is in no group."""
        yield from [""] * len(self) if self.groups is None else self.groups


def of_dataset(dataset: Dataset, spec: DatasetSpec) -> AuditedExamples:
    """The examples of the three splits of a data set of features, which a spec has opened."""
    parts = (dataset.train, dataset.validation, dataset.test)
    words = [split.word for split in Split if split != Split.NONE]
    known = [part.groups for part in parts if part.groups is not None]
    mean, std = (
        np.array(of_spec if found is None else found, np.float32)
        for found, of_spec in ((dataset.mean, spec.mean), (dataset.std, spec.std))
    )
    found = AuditedExamples(
        parts=parts,
        places=np.arange(sum(map(len, parts))),
        labels=np.concatenate([part.labels for part in parts]),
        names=np.concatenate([_names(*one) for one in zip(parts, words, strict=True)]),
        splits=np.repeat(np.array(words, object), list(map(len, parts))),
        groups=np.concatenate(known) if len(known) == len(parts) else None,
        class_names=dataset.class_names,
        mean=mean,
        scale=1 / (std * np.float32(np.sqrt(len(std)))),
    )
    if found.groups is None:
        grouping.warn_of_likely(spec.name, found.names.tolist(), found.labels, "an array group")
    return found


def _names(part: Examples, word: str) -> np.ndarray:
    if part.names is not None or part.are_rows:
        return part.names_of(np.arange(len(part)))
    return np.array([f"{word}[{index}]" for index in range(len(part))], object)
