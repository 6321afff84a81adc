"""Confidence intervals of shares: exact ones, and ones for examples that come in groups."""

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy import stats

from topk_jax import metrics
from train.scores.observations import have_several, numbered
from train.scores.scores import Scores

LEVEL = 0.95
# From whether each example is a hit, [n], to the two bounds.
Interval = Callable[[np.ndarray], list[float]]


def of(scores: Scores) -> Interval:
    """The interval for hits of these examples.

    It is the one of Clopper and Pearson if each is independent: it has the share with a probability
    of at least 0.95. If groups have several examples, these are `topk_jax.metrics.cluster_interval`
    instead. If the truth is more than one class, hits are shares, and it is Student's.
    """
    of_groups = np.arange(len(scores))
    if have_several(scores):
        assert scores.groups is not None
        of_groups = numbered(scores.groups)[1]
    elif scores.truths is None:
        return exact
    return partial(_clustered if scores.truths is None else _of_shares, of_groups=of_groups)


def exact(hits: np.ndarray) -> list[float]:
    """Clopper and Pearson's interval for hits of independent examples, [n]."""
    found = stats.binomtest(int(np.count_nonzero(hits)), len(hits)).proportion_ci(LEVEL, "exact")
    return [float(found.low), float(found.high)]


def _of_shares(hits: np.ndarray, *, of_groups: np.ndarray) -> list[float]:
    """Student's interval of a mean of numbers in [0, 1], within these bounds."""
    number = int(of_groups.max()) + 1
    mean, degrees = float(hits.mean()), number - 1
    if not degrees:
        return [0.0, 1.0]
    residuals = np.bincount(of_groups, hits - mean)
    variance = number / degrees * np.square(residuals).sum() / len(hits) ** 2
    width = stats.t.ppf((1 + LEVEL) / 2, degrees) * np.sqrt(variance)
    return np.clip([mean - width, mean + width], 0, 1).tolist()


def _clustered(hits: np.ndarray, *, of_groups: np.ndarray) -> list[float]:
    number = int(of_groups.max()) + 1
    found = metrics.cluster_interval(hits, of_groups, num_groups=number, level=LEVEL)
    return [*map(float, found)]
