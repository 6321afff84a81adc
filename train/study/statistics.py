"""Means over seeds, and differences over seeds and test examples, with 95 % intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special


@dataclass(frozen=True)
class Estimate:
    """An estimated number; accuracies and their differences are shares: 0.01 is a point.

    Attributes:
        value: the number.
        error: its standard error; NaN if it is not known.
        freedom: the degrees of freedom of Student's t; infinite for a normal distribution.
        noise: what the error is about: what a repetition would draw again.
    """

    value: float
    error: float
    freedom: float
    noise: Literal["none", "seeds", "test examples", "seeds and test examples"]

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval; NaN without a standard error."""
        return float(special.stdtrit(self.freedom, 0.975)) * self.error

    @property
    def p_value(self) -> float:
        """The two-sided p-value of the hypothesis that the true number is 0."""
        return min(1.0, 2 * self._tail(abs(self.value)))

    @property
    def detectable(self) -> float:
        """The smallest true difference that the test at 5 % finds with a probability of 80 %."""
        critical = special.stdtrit(self.freedom, 0.975)
        # Noncentral, because the standard error is estimated, too.
        return float(special.nctdtrinc(self.freedom, 0.2, critical)) * self.error

    def equivalence(self, margin: float) -> float:
        """The p-value of the hypothesis that the true difference is not within ± margin, a share.

        It is the larger one of two one-sided tests (Schuirmann 1987).
        """
        return self._tail(margin - abs(self.value))

    def _tail(self, value: float) -> float:
        """The probability that the noise alone is at least this value."""
        if self.error == 0:
            return 0.0 if value > 0 else 1.0
        return float(special.stdtr(self.freedom, -value / self.error))


def mean(values: Sequence[float], examples: int | None = None) -> Estimate:
    """The mean of runs that differ in the seed.

    Several seeds have the noise of seeds by Student's t: what other seeds would give on the same
    test examples. One seed has the binomial noise of the test examples, if their number is known.

    Args:
        values: a value for each seed; NaN is the mean of none.
        examples: of how many examples a value is the share of hits; None if it is no such share.
    """
    count = len(values)
    value = float(np.mean(values)) if count else math.nan
    if count > 1:
        error = float(np.std(values, ddof=1)) / math.sqrt(count)
        return Estimate(value, error, count - 1, "seeds")
    if examples is None or count == 0:
        return Estimate(value, math.nan, math.inf, "none")
    # Two more hits and two more misses (Agresti and Coull 1998): not 0 for a share of 0 or 1.
    share = (value * examples + 2) / (examples + 4)
    error = math.sqrt(share * (1 - share) / (examples + 4))
    return Estimate(value, error, math.inf, "test examples")


def difference(hits: np.ndarray, labels: np.ndarray, *, macro: bool) -> Estimate:
    """The difference of two accuracies over seeds and test examples, which are paired.

    The standard error is the one of the pigeonhole bootstrap (Owen 2007) in the limit of infinitely
    many resamples of seeds, and of examples within their classes, times sqrt(S / (S - 1)). Noise
    that neither the seed nor the example explains counts three times: where it prevails, intervals
    are a little too wide. One seed has the noise of test examples alone, with half an example more
    that only the one hits and half that only the other does (Agresti and Min 2005): equal hits are
    no proof that there is no difference.

    Args:
        hits: whether the sets of the one have the label, minus whether those of the other have it,
            [S, n]: a row for each seed.
        labels: the classes of the examples, [n].
        macro: whether the accuracies are means over the classes that occur, not over examples.
    """
    _, class_of, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    weights = 1 / (len(sizes) * sizes[class_of]) if macro else np.full(len(labels), 1 / len(labels))
    shares = hits * weights
    within = shares - np.stack([np.bincount(class_of, row) / sizes for row in shares])[:, class_of]
    by_seed, seeds = shares.sum(axis=1), len(shares)
    of_examples = float((within.mean(axis=0) ** 2).sum())
    of_both = float((within**2).sum()) / seeds**2 - of_examples / seeds
    variance = float(by_seed.var()) / seeds + of_examples + of_both
    value = float(by_seed.mean())
    if seeds == 1:
        error = math.sqrt(variance + float((weights**2).mean()))
        return Estimate(value, error, math.inf, "test examples")
    error = math.sqrt(variance * seeds / (seeds - 1))
    return Estimate(value, error, seeds - 1, "seeds and test examples")


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for their number (Holm 1979), in the same order."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
