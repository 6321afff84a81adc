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
from train.foundation import files, names
from train.reports.measuring import Measured, measure
from train.reports.rules import SetRule
from train.scores.scores import Scores

_OF_CONFUSION = ("label", "predicted", "examples", "share_of_label")


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

    def confusion_matrix(self, classes: Sequence[int]) -> np.ndarray:
        """How many examples of each of some classes are predicted to be each of these, [c, c]."""
        place = np.full(self.examples.num_classes, -1)
        place[[*classes]] = np.arange(len(classes))
        labels, predicted = place[self.examples.labels], place[self.predicted]
        counted = (labels >= 0) & (predicted >= 0)
        found = np.zeros((len(classes), len(classes)), np.int64)
        np.add.at(found, (labels[counted], predicted[counted]), 1)
        return found

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
        written = paths(path)
        _write(written["examples"], self._example_rows())
        _write(written["classes"], map(self._class_row, self.classes))
        _write(written["confusions"], map(self._confusion_row, self.confusions), _OF_CONFUSION)
        return written

    @cached_property
    def _counts(self) -> np.ndarray:
        """The number of examples of each class."""
        return np.bincount(self.examples.labels, minlength=self.examples.num_classes)

    def _example_rows(self) -> Iterator[dict[str, Any]]:
        found = self.examples
        for index, name in enumerate(self.names):
            yield {
                "name": _text(name),
                **({} if found.groups is None else {"group": _text(found.groups[index])}),
                "label": _text(self.class_names[found.labels[index]]),
                "predicted": _text(self.class_names[self.predicted[index]]),
                "rank": int(found.ranks[index]),
                "probability": _number(self.of_label[index]),
                "predicted_probability": _number(self.highest[index]),
                "loss": _number(found.loss[index]),
                "in_set": int(self.sets.of_labels[index]),
                "set_size": int(self.sets.sizes[index]),
            }

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
        values = (
            _text(self.class_names[pair.label]),
            _text(self.class_names[pair.predicted]),
            pair.examples,
            _number(pair.examples / self._counts[pair.label]),
        )
        return dict(zip(_OF_CONFUSION, values, strict=True))


def paths(path: Path) -> dict[str, Path]:
    """The three files for one of them, or for a page, by what they have.

    Examples:
        >>> [file.name for file in paths(Path("errors.html")).values()]
        ['errors.csv', 'errors.classes.csv', 'errors.confusions.csv']
    """
    stem = path.name.removesuffix(path.suffix)
    suffixes = {"examples": "", "classes": ".classes", "confusions": ".confusions"}
    return {what: path.with_name(f"{stem}{suffix}.csv") for what, suffix in suffixes.items()}


def _scores_of(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The score of a class of each example, [n]."""
    found: np.ndarray = scores[np.arange(len(classes)), classes]
    return found


def _text(text: str) -> str:
    """A text as tables have it: in UTF-8, and with an apostrophe if it starts like a formula."""
    return escaped(names.in_utf8(text))


def _number(value: float) -> str:
    """A number with all digits of 32 bits; nothing if it is NaN."""
    return "" if math.isnan(value) else f"{value:.9g}"


def _write(path: Path, rows: Iterable[dict[str, Any]], columns: Sequence[str] = ()) -> None:
    """Writes rows, one at a time; by default with the columns of the first."""
    rows = iter(rows)
    first = next(rows, None)
    with files.replacing(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        writer = csv.DictWriter(text, columns or [*(first or ())], lineterminator="\n")
        writer.writeheader()
        if first is not None:
            writer.writerow(first)
        writer.writerows(rows)
        text.flush()
        # The file is closed by what opened it.
        text.detach()
