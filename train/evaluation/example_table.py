"""Which examples are wrong: each with its label, its prediction and its set, by class and by pair.

It is written as three CSV files. For `errors.html` or `errors.csv` these are

- `errors.csv`: a row for each example, in the order of the examples.
- `errors.classes.csv`: a row for each class that has examples, the least covered first.
- `errors.confusions.csv`: a row for each pair of a label and another class that is predicted for
  it, the most frequent first.
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from train.data import splits
from train.data.sources.table import escaped
from train.evaluation.example_files import paths
from train.evaluation.predictions import Predictions, chunks
from train.evaluation.summaries import Sets
from train.foundation import files, names


@dataclass(frozen=True)
class Confusion:
    """A class that is predicted for examples of another class.

    Attributes:
        label: the class of the examples.
        predicted: the class that is predicted for them.
        examples: how many these are.
    """

    label: int
    predicted: int
    examples: int


@dataclass(frozen=True)
class ClassRow:
    """How well the examples of a class are recognised.

    Attributes:
        label: the class.
        examples: the number of its examples.
        top: the share of these whose label is among the K likeliest classes, by K.
        set_size: the mean size of their sets.
        coverage: the share of the sets that have the label.
        confusions: the classes that are predicted for them instead, the most frequent first.
    """

    label: int
    examples: int
    top: dict[int, float]
    set_size: float
    coverage: float
    confusions: tuple[Confusion, ...]


@dataclass(frozen=True)
class ExampleTable:
    """The examples that are evaluated, their predictions and their sets.

    Attributes:
        examples: the predictions.
        names: the names of the examples, [n].
        sets: whether the set of each example has its label, and its size.
        predicted: the likeliest class of each example, [n].
        highest: the probability of that class, [n]; for other scores, its score.
        of_label: the probability of the label, [n]; NaN for a class that is not known.
        class_names: the names of the classes, with those that are not known.
        ks: sizes of sets for the accuracies of the classes.
    """

    examples: Predictions
    names: np.ndarray
    sets: Sets
    predicted: np.ndarray
    highest: np.ndarray
    of_label: np.ndarray
    class_names: Sequence[str]
    ks: Sequence[int]

    @classmethod
    def of(
        cls, examples: Predictions, sets: Sets, class_names: Sequence[str], ks: Sequence[int]
    ) -> "ExampleTable":
        """The table of predictions and their sets."""
        parts = [
            _in_chunk(examples.scores[chunk], examples.labels[chunk])
            for chunk in chunks(examples.scores)
        ]
        predicted, highest, of_label = map(np.concatenate, zip(*parts, strict=True))
        names = examples.names_or_numbers()
        return cls(examples, names, sets, predicted, highest, of_label, class_names, ks)

    @cached_property
    def confusions(self) -> list[Confusion]:
        """All pairs of a label and another predicted class, the most frequent first."""
        wrong = np.flatnonzero(self.predicted != self.examples.labels)
        pairs = np.stack([self.examples.labels[wrong], self.predicted[wrong]])
        kinds, counts = np.unique(pairs, axis=1, return_counts=True)
        order = np.lexsort((kinds[1], kinds[0], -counts))
        found = zip(*kinds[:, order].tolist(), counts[order].tolist(), strict=True)
        return [Confusion(*one) for one in found]

    @cached_property
    def _counts(self) -> np.ndarray:
        """The number of examples of each class."""
        return np.bincount(self.examples.labels, minlength=self.examples.num_classes)

    @cached_property
    def classes(self) -> list[ClassRow]:
        """The classes that have examples: the least covered first, then the larger."""
        labels, counts = self.examples.labels, self._counts

        def means(values: np.ndarray) -> np.ndarray:
            sums = np.bincount(labels, weights=values, minlength=len(counts))
            return np.asarray(sums / np.maximum(counts, 1))

        top = {k: means(self.examples.ranks < k) for k in self.ks}
        sizes, coverages = means(self.sets.sizes), means(self.sets.of_labels)
        confused: dict[int, list[Confusion]] = {}
        for one in self.confusions:
            confused.setdefault(one.label, []).append(one)
        present = np.flatnonzero(counts)
        order = np.lexsort((-counts[present], coverages[present]))
        return [
            ClassRow(
                label,
                int(counts[label]),
                {k: float(shares[label]) for k, shares in top.items()},
                float(sizes[label]),
                float(coverages[label]),
                tuple(confused.get(label, ())),
            )
            for label in present[order].tolist()
        ]

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

    @property
    def _example_columns(self) -> tuple[str, ...]:
        groups = () if self.examples.groups is None else ("group",)
        return (
            *("name", *groups, "label", "predicted", "rank", "probability"),
            *("predicted_probability", "loss", "in_set", "set_size"),
        )

    def _example_rows(self) -> Iterator[dict[str, Any]]:
        found = self.examples
        groups = [""] * len(self.names) if found.groups is None else found.groups
        for index, (name, group) in enumerate(zip(self.names, groups, strict=True)):
            yield {
                "name": _text(name),
                **({} if found.groups is None else {"group": _text(group)}),
                "label": _text(self.class_names[found.labels[index]]),
                "predicted": _text(self.class_names[self.predicted[index]]),
                "rank": int(found.ranks[index]),
                "probability": _number(self.of_label[index]),
                "predicted_probability": _number(self.highest[index]),
                "loss": _number(found.loss[index]),
                "in_set": int(self.sets.of_labels[index]),
                "set_size": int(self.sets.sizes[index]),
            }

    @property
    def _class_columns(self) -> tuple[str, ...]:
        top = (f"top_{k}_accuracy" for k in self.ks)
        return (
            *("class", "examples", *top, "set_size", "coverage"),
            *("most_confused_with", "confused_examples"),
        )

    def write(self, path: Path) -> dict[str, Path]:
        """Writes the three CSV files.

        Args:
            path: a file; the three have its name, with other suffixes.

        Returns:
            The files, by what they have.
        """
        examples, classes, confusions = paths(path)
        _write(examples, self._example_columns, self._example_rows())
        _write(classes, self._class_columns, map(self._class_row, self.classes))
        _write(confusions, _OF_CONFUSION, map(self._confusion_row, self.confusions))
        return {"examples": examples, "classes": classes, "confusions": confusions}

    def _class_row(self, row: ClassRow) -> dict[str, Any]:
        first = row.confusions[0] if row.confusions else None
        return {
            "class": _text(self.class_names[row.label]),
            "examples": row.examples,
            **{f"top_{k}_accuracy": _number(share) for k, share in row.top.items()},
            "set_size": _number(row.set_size),
            "coverage": _number(row.coverage),
            "most_confused_with": "" if first is None else _text(self.class_names[first.predicted]),
            "confused_examples": 0 if first is None else first.examples,
        }

    def _confusion_row(self, pair: Confusion) -> dict[str, Any]:
        of_label = self._counts[pair.label]
        values = (
            _text(self.class_names[pair.label]),
            _text(self.class_names[pair.predicted]),
            pair.examples,
            _number(pair.examples / of_label),
        )
        return dict(zip(_OF_CONFUSION, values, strict=True))


_OF_CONFUSION = ("label", "predicted", "examples", "share_of_label")


def _in_chunk(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The likeliest class of each example, its score, and the score of the label."""
    rows, num_classes = np.arange(len(labels)), scores.shape[1]
    predicted = scores.argmax(axis=1)
    known = np.minimum(labels, num_classes - 1)
    of_label = np.where(labels < num_classes, scores[rows, known], np.float32(np.nan))
    return predicted, scores[rows, predicted], of_label


def _text(text: str) -> str:
    """A text as tables have it: in UTF-8, and with an apostrophe if it starts like a formula."""
    return escaped(names.in_utf8(text))


def _number(value: float) -> str:
    """A number with all digits of 32 bits; nothing if it is NaN."""
    return "" if math.isnan(value) else f"{value:.9g}"


def _write(path: Path, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    """Writes rows, one at a time."""
    with files.replacing(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text.flush()
        # The file is closed by what opened it.
        text.detach()
