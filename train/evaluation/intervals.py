"""Confidence intervals of shares: exact ones, and ones for examples that come in groups."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy import stats

from topk_jax import metrics
from train.evaluation import example_groups
from train.evaluation.predictions import Predictions

LEVEL = 0.95
# From whether each example is a hit, [n], to the two bounds.
Interval = Callable[[np.ndarray], list[float]]


def of(examples: Predictions) -> Interval:
    """The interval for hits of these examples: by clusters if groups have several, else exact.

    If the truth is more than one class, hits are shares; see `of_shares`.
    """
    of_examples = np.arange(len(examples.labels))
    if example_groups.have_several(examples):
        assert examples.groups is not None
        of_examples = example_groups.numbered(examples.groups)[1]
    elif examples.truths is None:
        return exact
    return by_clusters(of_examples) if examples.truths is None else of_shares(of_examples)


def exact(hits: np.ndarray) -> list[float]:
    """Clopper and Pearson's interval: it has the share with a probability of at least 0.95.

    Args:
        hits: whether each of several independent examples is a hit, [n].
    """
    found = stats.binomtest(int(np.count_nonzero(hits)), len(hits)).proportion_ci(LEVEL, "exact")
    return [float(found.low), float(found.high)]


def of_shares(of_examples: np.ndarray) -> Interval:
    """Student's interval of a mean of numbers in [0, 1], within these bounds.

    Args:
        of_examples: the number of the group of each example, [n]; groups are independent.
    """
    sizes = np.bincount(of_examples)

    def interval(hits: np.ndarray) -> list[float]:
        mean, degrees = float(hits.mean()), len(sizes) - 1
        if not degrees:
            return [0.0, 1.0]
        residuals = np.bincount(of_examples, hits - mean)
        variance = len(sizes) / degrees * np.square(residuals).sum() / len(hits) ** 2
        width = stats.t.ppf((1 + LEVEL) / 2, degrees) * np.sqrt(variance)
        return np.clip([mean - width, mean + width], 0, 1).tolist()

    return interval


def by_clusters(
    of_examples: np.ndarray, counted: Literal["examples", "groups"] = "examples"
) -> Interval:
    """The interval of `topk_jax.metrics.cluster_interval`.

    Args:
        of_examples: the number of the group of each example, [n].
        counted: what counts alike in the share.
    """

    def interval(hits: np.ndarray) -> list[float]:
        low, high = metrics.cluster_interval(
            hits,
            of_examples,
            num_groups=int(of_examples.max()) + 1,
            level=LEVEL,
            counted=counted,
        )
        return [float(low), float(high)]

    return interval
