"""Means over seeds with their intervals, their comparison, and the selection of the best mean."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """A mean over seeds and half the width of its 95 % interval, None for a single seed."""

    mean: float
    half_width: float | None


def summarize(values: Sequence[float]) -> Summary:
    """The mean of independent runs and its interval by Student's t distribution.

    Args:
        values: one value per seed; at least one.
    """
    mean, count = float(np.mean(values)), len(values)
    if count == 1:
        return Summary(mean, None)
    standard_error = float(np.std(values, ddof=1)) / math.sqrt(count)
    return Summary(mean, half_width(standard_error, count - 1))


def half_width(standard_error: float, degrees_of_freedom: float) -> float:
    """Half the width of a 95 % interval by Student's t distribution."""
    return float(special.stdtrit(degrees_of_freedom, (1 + _CONFIDENCE) / 2)) * standard_error


def compare(ours: Summary, published: Summary) -> Literal["above", "below"] | None:
    """Where ours lies if the two means differ by more than both half widths together.

    A mean that was published without an interval is taken as exact. The result is None if ours has
    no interval, for then nothing can be said.
    """
    if ours.half_width is None:
        return None
    difference = ours.mean - published.mean
    if abs(difference) <= ours.half_width + (published.half_width or 0.0):
        return None
    return "above" if difference > 0 else "below"


def best(scores: Sequence[Sequence[float | None]], *, smaller_is_better: bool) -> int | None:
    """The index of the candidate with the best mean; of equal means, the first.

    Args:
        scores: for each candidate, one score per seed. None stands for a run without a score, such
            as one that diverged; it rules out the candidate.
        smaller_is_better: whether the smaller of two means is better.

    Returns:
        The index; None if all candidates are ruled out.
    """
    sign = -1.0 if smaller_is_better else 1.0
    means = {
        index: sign * float(np.mean([value for value in values if value is not None]))
        for index, values in enumerate(scores)
        if values and not any(value is None or math.isnan(value) for value in values)
    }
    return max(means, key=lambda index: (means[index], -index), default=None)
