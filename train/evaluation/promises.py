"""Whether sets on new data have their labels less often than they promise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from train.evaluation import example_groups, thresholds
from train.evaluation.conformal_rules import ConformalRule
from train.evaluation.predictions import Predictions

# The probability that new examples contradict a promise although they are like those that it was
# calibrated on, at most.
FALSE_ALARMS = 0.05
# The name of the numbers of `CalibratedOn` beside the limits in files of thresholds.
KEPT_AS = "calibrated_on"
# More new examples would not change a verdict, but cost memory.
_MOST = 10**6
# A share times a number can be rounded above the count that it comes from.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class CalibratedOn:
    """How many examples limits come from.

    Attributes:
        examples: their number n.
        groups: how many independent examples say as much, at least; see `num_independent`.
    """

    examples: int
    groups: float

    @classmethod
    def of(cls, examples: Predictions) -> "CalibratedOn":
        """The numbers of these examples."""
        return cls(len(examples.labels), num_independent(examples))

    @classmethod
    def from_plain(cls, numbers: Sequence[float]) -> "CalibratedOn":
        """The same from `to_plain`."""
        examples, groups = numbers
        return cls(int(examples), groups)

    def to_plain(self) -> list[float]:
        """The numbers, as files of thresholds have them."""
        return [float(self.examples), float(self.groups)]

    def law(self, coverage: float) -> tuple[float, float] | None:
        """The two parameters of the beta distribution that the true coverage of the limits has.

        The limit is the score of rank r = ceil((n + 1) coverage) among n, and the coverage is then
        beta(r, n + 1 - r). If the examples of each of g groups are alike, it is the score of rank
        g r / n among the groups. It varies less if they are less alike.

        Returns:
            The parameters; None for limits of which nothing is promised, or that have all classes.
        """
        rank = math.ceil((self.examples + 1) * (1 - thresholds.error_of(coverage)))
        if not 0 < rank <= self.examples:
            return None
        below = self.groups * rank / self.examples
        return below, self.groups + 1 - below


@dataclass(frozen=True)
class Promise:
    """What sets promise.

    Attributes:
        coverage: the probability that a set has the label.
        calibrated_on: what their limits come from; None if that is not known.
    """

    coverage: float
    calibrated_on: CalibratedOn | None

    def is_contradicted(self, share: float, number: float) -> bool | None:
        """Whether so few labels are in their sets that the promise is contradicted.

        Limits that come from n examples have a random coverage; see `CalibratedOn.law`. So the
        number of labels in their sets, among new examples of the same kind, is beta-binomial. It
        contradicts the promise if it is among the smallest numbers, which have a probability of
        less than 5% together.

        Args:
            share: the share of new examples that have their label in their set.
            number: how many independent examples these are; see `num_independent`.

        Returns:
            The verdict; None if it is not known what the limits come from.
        """
        if self.calibrated_on is None:
            return None
        law = self.calibrated_on.law(self.coverage)
        if law is None:
            return False
        counted = min(math.floor(number + _ROUNDING), _MOST)
        hits = math.ceil(share * counted - _ROUNDING)
        return bool(stats.betabinom.cdf(hits, counted, *law) < FALSE_ALARMS)


def promised(coverage: float, rule: ConformalRule) -> float:
    """The coverage over all examples that the sets of a rule promise."""
    if rule.quantile != "middle":
        return coverage
    # Halfway between two quantiles, only twice the error is bounded.
    return max(0.0, float(1 - 2 * thresholds.error_of(coverage)))


def num_independent(examples: Predictions) -> float:
    """How many independent examples say at least as much of a share as these.

    Without groups, it is their number. With groups it is the number of groups, if these have
    the same size. A mean over examples of larger and smaller groups varies like one over fewer
    groups: Kish (1965), "Survey sampling", (sum of sizes)^2 / sum of squares of sizes.
    """
    if examples.groups is None:
        return float(len(examples.labels))
    sizes = np.bincount(example_groups.numbered(examples.groups)[1]).astype(np.float64)
    return float(sizes.sum() ** 2 / np.square(sizes).sum())


def to_json(
    promise: Promise, share: float, number: float, interval: Sequence[float], these: str
) -> dict[str, Any]:
    """What was promised and whether new examples contradict it, as files have it.

    Args:
        promise: what the sets promise.
        share: the share of examples that have their label in their set.
        number: see `Promise.is_contradicted`.
        interval: the ends of the interval of this share.
        these: the examples, as "these images".
    """
    low, high = interval
    contradicted = promise.is_contradicted(share, number)
    words = f"asked {promise.coverage:g}, got {share:.3f} ({low:.3f} to {high:.3f})"
    return {
        "promised": promise.coverage,
        "contradicted": contradicted,
        "in_words": f"{words}: {these} contradict the promise" if contradicted else words,
    }
