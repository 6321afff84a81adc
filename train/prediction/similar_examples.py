"""The training examples of each class of a set that are most similar to an example."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import jax
import numpy as np

from train.evaluation.stored_scores import CollectedScores
from train.prediction import example_thumbnails, known_examples
from train.prediction.class_sets import ClassSet, Similar, Unreadable
from train.prediction.trained import TrainedClassifier

# The first classes of a set that have similar examples.
MOST_CLASSES = 10
# Twice their size on the page, in pixels.
_LONGEST_SIDE = 160
# Examples that are compared together, and training examples whose features are read together.
_TOGETHER = 64
_READ_TOGETHER = 2048

_Set = TypeVar("_Set", bound=ClassSet)


class HaveInputs(Protocol):
    """Examples whose inputs of the network can be read again."""

    def inputs(
        self, classifier: TrainedClassifier, sets: Sequence[ClassSet]
    ) -> list[np.ndarray | None]:
        """The input of the network for each set; None for a file that cannot be read any more."""


def beside(
    entries: Iterable[_Set | Unreadable],
    examples: HaveInputs,
    classifier: TrainedClassifier,
    number: int,
) -> Iterator[_Set | Unreadable]:
    """The sets with similar training examples for their first classes.

    The features of all training examples are computed before the first set, and stay in a temporary
    file if there are many.

    Args:
        entries: the sets.
        examples: what they are sets of.
        classifier: the classifier.
        number: the similar examples of a class.

    Raises:
        UserError: the data set is not on this machine, or is not the one of the run.
    """
    found = TrainingFeatures(classifier)
    for batch in _batched(entries, _TOGETHER):
        sets = [entry for entry in batch if not isinstance(entry, Unreadable)]
        queries = found.features_of(examples.inputs(classifier, sets))
        similar = iter(found.nearest([one.classes[:MOST_CLASSES] for one in sets], queries, number))
        for entry in batch:
            if isinstance(entry, Unreadable):
                yield entry
            else:
                yield dataclasses.replace(entry, similar=next(similar))


def _batched(entries: Iterable[_Set | Unreadable], size: int) -> Iterator[list[_Set | Unreadable]]:
    iterator = iter(entries)
    while batch := [*itertools.islice(iterator, size)]:
        yield batch


class TrainingFeatures:
    """The directions of the features of all training examples that can be read.

    Args:
        classifier: the classifier.
    """

    def __init__(self, classifier: TrainedClassifier) -> None:
        # A run on features that takes images was trained on rows.
        of_run = classifier.of_run
        self._train = of_run.load_dataset().train
        self._thumbnail = example_thumbnails.of_split(
            self._train, of_run.spec.inputs, longest_side=_LONGEST_SIDE
        )
        self._example = of_run.spec.example
        self._directions = _compiled(classifier)
        of_training = self._directions if of_run is classifier else _compiled(of_run)
        collected, places = CollectedScores(len(self._train)), []
        for batch in known_examples.batches(self._train):
            mask = batch["mask"]
            collected.add(np.asarray(of_training(batch["images"]))[mask])
            places.append(batch["examples"][mask])
        self._features = collected.scores()
        # The place of each row in the split.
        self._places = np.concatenate(places)
        labels = self._train.labels[self._places]
        self._order = np.argsort(labels, kind="stable")
        self._starts = np.searchsorted(labels[self._order], np.arange(classifier.num_classes + 1))

    def features_of(self, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray | None]:
        """The directions of the features of at most 64 inputs."""
        given = [one for one in inputs if one is not None]
        if not given:
            return [None] * len(inputs)
        batch = np.zeros((_TOGETHER, *given[0].shape), given[0].dtype)
        batch[: len(given)] = given
        rows = iter(np.asarray(self._directions(batch)))
        return [None if one is None else next(rows) for one in inputs]

    def nearest(
        self,
        classes: Sequence[Sequence[int]],
        queries: Sequence[np.ndarray | None],
        number: int,
    ) -> list[tuple[tuple[Similar, ...], ...]]:
        """The most similar training examples of some classes, for each query and class.

        Args:
            classes: of each query.
            queries: the directions of the features; None for a query without similar examples.
            number: how many, if the class has so many.
        """
        # The features of a class are read once for all queries.
        asking: dict[int, dict[int, np.ndarray]] = {}
        for index, (chosen, query) in enumerate(zip(classes, queries, strict=True)):
            if query is not None:
                for label in chosen:
                    asking.setdefault(label, {})[index] = query
        found = {
            (index, label): similar
            for label, asked in asking.items()
            for index, similar in zip(
                asked, self._nearest_of(label, np.stack([*asked.values()]), number), strict=True
            )
        }
        return [
            () if query is None else tuple(found[index, label] for label in chosen)
            for index, (chosen, query) in enumerate(zip(classes, queries, strict=True))
        ]

    def _nearest_of(
        self, label: int, queries: np.ndarray, number: int
    ) -> list[tuple[Similar, ...]]:
        rows = self._order[self._starts[label] : self._starts[label + 1]]
        best = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        for start in range(0, len(rows), _READ_TOGETHER):
            part = rows[start : start + _READ_TOGETHER]
            cosines = np.hstack([best[0], queries @ self._features[part].T])
            places = np.hstack([best[1], np.broadcast_to(part, (len(queries), len(part)))])
            order = np.argsort(-cosines, axis=1, kind="stable")[:, :number]
            best = np.take_along_axis(cosines, order, 1), np.take_along_axis(places, order, 1)
        return [
            tuple(
                self._similar(int(self._places[row]), float(cosine))
                for cosine, row in zip(cosines, found, strict=True)
            )
            for cosines, found in zip(*best, strict=True)
        ]

    def _similar(self, place: int, cosine: float) -> Similar:
        thumbnail = None if self._thumbnail is None else self._thumbnail(place)
        return Similar(self._name(place), cosine, thumbnail, self._train.credit(place))

    def _name(self, place: int) -> str:
        train = self._train
        if train.names is not None or train.are_rows:
            return train.name(place)
        return f"training {self._example} {place}"


def _compiled(classifier: TrainedClassifier) -> Callable[[np.ndarray], jax.Array]:
    """Inputs of the classifier to the directions of their features below the head."""
    features = classifier.features()
    return jax.jit(lambda inputs: known_examples.directions(features(inputs)))
