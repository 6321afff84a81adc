"""Hits, and their means over examples, over classes, and over classes by number of examples."""

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
    """`p_y >= threshold` (2.32); NaN, or a label out of range, is a miss."""
    probabilities, labels = float64(probabilities), np.asarray(labels)
    hits = np.zeros(labels.shape, bool)
    for position in np.ndindex(labels.shape):
        row, label = probabilities[position], int(labels[position])
        hits[position] = 0 <= label < len(row) and row[label] >= float64(threshold)
    return hits


def _counted(hits, where):
    hits = np.asarray(hits, bool)
    return hits, np.ones(hits.shape, bool) if where is None else np.asarray(where, bool)


def _mean(values):
    return np.float64(np.mean(values)) if len(values) else np.float64(np.nan)


def accuracy(hits, where=None):
    """The share of hits among the examples that count; NaN if none does."""
    hits, counted = _counted(hits, where)
    return _mean(hits[counted])


def _class_accuracies(hits, labels, classes, where):
    hits, counted = _counted(hits, where)
    labels = np.asarray(labels)
    each = [hits[counted & (labels == label)] for label in classes]
    return [of_class.mean() for of_class in each if len(of_class)]


def macro_accuracy(hits, labels, *, num_classes, where=None):
    """The mean over the classes that occur of the share of hits in each; NaN if none occurs."""
    return _mean(_class_accuracies(hits, labels, range(num_classes), where))


def shot_groups(class_counts, *, few=20, many=100):
    """Which classes have few, some and many training examples (Table 4.5)."""
    counts = np.asarray(class_counts)
    return {
        "few": counts < few,
        "medium": (counts >= few) & (counts <= many),
        "many": counts > many,
    }


def shot_accuracy(hits, labels, *, class_counts, few=20, many=100, where=None):
    """Macro accuracies over the classes of each group."""
    return {
        name: _mean(_class_accuracies(hits, labels, np.flatnonzero(group), where))
        for name, group in shot_groups(class_counts, few=few, many=many).items()
    }
