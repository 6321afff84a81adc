"""Which examples are wrong: each with its label, its prediction and its set, by class and by pair.

It is written as three CSV files. For `errors.html` or `errors.csv` these are

- `errors.csv`: a row for each example, in the order of the examples.
- `errors.classes.csv`: a row for each class that has examples, the least covered first.
- `errors.confusions.csv`: a row for each pair of a label and another class that is predicted for
  it, the most frequent first.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from train.data import splits
from train.data.sources.table import encode_rows
from train.foundation import files
from train.reports.rows import Measured, measure
from train.reports.rules import SetRule
from train.scores.scores import Scores


@dataclass(frozen=True)
class Confusion:
    """A class that is predicted for a number of examples of another class, the label."""

    label: int
    predicted: int
    examples: int


def confusions(labels: np.ndarray, predicted: np.ndarray) -> list[Confusion]:
    """All pairs of a label and another predicted class, the most frequent first."""
    wrong = np.flatnonzero(predicted != labels)
    kinds, counts = np.unique(
        np.stack([labels[wrong], predicted[wrong]]), axis=1, return_counts=True
    )
    order = np.lexsort((kinds[1], kinds[0], -counts))
    found = zip(*kinds[:, order].tolist(), counts[order].tolist(), strict=True)
    return [Confusion(*one) for one in found]


@dataclass(frozen=True, eq=False)
class ExampleTable:
    """The examples that are evaluated, their predictions and their sets.

    Attributes:
        examples: the scores.
        sets: the sets of a rule.
        predicted: the likeliest class of each example, [n].
        highest: the score of that class, [n].
        of_label: the score of the label, [n]; NaN for a class that is not known.
        ks: sizes of sets for the accuracies of the classes.
    """

    examples: Scores
    sets: Measured
    predicted: np.ndarray
    highest: np.ndarray
    of_label: np.ndarray
    ks: Sequence[int]

    @classmethod
    def of(cls, examples: Scores, rule: SetRule, ks: Sequence[int]) -> "ExampleTable":
        """The table of examples and their sets by a fitted rule."""
        predicted = examples.map(lambda part: part.argmax(axis=1))
        highest = examples.map(_scores_of, predicted)
        of_label = examples.map(_scores_of, np.where(examples.known, examples.labels, 0))
        of_label = np.where(examples.known, of_label, np.float32(np.nan))
        return cls(examples, measure(examples, rule), predicted, highest, of_label, ks)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, with those that are not known."""
        return self.examples.class_names

    @cached_property
    def names(self) -> np.ndarray:
        """The names of the examples, [n]."""
        return self.examples.names_or_numbers()

    @cached_property
    def confusions(self) -> list[Confusion]:
        """All pairs of a label and another predicted class, the most frequent first."""
        return confusions(self.examples.labels, self.predicted)

    @cached_property
    def classes(self) -> list[dict[str, Any]]:
        """A row for each class that has examples: the least covered first, then the larger."""
        labels, number = self.examples.labels, self.examples.num_classes
        counts = np.bincount(labels, minlength=number)

        def means(values: np.ndarray) -> np.ndarray:
            sums = np.bincount(labels, weights=values, minlength=number)
            return np.asarray(sums / np.maximum(counts, 1))

        columns = {f"top_{k}_accuracy": means(self.examples.ranks < k) for k in self.ks}
        columns |= {"set_size": means(self.sets.sizes), "coverage": means(self.sets.of_labels)}
        # The most frequent of each class is last here.
        confused = {one.label: one for one in reversed(self.confusions)}
        present = np.flatnonzero(counts)
        rows = []
        for label in present[np.lexsort((-counts[present], columns["coverage"][present]))].tolist():
            most = confused.get(label)
            rows.append(
                {
                    "class": self.class_names[label],
                    "examples": int(counts[label]),
                    **{name: float(values[label]) for name, values in columns.items()},
                    "most_confused_with": "" if most is None else self.class_names[most.predicted],
                    "confused_examples": 0 if most is None else most.examples,
                }
            )
        return rows

    def confusion_matrix(self, classes: Sequence[int]) -> np.ndarray:
        """How many examples of each of some classes are predicted to be each of these, [c, c]."""
        # The other classes are together in the last place.
        number = len(classes) + 1
        place = np.full(self.examples.num_classes, number - 1)
        place[[*classes]] = np.arange(number - 1)
        pairs = place[self.examples.labels] * number + place[self.predicted]
        return np.bincount(pairs, minlength=number**2).reshape(number, number)[:-1, :-1]

    def worst(self, most_by_loss: int, most: int) -> np.ndarray:
        """The examples that a page shows, by decreasing loss.

        The first are the examples of the largest loss. Then each class in turn adds its example of
        the largest loss whose label is outside its set, so that no class hides the others.

        Args:
            most_by_loss: how many there are of the largest loss.
            most: how many there are at most.
        """
        # Classes that are not known have no loss.
        loss = np.nan_to_num(self.examples.loss.astype(np.float64), nan=-np.inf, posinf=np.inf)
        order = np.argsort(-loss, kind="stable")
        first = order[:most_by_loss]
        rest = order[most_by_loss:]
        rest = rest[~self.sets.of_labels[rest]]
        place = splits.position_in_class(self.examples.labels[rest], np.arange(len(rest)))
        added = rest[np.argsort(place, kind="stable")][: most - len(first)]
        chosen = np.concatenate([first, added])
        return chosen[np.argsort(-loss[chosen], kind="stable")]

    def write(self, path: Path) -> dict[str, Path]:
        """Writes the three CSV files.

        Args:
            path: a file; the three have its name, with other suffixes.

        Returns:
            The files, by what they have.
        """
        tables = {
            "examples": (".csv", self._example_rows()),
            "classes": (
                ".classes.csv",
                [[*self.classes[0]], *(row.values() for row in self.classes)],
            ),
            "confusions": (".confusions.csv", self._confusion_rows()),
        }
        written = {what: path.with_suffix(suffix) for what, (suffix, _) in tables.items()}
        for what, (_, rows) in tables.items():
            files.write_whole(written[what], encode_rows(map(_cell, row) for row in rows))
        return written

    def _example_rows(self) -> Iterator[Sequence[Any]]:
        found, names = self.examples, np.array(self.class_names, object)
        columns = {
            "name": self.names,
            **({} if found.groups is None else {"group": found.groups}),
            "label": names[found.labels],
            "predicted": names[self.predicted],
            "rank": found.ranks,
            "probability": self.of_label,
            "predicted_probability": self.highest,
            "loss": found.loss,
            "in_set": self.sets.of_labels.astype(int),
            "set_size": self.sets.sizes,
        }
        yield [*columns]
        yield from zip(*columns.values(), strict=True)

    def _confusion_rows(self) -> Iterator[Sequence[Any]]:
        names, counts = self.class_names, np.bincount(self.examples.labels)
        yield "label", "predicted", "examples", "share_of_label"
        for one in self.confusions:
            share = one.examples / counts[one.label]
            yield names[one.label], names[one.predicted], one.examples, share


def _scores_of(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The score of a class of each example, [n]."""
    found: np.ndarray = scores[np.arange(len(classes)), classes]
    return found


def _cell(value: Any) -> str | int:
    """A text; a number with all digits of 32 bits, or nothing if it is NaN."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    return "" if math.isnan(value) else f"{value:.9g}"
