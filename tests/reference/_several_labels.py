"""Metrics of examples with several labels, of votes, and of new classes: sums by definition."""

import numpy as np

from tests.reference._metrics import Tally
from tests.reference._rows import float64


def expected_hits(chosen, plausibilities):
    """The plausibility of the classes in each set."""
    return (float64(chosen) * float64(plausibilities)).sum(axis=-1)


def _overlaps(chosen, targets):
    chosen, targets = np.asarray(chosen, bool), float64(targets) == 1
    return (chosen & targets).sum(axis=-1), chosen.sum(axis=-1), targets.sum(axis=-1)


def example_f1(chosen, targets):
    """`2 |S and Y| / (|S| + |Y|)`; 1 where both are empty."""
    both, sizes, numbers = _overlaps(chosen, targets)
    return np.where(sizes + numbers > 0, 2 * both / np.maximum(sizes + numbers, 1), 1.0)


def label_coverage(chosen, targets):
    """`|S and Y| / |Y|`; 1 without labels."""
    both, _, numbers = _overlaps(chosen, targets)
    return np.where(numbers > 0, both / np.maximum(numbers, 1), 1.0)


def false_negative_rates(probabilities, targets, *, thresholds):
    """One minus the coverage of each threshold's sets; NaN beside a NaN."""
    values, limits = float64(probabilities), float64(thresholds)
    rates = np.stack([1 - label_coverage(values >= t, targets) for t in limits], axis=-1)
    return np.where(np.isnan(values).any(axis=-1, keepdims=True), np.nan, rates)


def _weights(shape, where, weights):
    counts = np.ones(shape) if weights is None else float64(weights)
    return counts if where is None else np.where(where, counts, 0.0)


def tally_f1(chosen, targets, *, where=None, weights=None):
    """Of each class: twice the examples with it in both, and those in a set plus in a label."""
    chosen, targets = np.asarray(chosen, bool), float64(targets) == 1
    counts = _weights(chosen.shape[:-1], where, weights)
    hits, found, there = (
        np.array([counts[mask[..., label]].sum() for label in range(chosen.shape[-1])])
        for mask in (chosen & targets, chosen, targets)
    )
    return Tally(2 * hits, found + there)


def mean_average_precision(scores, targets, *, where=None, weights=None):
    """The mean over classes of the mean, over the examples of the class, of the precision there."""
    scores, targets = float64(scores), float64(targets) == 1
    counts = _weights(scores.shape[:-1], where, weights).ravel()
    scores, targets = (array.reshape(-1, array.shape[-1]) for array in (scores, targets))
    means = []
    for values, labels in zip(scores.T, targets.T, strict=True):
        total, sum_of_class = (counts * labels).sum(), 0.0
        for value, label, count in zip(values, labels, counts, strict=True):
            above = counts * (values >= value)
            if label and count > 0:
                sum_of_class += count * (above * labels).sum() / above.sum()
        if total > 0:
            means.append(sum_of_class / total)
    return np.mean(means)


def open_set_accuracy(hits, says_new, is_new, *, where=None, weights=None):
    """Means over known, over new and over all examples."""
    hits, says, new = (np.asarray(mask, bool) for mask in (hits, says_new, is_new))
    counts = _weights(hits.shape, where, weights)

    def mean(values, mask):
        return (counts * mask * values).sum() / (counts * mask).sum()

    return {
        "known": mean(hits, ~new),
        "new": mean(says, new),
        "known_as_new": mean(says, ~new),
        "all": mean(np.where(new, says, hits), np.ones(new.shape)),
    }


def _share_above(scores, first, second):
    """How often the first of two examples, drawn by their masses, has the larger score."""
    scores = float64(scores)
    wins = (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)
    return first @ wins @ second / second.sum()


def auroc(scores, positives, *, where=None, weights=None):
    """All pairs of a positive and a negative example."""
    positives = np.asarray(positives, bool).ravel()
    counts = _weights(np.shape(scores), where, weights).ravel()
    return _share_above(np.ravel(scores), counts * positives, counts * ~positives) / (
        (counts * positives).sum()
    )


def oscr_area(confidences, hits, is_new, *, where=None, weights=None):
    """All pairs of an example of a known class and one of a new class."""
    hits, new = np.asarray(hits, bool).ravel(), np.asarray(is_new, bool).ravel()
    counts = _weights(np.shape(is_new), where, weights).ravel()
    right = counts * (hits & ~new)
    return _share_above(np.ravel(confidences), right, counts * new) / (counts * ~new).sum()


def oscr_curve(confidences, hits, is_new, *, where=None, weights=None):
    """Both rates at each confidence, from the largest down; NaN beside a NaN."""
    values = float64(confidences).ravel()
    hits, new = np.asarray(hits, bool).ravel(), np.asarray(is_new, bool).ravel()
    counts = _weights(np.shape(is_new), where, weights).ravel()
    points = []
    if np.isnan(values[counts > 0]).any():
        return np.full((2, len(values) + 1), np.nan)
    # No confidence reaches the first one.
    for value in (np.nan, *np.sort(np.where(counts == 0, 0.0, values))[::-1]):
        reached = counts * (values >= value)
        points.append(
            (
                (reached * new).sum() / (counts * new).sum(),
                (reached * (hits & ~new)).sum() / (counts * ~new).sum(),
            )
        )
    return tuple(np.array(points).T)
