"""Sets of classes for observations: groups of examples, such as the photographs of one plant."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from absl import logging

from train.evaluation import example_groups
from train.evaluation.observations import Combination, Pools
from train.foundation.printable import printable
from train.prediction import class_sets, shares
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import ClassSet, Scored, Unreadable
from train.prediction.thumbnails import Photograph
from train.prediction.trained import TrainedClassifier

# Examples whose probabilities are added at once, and observations whose sets are made at once.
_BATCH = 64
# Examples of observations that are computed together. Observations are not divided: the last one
# may have more.
_EXAMPLES_TOGETHER = 1024
# An observation may have thousands of photographs; a page shows some.
_MOST_THUMBNAILS = 24


class MakesSets(Protocol):
    """Examples or observations."""

    def __len__(self) -> int:
        """The number of sets."""

    def make_sets(
        self, classifier: TrainedClassifier, rule: CalibratedRule, *, thumbnails: bool
    ) -> Iterator[ClassSet | Unreadable]:
        """The sets, in the order of the examples."""


class Examples(MakesSets, Protocol):
    """Images or rows of features, which can be grouped."""

    @property
    def files(self) -> Sequence[Path]:
        """The files that they are read from."""

    @property
    def described(self) -> str:
        """What messages call one of these files."""

    def check(self, classifier: TrainedClassifier) -> None:
        """Refuses a classifier that does not take them."""

    def take(self, places: np.ndarray) -> "Examples":
        """Some of them."""

    def find_groups(self, grammar: str) -> np.ndarray:
        """The group of each example, texts [n]; "" for an example by itself."""

    def describe(self, indices: Sequence[int]) -> dict[str, Any]:
        """Some examples, as fields of a line of JSON, which the set itself does not have."""

    def score(
        self, classifier: TrainedClassifier, orders: Sequence[np.ndarray], thumbnails: np.ndarray
    ) -> Iterator[Scored | Unreadable]:
        """The probabilities of the examples at some indices; each array starts a new batch."""


@dataclass(frozen=True, kw_only=True)
class ObservationSet(ClassSet):
    """The set of an observation.

    Attributes:
        group: the name of the group; None for an example that is a group of its own.
        examples: those that the set is made from, as fields of a line of JSON.
        number: how many these are.
        shown: those that are photographs.
        not_read: further photographs, which cannot be read.
    """

    group: str | None
    examples: dict[str, Any]
    number: int
    shown: tuple[Photograph, ...]
    not_read: tuple[Unreadable, ...]

    @property
    def origin(self) -> dict[str, Any]:
        """The group and its examples."""
        unreadable = [{"path": str(one.path), "error": one.error} for one in self.not_read]
        return {
            "group": self.group,
            **self.examples,
            **({"unreadable": unreadable} if unreadable else {}),
        }

    @property
    def title(self) -> str:
        """The name of the group, or else of its only example."""
        if self.group is not None:
            return self.group
        if self.shown:
            return self.shown[0].path.name
        (first, *_) = next(reversed(self.examples.values()))
        return str(first)

    @property
    def photographs(self) -> tuple[Photograph, ...]:
        """The photographs that the set is made from."""
        return self.shown

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """Photographs that cannot be read."""
        return self.not_read

    @property
    def num_examples(self) -> int:
        """The number of examples, with those that cannot be read."""
        return self.number + len(self.not_read)


@dataclass(frozen=True)
class Observations:
    """Observations to make sets for.

    Attributes:
        examples: their examples.
        names: the names of the groups, in the order of their first examples.
        of_examples: the place of the group of each example among the names.
    """

    examples: Examples
    names: Sequence[str]
    of_examples: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def make_sets(
        self, classifier: TrainedClassifier, rule: CalibratedRule, *, thumbnails: bool
    ) -> Iterator[ObservationSet | Unreadable]:
        """The set of each observation, in the order of their first examples.

        Few photographs are in memory at a time, however many an observation has. If no photograph
        of an observation can be read, its files come one after the other.

        Args:
            classifier: the classifier.
            rule: the rule that makes the sets; it knows how examples are combined.
            thumbnails: whether to make thumbnails, of the first 24 photographs of an observation.
        """
        most = int(np.bincount(self.of_examples).max())
        if rule.most_combined is not None and most > rule.most_combined:
            logging.warning(
                "an observation has %s examples, and those that thresholds are calibrated on have "
                "at most %s: the promise is for observations like them",
                f"{most:,}",
                f"{rule.most_combined:,}",
            )
        order = np.argsort(self.of_examples, kind="stable")
        sizes = np.bincount(self.of_examples)
        starts = np.cumsum(sizes) - sizes
        is_shown = np.zeros(len(order), bool)
        is_shown[order] = np.arange(len(order)) - np.repeat(starts, sizes) < _MOST_THUMBNAILS
        # The indices of the examples of each chunk, observation by observation.
        chunks = np.split(order, _bounds(sizes))
        choose = jax.jit(rule.answer)
        scored = self.examples.score(classifier, chunks, is_shown & np.bool_(thumbnails))
        for chunk in chunks:
            of_chunk = itertools.islice(scored, len(chunk))
            pooled = self._pool(classifier, rule, zip(chunk.tolist(), of_chunk, strict=True))
            yield from self._make_chunk(pooled, choose, rule)

    def _make_chunk(
        self, every: "Iterator[_Pooled]", choose: Any, rule: CalibratedRule
    ) -> Iterator[ObservationSet | Unreadable]:
        """The sets of the observations of a chunk."""
        pending: list[_Pooled | Unreadable] = []
        for pooled in every:
            pending += pooled.not_read if pooled.probabilities is None else [pooled]
            if len(pending) >= _BATCH:
                yield from self._make_batch(pending, choose, rule)
                pending = []
        yield from self._make_batch(pending, choose, rule)

    def _pool(
        self,
        classifier: TrainedClassifier,
        rule: CalibratedRule,
        scored: "Iterator[tuple[int, Scored | Unreadable]]",
    ) -> "Iterator[_Pooled]":
        """Each observation with its probabilities, of examples that follow one another."""
        assert rule.combination is not None
        for group, members in itertools.groupby(scored, lambda one: int(self.of_examples[one[0]])):
            pooled = _Pooled(self.names[group], rule.combination, classifier.num_classes)
            for index, example in members:
                pooled.add(index, example)
            pooled.finish()
            yield pooled

    def _make_batch(
        self, pending: "Sequence[_Pooled | Unreadable]", choose: Any, rule: CalibratedRule
    ) -> Iterator[ObservationSet | Unreadable]:
        """The sets of some observations, which are made at once."""
        pooled = (one for one in pending if isinstance(one, _Pooled))
        rows = [one.probabilities for one in pooled if one.probabilities is not None]
        if rows:
            # One shape, for which the rule is compiled once.
            padded = np.stack(rows + rows[:1] * (_BATCH - len(rows)))
            answer = [np.asarray(output) for output in choose(padded)]
        places = itertools.count()
        for one in pending:
            if isinstance(one, Unreadable):
                yield one
                continue
            assert one.probabilities is not None
            yield ObservationSet(
                group=one.name or None,
                examples=self.examples.describe(one.indices),
                number=len(one.indices),
                shown=tuple(one.photographs),
                not_read=tuple(one.not_read),
                **class_sets.members(one.probabilities, answer, next(places), rule),
            )


def _bounds(sizes: np.ndarray) -> list[int]:
    """The ends of all chunks of observations but the last, by the numbers of their examples."""
    bounds, start, end = [], 0, 0
    for size in sizes.tolist():
        if end - start >= _EXAMPLES_TOGETHER:
            bounds.append(end)
            start = end
        end += size
    return bounds


class _Pooled:
    """An observation whose examples are added one after the other."""

    def __init__(self, name: str, combination: Combination, num_classes: int) -> None:
        self.name = name
        self.indices: list[int] = []
        self.photographs: list[Photograph] = []
        self.not_read: list[Unreadable] = []
        self.probabilities: np.ndarray | None = None
        self._pools = Pools(combination, 1, num_classes)
        self._rows: list[np.ndarray] = []

    def add(self, index: int, example: Scored | Unreadable) -> None:
        """Adds an example, or a photograph that cannot be read."""
        if isinstance(example, Unreadable):
            self.not_read.append(example)
            return
        self.indices.append(index)
        if example.photograph is not None:
            self.photographs.append(example.photograph)
        self._rows.append(example.probabilities)
        if len(self._rows) == _BATCH:
            self._add_rows()

    def finish(self) -> None:
        """Computes the probabilities, if there is an example."""
        if self._rows:
            self._add_rows()
        if self.indices:
            self.probabilities = self._pools.scores()[0].astype(np.float32)

    def _add_rows(self) -> None:
        self._pools.add(np.zeros(len(self._rows), np.int64), np.stack(self._rows))
        self._rows = []


def group(examples: Examples, grammar: str, share: slice = shares.ALL) -> Observations:
    """The observations that a grammar makes of examples, or a share of them.

    Raises:
        UserError: the grammar is wrong, or finds no group; or the share has no observation.
    """
    names, of_examples = example_groups.numbered(examples.find_groups(grammar))
    if len(names) == 1 and len(examples) > 1:
        logging.warning(
            "--group: '%s' makes all %s examples one observation, %s",
            grammar,
            f"{len(examples):,}",
            printable(names[0]),
        )
    chosen = shares.places(share, len(names))
    places = np.flatnonzero(np.isin(of_examples, chosen))
    numbers = np.searchsorted(chosen, of_examples[places])
    return Observations(examples.take(places), names[chosen].tolist(), numbers)
