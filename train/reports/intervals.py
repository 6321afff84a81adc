"""Confidence intervals of shares: exact ones, and ones for examples that come in groups."""

import numpy as np
from scipy import stats

from topk_jax import metrics
from train.scores.observations import have_several
from train.scores.scores import Scores

LEVEL = 0.95


def of(scores: Scores, hits: np.ndarray) -> list[float]:
    """The interval for hits of these examples, [n].

    It is the one of Clopper and Pearson if each is independent: it has the share with a probability
    of at least 0.95. If groups have several examples, these are `topk_jax.metrics.cluster_interval`
    instead. If the truth is more than one class, hits are shares, and it is Student's.
    """
    if not have_several(scores):
        return exact(hits) if scores.truths is None else _of_shares(hits, np.arange(len(hits)))
    assert scores.numbered_groups is not None
    of_groups = scores.numbered_groups[1]
    if scores.truths is not None:
        return _of_shares(hits, of_groups)
    number = int(of_groups.max()) + 1
    found = metrics.cluster_interval(hits, of_groups, num_groups=number, level=LEVEL)
    return [*map(float, found)]


def exact(hits: np.ndarray) -> list[float]:
    """Clopper and Pearson's interval for hits of independent examples, [n]."""
    found = stats.binomtest(int(np.count_nonzero(hits)), len(hits)).proportion_ci(LEVEL, "exact")
    return [float(found.low), float(found.high)]


def _of_shares(hits: np.ndarray, of_groups: np.ndarray) -> list[float]:
    """Student's interval of a mean of numbers in [0, 1], within these bounds."""
    number = int(of_groups.max()) + 1
    mean, degrees = float(hits.mean()), number - 1
    if not degrees:
        return [0.0, 1.0]
    residuals = np.bincount(of_groups, hits - mean)
    variance = number / degrees * np.square(residuals).sum() / len(hits) ** 2
    width = stats.t.ppf((1 + LEVEL) / 2, degrees) * np.sqrt(variance)
    return np.clip([mean - width, mean + width], 0, 1).tolist()
