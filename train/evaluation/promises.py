"""Whether sets on new data have their labels as often as they promise, with exact intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from train.evaluation import thresholds
from train.evaluation.conformal_rules import ConformalRule

# The probability that an interval has the share that it is for.
LEVEL = 0.95


@dataclass(frozen=True)
class Share:
    """A share of examples, with its interval.

    Attributes:
        value: the share.
        low: the lower end of the interval.
        high: the upper end.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def share_of(hits: np.ndarray, groups: np.ndarray | None) -> Share:
    """The share of examples that are hits, with its interval at `LEVEL`.

    The interval of Clopper and Pearson is exact for examples that are drawn independently. Those of
    one group, as the photographs of one plant, are not. Their number n is then replaced by the
    effective number n² / Σ_g n_g², for groups of n_g examples, which is the number of groups if all
    have equally many examples. The interval is as wide as if the examples of a group were copies
    (Kish 1965), and so rather too wide than too narrow.

    Args:
        hits: whether each example is one, bool [n].
        groups: the name of the group of each example, [n]; None if each is drawn by itself.
    """
    value = float(hits.mean())
    number = effective_number(len(hits), groups)
    return Share(value, *clopper_pearson(value * number, number))


def effective_number(number: int, groups: Sequence[str] | np.ndarray | None) -> float:
    """The number of examples that are as good as n in groups, if those of a group are copies."""
    if groups is None:
        return float(number)
    _, sizes = np.unique(np.asarray(groups, str), return_counts=True)
    return float(number**2 / np.square(sizes.astype(np.float64)).sum())


def clopper_pearson(hits: float, number: float) -> tuple[float, float]:
    """The exact interval of a probability, at `LEVEL`, after some hits among independent draws.

    Args:
        hits: the number of hits; need not be a whole number.
        number: the number of draws; need not be a whole number.
    """
    tail = (1 - LEVEL) / 2
    misses = number - hits
    low = 0.0 if hits <= 0 else float(stats.beta.ppf(tail, hits, misses + 1))
    high = 1.0 if misses <= 0 else float(stats.beta.ppf(1 - tail, hits + 1, misses))
    return low, high


def promised(coverage: float, rule: ConformalRule) -> float:
    """The coverage over all examples that the sets of a rule promise."""
    if rule.quantile != "middle":
        return coverage
    # Halfway between two quantiles, only twice the error is bounded.
    return max(0.0, float(1 - 2 * thresholds.error_of(coverage)))


def verdict(asked: float, got: Share, these: str) -> str:
    """In a sentence, whether sets that promise a coverage have it.

    Args:
        asked: the coverage that they promise.
        got: the share of examples that have their label in their set.
        these: the examples, as "these images".
    """
    if got.high < asked:
        what = f"the promise does not hold on {these}"
    elif got.low >= asked:
        what = f"the promise holds on {these}"
    else:
        what = f"{these} do not contradict the promise"
    return f"asked {asked:g}, got {got}: {what}"


def holds(asked: float, got: Share) -> bool | None:
    """Whether the promise holds; None if the interval has the coverage that is asked."""
    return False if got.high < asked else True if got.low >= asked else None
