"""Sets of classes for names that are given on the command line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.data import characters
from train.data.own import group_names
from train.foundation.errors import UserError
from train.foundation.names import code_points, is_visible
from train.prediction.batched_sets import BatchedExamples
from train.prediction.class_sets import ClassSet
from train.prediction.trained import TrainedClassifier
from train.sharing import kinds


@dataclass(frozen=True, kw_only=True)
class NameSet(ClassSet):
    """The set of a name.

    Attributes:
        name: the name, as it was given.
    """

    name: str

    @property
    def origin(self) -> dict[str, Any]:
        """The name."""
        return {"name": self.name}

    @property
    def title(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True)
class Names(BatchedExamples[str, NameSet]):
    """Names to make sets for.

    Attributes:
        names: the names, as they were given.
    """

    names: Sequence[str]
    files: tuple[Path, ...] = ()
    described = "what --names is read from"
    kind = NameSet

    def __len__(self) -> int:
        return len(self.names)

    def check(self, classifier: TrainedClassifier) -> None:
        """Refuses a classifier that takes no names.

        Raises:
            UserError: it is one.
        """
        classifier.check_takes("names")

    @property
    def digest(self) -> str:
        """A hash of the names."""
        return kinds.digest([*self.names])

    def make_set(self, example: str, members: dict[str, Any]) -> NameSet:
        """The set of a name."""
        return NameSet(name=example, **members)

    def find_groups(self, grammar: str) -> tuple[str, ...]:
        """The group of each name by the grammar of `group_names`.

        Raises:
            UserError: the grammar is wrong, or finds no group.
        """
        return group_names.find(grammar, self.names, field="--group", may_be_one=True)

    def describe(self, indices: Sequence[int]) -> dict[str, Any]:
        """Some names, as fields of a line of JSON."""
        return {"example_names": [self.names[index] for index in indices]}

    def batches(
        self, indices: Sequence[np.ndarray], size: int
    ) -> Iterator[tuple[Sequence[str], np.ndarray]]:
        """The names of each batch, and their characters with empty names up to its size."""
        for batch in indices:
            names = [self.names[index] for index in batch]
            normalized = [characters.normalized(name) for name in names]
            yield names, characters.to_rows(normalized + [""] * (size - len(names)))


def read(names: Sequence[str]) -> Names:
    """The names of --names.

    Raises:
        UserError: there are no names, or one is empty.
    """
    stripped = [name.strip() for name in names]
    if not stripped or not all(map(characters.normalized, stripped)):
        raise UserError(
            "--names must be names with commas between; "
            + ("one" if stripped else "it")
            + " is empty"
        )
    for name in stripped:
        if not is_visible(name):
            raise UserError(
                field="--names",
                must_be="names with a visible character",
                got=code_points(name),
            )
    return Names(stripped)
