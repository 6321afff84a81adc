"""Hits and sizes, and their means: over examples, over classes, and over classes by number."""

from typing import NamedTuple

import numpy as np

from tests.reference._rows import float64, valid


def label_ranks(scores, labels):
    """How many classes come before the label: a larger score, or an equal one and a lower index
    (2.14); all of them if there is a NaN in the row, or the label is out of range.
    """
    scores, labels = float64(scores), np.asarray(labels)
    ranks = np.full(labels.shape, scores.shape[-1])
    for position in np.ndindex(labels.shape):
        row, label = scores[position], int(labels[position])
        if valid(row, label):
            ranks[position] = (row > row[label]).sum() + (row[:label] == row[label]).sum()
    return ranks


def top_k_hits(scores, labels, *, k):
    """Whether fewer than k classes come before the label."""
    return label_ranks(scores, labels) < k


def threshold_hits(probabilities, labels, threshold):
    """`p_y >= threshold` (2.32); a miss beside a NaN, or if the label is out of range."""
    probabilities, labels = float64(probabilities), np.asarray(labels)
    hits = np.zeros(labels.shape, bool)
    for position in np.ndindex(labels.shape):
        row, label = probabilities[position], int(labels[position])
        hits[position] = valid(row, label) and row[label] >= float64(threshold)
    return hits


def set_sizes(chosen):
    """How many classes each set has."""
    return np.array([sum(row) for row in np.asarray(chosen).tolist()])


class Tally(NamedTuple):
    """A sum and a count, or those of each class."""

    total: np.ndarray
    count: np.ndarray  # type: ignore[assignment]

    def mean(self):
        """All sums over all counts."""
        return _quotient(np.sum(self.total), np.sum(self.count))

    def macro_mean(self, classes=slice(None)):
        """The mean of the quotients of those of some classes that occur."""
        pairs = zip(self.total[classes], self.count[classes], strict=True)
        quotients = [total / count for total, count in pairs if count]
        return _quotient(sum(quotients), len(quotients))


def _quotient(total, count):
    return total / count if count else np.float64(np.nan)


def tally(values, where=None, *, weights=None):
    """The weighted sum and the weights of the examples that count, one after the other."""
    total = count = 0.0
    for place, value in np.ndenumerate(float64(values)):
        weight = 1.0 if weights is None else float64(weights)[place]
        if weight and (where is None or where[place]):
            total, count = total + weight * value, count + weight
    return Tally(np.float64(total), np.float64(count))


def tally_by_class(values, labels, *, num_classes, where=None, weights=None):
    """The same among the examples of each class."""
    included = np.ones(np.shape(labels), bool) if where is None else np.asarray(where)
    tallies = [
        tally(values, included & (np.asarray(labels) == label), weights=weights)
        for label in range(num_classes)
    ]
    return Tally(*np.array(tallies).T)


def shot_groups(class_counts, *, few=20, many=100):
    """Which classes have few, some and many training examples (Table 4.5)."""
    counts = np.asarray(class_counts)
    return {
        "few": counts < few,
        "medium": (counts >= few) & (counts <= many),
        "many": counts > many,
    }
