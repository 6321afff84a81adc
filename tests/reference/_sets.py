"""Sets of classes and their thresholds, by full sorts."""

import math

import numpy as np

from tests.reference._operators import descending
from tests.reference._rows import exact, float64, valid, whole_part


def top_k_set(scores, *, k):
    """The k largest scores (2.13), of lower index among equals; no class beside a NaN."""
    scores = float64(scores)
    chosen = np.zeros(scores.shape, bool)
    for position in np.ndindex(scores.shape[:-1]):
        if not np.isnan(scores[position]).any():
            chosen[position][descending(scores[position])[:k]] = True
    return chosen


def top_k(scores, *, k):
    """The k largest scores (2.13), of lower index among equals, and their classes; NaN and -1
    beside a NaN or +inf.
    """
    scores = float64(scores)
    values, classes = np.full((*scores.shape[:-1], k), np.nan), np.full((*scores.shape[:-1], k), -1)
    for position in np.ndindex(scores.shape[:-1]):
        if (scores[position] < np.inf).all():
            classes[position] = descending(scores[position])[:k]
            values[position] = scores[position][classes[position]]
    return values, classes


def top_k_gradient(scores, shares, *, k):
    """Of the sum of the k largest scores, the first times the first share [k] and so on."""
    values, classes = top_k(scores, k=k)
    slope = np.zeros(np.shape(scores))
    for position in np.ndindex(slope.shape[:-1]):
        if np.isnan(values[position]).any():
            slope[position] = np.nan
        else:
            slope[position][classes[position]] = np.where(np.isneginf(values[position]), 0, shares)
    return slope


def threshold_set(probabilities, threshold):
    """The classes with `p >= threshold` (2.31)."""
    return float64(probabilities) >= float64(threshold)


def adaptive_set(probabilities, *, error):
    """The smallest set whose probabilities add up to `1 - error` (Table 2.1, point-wise error).

    A class is in it while those before it, in descending order, fall short; all are, if they never
    reach it; no class beside a NaN.
    """
    probabilities = float64(probabilities)
    chosen = np.zeros(probabilities.shape, bool)
    for position in np.ndindex(probabilities.shape[:-1]):
        if np.isnan(probabilities[position]).any():
            continue
        total = 0.0
        for index in descending(probabilities[position]):
            if total < 1.0 - float64(error):
                chosen[position][index] = True
            total += probabilities[position][index]
    return chosen


def average_k_threshold(probabilities, *, k):
    """The midpoint of the (k n)-th and (k n + 1)-th largest of all entries (Algorithm 1).

    If the midpoint would let the second in too, because they tie: the smallest entry above it, and
    infinity if there is none. 0, every class, if k n is the number of entries.
    """
    probabilities = float64(probabilities)
    entries = np.sort(probabilities.reshape(-1))[::-1]
    rank = whole_part(k, len(entries) // probabilities.shape[-1])
    if np.isnan(entries).any():
        return np.float64(np.nan)
    if rank == len(entries):
        return np.float64(0.0)
    upper, lower = entries[rank - 1], entries[rank]
    middle = lower + (upper - lower) / 2.0
    if middle > lower:
        return middle
    return min(entries[entries > lower], default=np.float64(np.inf))


class AverageKCalibrator:
    """`average_k_threshold` of everything seen so far; it keeps all of it."""

    def __init__(self, k, num_examples):
        self._k, self._num_examples, self._batches = k, num_examples, []

    def update(self, batch):
        self._batches.append(float64(batch))

    def threshold(self):
        return average_k_threshold(np.concatenate(self._batches), k=self._k)


def average_error_threshold(probabilities, *, error):
    """The largest t with `mean_i sum_l p 1{p < t} <= error` (Table 2.1, average error).

    The missed mass steps up just after each entry, so t is an entry, or infinity if all the mass
    may be missed.
    """
    probabilities = float64(probabilities)
    num_examples = probabilities.size // probabilities.shape[-1]
    if np.isnan(probabilities).any():
        return np.float64(np.nan)
    entries, counts = np.unique(probabilities, return_counts=True)
    missed = np.concatenate([[0.0], np.cumsum(entries * counts)]) / num_examples
    return np.append(entries, np.inf)[missed <= float64(error)].max()


def conformal_threshold(probabilities, labels, *, error):
    """`1 - qhat`, qhat the `ceil((n+1)(1-error))`-th smallest of `1 - p_y` (before 2.5).

    That is the `ceil((n+1)(1-error))`-th largest `p_y`; with fewer than that many examples qhat is
    infinite, and every class is in the set. NaN beside a NaN, or a label out of range.
    """
    probabilities, labels = float64(probabilities), np.asarray(labels)
    if not all(valid(row, label) for row, label in zip(probabilities, labels, strict=True)):
        return np.float64(np.nan)
    true = np.sort(probabilities[np.arange(len(labels)), labels])[::-1]
    rank = math.ceil((len(true) + 1) * (1 - exact(error)))
    return true[rank - 1] if rank <= len(true) else np.float64(-np.inf)
