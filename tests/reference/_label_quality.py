"""Confident learning (Northcutt, Jiang and Chuang 2021), as cleanlab counts."""

import numpy as np

from tests.reference._rows import each_example, float64, valid

_ROUNDING = 1e-6


@each_example
def label_margins(scores, label):
    """The score of the label less the largest of the other scores."""
    return scores[label] - np.delete(scores, label).max()


def confident_classes(probabilities, thresholds):
    """The only class that reaches its threshold; the most probable one if several do; else -1."""
    probabilities = float64(probabilities)
    found = np.full(probabilities.shape[:-1], -1)
    for position in np.ndindex(found.shape):
        row = probabilities[position]
        reached = [j for j, p in enumerate(row) if p >= thresholds[j] - _ROUNDING]
        if not np.isnan(row).any() and reached:
            found[position] = reached[0] if len(reached) == 1 else row.argmax()
    return found


def confident_joint(probabilities, labels):
    """How many examples of each label belong to each class, at least 1 on the diagonal."""
    rows = float64(probabilities)
    rows, labels = rows.reshape(-1, rows.shape[-1]), np.ravel(labels)
    kept = [n for n, label in enumerate(labels) if valid(rows[n], label)]
    rows, labels = rows[kept], labels[kept]
    classes = range(rows.shape[-1])
    thresholds = [
        max(rows[labels == j, j].mean(), 2 * _ROUNDING) if (labels == j).any() else np.inf
        for j in classes
    ]
    found = confident_classes(rows, thresholds)
    joint = np.array([[((labels == i) & (found == j)).sum() for j in classes] for i in classes])
    return np.maximum(joint, np.eye(len(joint), dtype=int))
