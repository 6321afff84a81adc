"""Sets of classes and their thresholds, by full sorts."""

import math

import numpy as np

from tests.reference._conformal import conformal_quantile
from tests.reference._draws import uniform
from tests.reference._operators import descending
from tests.reference._rows import exact, float64, whole_part


def top_k_set(scores, *, k):
    """The k largest scores (2.13), of lower index among equals; no class beside a NaN."""
    scores = float64(scores)
    chosen = np.zeros(scores.shape, bool)
    for position in np.ndindex(scores.shape[:-1]):
        if not np.isnan(scores[position]).any():
            chosen[position][descending(scores[position])[:k]] = True
    return chosen


def threshold_set(probabilities, threshold):
    """The classes with `p >= threshold` (2.31); no class beside a NaN."""
    probabilities = float64(probabilities)
    whole = ~np.isnan(probabilities).any(axis=-1, keepdims=True)
    return (probabilities >= float64(threshold)) & whole


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
    infinity if there is none. Minus infinity, every class, if k n is the number of entries.
    """
    probabilities = float64(probabilities)
    entries = np.sort(probabilities.reshape(-1))[::-1]
    rank = whole_part(k, len(entries) // probabilities.shape[-1])
    if np.isnan(entries).any():
        return np.float64(np.nan)
    return np.float64(-np.inf) if rank == len(entries) else _between(entries, rank)


def _between(entries, rank):
    """Between the rank-th largest entry and the next one, or between other two if these tie."""
    entries = np.sort(entries)[::-1]
    upper, lower = np.append(np.inf, entries)[rank], entries[rank]
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
    """The `ceil((n + 1)(1 - error))`-th largest `p_y` (before 2.5), or minus infinity."""
    return np.float64(-conformal_quantile(-float64(probabilities), labels, error=error))


def utility_set(probabilities, *, utilities):
    """The fewest largest classes of the largest `g(m) (p_[1] + ... + p_[m])`, up to rounding."""
    probabilities, utilities = float64(probabilities), float64(utilities)
    chosen = np.zeros(probabilities.shape, bool)
    for row, members in zip(probabilities, chosen, strict=True):
        if not np.isnan(row).any():
            order = descending(row)
            expected = utilities * np.cumsum(row[order])
            size = np.flatnonzero(expected >= expected.max() * (1 - 1e-6))[0] + 1
            members[order[:size]] = True
    return chosen


def set_utilities(kind, *, num_classes, alpha=None, beta=None):
    """The value of a set that has the label, from one class to all."""
    sizes = np.arange(1.0, num_classes + 1)
    if kind == "reject":
        return 1 - alpha * ((sizes - 1) / max(num_classes - 1, 1)) ** beta
    return {
        "precision": 1 / sizes,
        "f_beta": (1 + (beta or 0) ** 2) / ((beta or 0) ** 2 + sizes),
        "u65": 1.6 / sizes - 0.6 / sizes**2,
        "u80": 2.2 / sizes - 1.2 / sizes**2,
    }[kind]


def risk_controlled_index(losses, *, error, bound=1.0):
    """The first column from which on `(B + sum) / (n + 1)` is at most the error."""
    rows = float64(losses).reshape(-1, np.shape(losses)[-1])
    allowed = float(exact(error)) + 1e-6
    index = rows.shape[1]
    while index and (bound + rows[:, index - 1].sum()) / (len(rows) + 1) <= allowed:
        index -= 1
    return index


def vote_quantile(scores, plausibilities, *, error, num_samples=None, key=None):
    """The smallest score above which few enough votes are, or the quantile of drawn labels.

    A drawn label is the first one up to which the plausibilities exceed a uniform number.
    """
    scores, votes = float64(scores), float64(plausibilities)
    if np.isnan(scores).any():
        return np.float64(np.nan)
    number = len(scores)
    if num_samples is None:
        allowed = float(exact(error) * (number + 1) - 1) + 1e-6
        fitting = [q for q in scores.ravel() if votes[scores > q].sum() <= allowed]
        return min(fitting, default=np.inf) if allowed >= 0 else np.inf
    drawn = uniform(key, (num_samples, number))
    labels = (votes.cumsum(axis=-1) <= drawn[..., None]).sum(axis=-1)
    own = np.sort(scores[np.arange(number), labels].ravel())
    rank = math.ceil((1 - exact(error)) * num_samples * (number + 1))
    return own[rank - 1] if rank <= own.size else np.float64(np.inf)
