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
    """The interval for hits of these examples: by clusters if groups have several, else exact."""
    if not example_groups.have_several(examples):
        return exact
    assert examples.groups is not None
    return by_clusters(example_groups.numbered(examples.groups)[1])


def exact(hits: np.ndarray) -> list[float]:
    """Clopper and Pearson's interval: it has the share with a probability of at least 0.95.

    Args:
        hits: whether each of several independent examples is a hit, [n].
    """
    found = stats.binomtest(int(np.count_nonzero(hits)), len(hits)).proportion_ci(LEVEL, "exact")
    return [float(found.low), float(found.high)]


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
