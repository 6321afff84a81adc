"""Sets of classes for names that are given on the command line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.data import characters
from train.data.own import group_names
from train.foundation.errors import UserError
from train.prediction import batching, class_sets, inference
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import ClassSet, Scored
from train.prediction.trained import TrainedClassifier

_LARGEST_BATCH = 256


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
class Names:
    """Names to make sets for.

    Attributes:
        names: the names, as they were given.
    """

    names: Sequence[str]
    files: tuple[Path, ...] = ()
    described = "what --names is read from"

    def __len__(self) -> int:
        return len(self.names)

    def check(self, classifier: TrainedClassifier) -> None:
        """Refuses a classifier that takes no names.

        Raises:
            UserError: it is one.
        """
        classifier.check_takes("names")

    def make_sets(
        self, classifier: TrainedClassifier, rule: CalibratedRule, *, thumbnails: bool
    ) -> Iterator[NameSet]:
        """The set of each name, in their order.

        The batch size is 256, or less if there are fewer names. The last bits of a probability may
        depend on it.

        Args:
            classifier: the classifier.
            rule: the rule that makes the sets.
            thumbnails: not used for names.
        """
        del thumbnails
        batches = inference.infer_batches(classifier, rule, self._batches(self.names))
        for names, probabilities, answer in batches:
            for index, name in enumerate(names):
                of_set = class_sets.members(probabilities[index], answer, index, rule)
                yield NameSet(name=name, **of_set)

    def find_groups(self, grammar: str) -> tuple[str, ...]:
        """The group of each name by the grammar of `group_names`.

        Raises:
            UserError: the grammar is wrong, or finds no group.
        """
        return group_names.find(grammar, self.names, field="--group", may_be_one=True)

    def describe(self, indices: Sequence[int]) -> dict[str, Any]:
        """Some names, as fields of a line of JSON."""
        return {"names": [self.names[index] for index in indices]}

    def score(
        self, classifier: TrainedClassifier, order: np.ndarray, thumbnails: np.ndarray
    ) -> Iterator[Scored]:
        """The probabilities of the names at some indices, in their order; without thumbnails."""
        del thumbnails
        batches = self._batches([self.names[index] for index in order])
        for names, probabilities in inference.infer_scores(classifier, batches):
            yield from map(Scored, probabilities[: len(names)])

    def _batches(self, given: Sequence[str]) -> Iterator[tuple[Sequence[str], np.ndarray]]:
        """The names of each batch, and their characters with empty names up to its size."""
        size = batching.batch_size(len(given), _LARGEST_BATCH)
        for start in range(0, len(given), size):
            names = given[start : start + size]
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
    return Names(stripped)
