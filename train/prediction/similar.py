"""The training examples of each class of a set that are most similar to an example."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import jax
import numpy as np

from train.classifiers import outliers
from train.classifiers.classifier import compute
from train.classifiers.trained import TrainedClassifier
from train.prediction import thumbnails
from train.prediction.entries import Entry
from train.prediction.thumbnails import Similar
from train.scores.scores import collect

# The first classes of a set that have similar examples.
MOST_CLASSES = 10
# Twice their size on the page, in pixels.
_LONGEST_SIDE = 160


def beside(entries: Iterable[Entry], classifier: TrainedClassifier, number: int) -> Iterator[Entry]:
    """The sets of single examples with similar training examples for their first classes.

    The features of all training examples are computed before the first set.

    Args:
        entries: the sets.
        classifier: the classifier.
        number: the similar examples of a class.

    Raises:
        UserError: the data set is not on this machine, or is not the one of the run.
    """
    found = TrainingFeatures(classifier)
    for entry in entries:
        if entry.inputs is None:
            yield entry
        else:
            query, chosen = found.direction(entry.inputs), entry.classes[:MOST_CLASSES]
            similar = tuple(found.nearest(label, query, number) for label in chosen)
            yield dataclasses.replace(entry, similar=similar)


class TrainingFeatures:
    """The directions of the features of all training examples of a classifier, class by class."""

    def __init__(self, classifier: TrainedClassifier) -> None:
        # A run on features that takes images was trained on rows.
        run = classifier.run
        train = run.load_dataset().train
        # So the features of a class are next to each other.
        self._places = np.argsort(train.labels, kind="stable")
        self._train = train.take(self._places)
        self._thumbnail = thumbnails.of_examples(self._train, _LONGEST_SIDE)
        self._directions = _compiled(classifier)
        of_training = self._directions if run is classifier else _compiled(run)
        rows = compute(of_training, self._train, "features of training examples")
        self._features = collect((np.asarray(row) for _, row in rows), len(train))
        edges = np.arange(len(classifier.classes.names) + 1)
        self._starts = np.searchsorted(self._train.labels, edges)

    def direction(self, given: np.ndarray) -> np.ndarray:
        """That of the features of an input."""
        return np.asarray(self._directions(given[None])[0])

    def nearest(self, label: int, query: np.ndarray, number: int) -> tuple[Similar, ...]:
        """The training examples of a class whose features have the smallest angles to a query."""
        start, end = self._starts[label : label + 2]
        cosines = self._features[start:end] @ query
        first = np.argsort(-cosines, kind="stable")[:number]
        return tuple(self._similar(int(start + one), float(cosines[one])) for one in first)

    def _similar(self, row: int, cosine: float) -> Similar:
        train = self._train
        is_named = train.names is not None or train.are_rows
        name = train.name(row) if is_named else f"training image {self._places[row]}"
        thumbnail = None if self._thumbnail is None else self._thumbnail(row)
        return Similar(name, cosine, thumbnail, train.credit(row))


def _compiled(classifier: TrainedClassifier) -> Callable[[np.ndarray], jax.Array]:
    """Inputs of the classifier to the directions of their features; features of 0 stay so."""
    features = classifier.features()
    return jax.jit(lambda inputs: outliers.directions(features(inputs)))
