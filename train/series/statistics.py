"""Means over seeds with their intervals, and their comparison."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import special

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """A mean over seeds and half the width of its 95 % interval, None for a single seed."""

    mean: float
    half_width: float | None


class Values(dict[int, float]):
    """The numbers of runs by seed."""

    @classmethod
    def known(cls, found: Mapping[int, float | None]) -> "Values":
        """The numbers that are not None: a run may lack one, such as without few-shot classes."""
        return cls({seed: value for seed, value in found.items() if value is not None})

    @property
    def summary(self) -> Summary | None:
        """The mean and its interval; None if there are no numbers."""
        return summarize(list(self.values())) if self else None

    def to_plain(self) -> dict[str, Any]:
        """The numbers, their mean and its interval as plain JSON types."""
        values = {str(seed): value for seed, value in self.items()}
        return {"values": values, **plain_summary(self.summary)}


def plain_summary(summary: Summary | None, name: str = "mean") -> dict[str, float | None]:
    """A mean and its interval by their names in files, both None without a summary."""
    prefix = "" if name == "mean" else f"{name}_"
    return {
        name: None if summary is None else summary.mean,
        f"{prefix}half_width": None if summary is None else summary.half_width,
    }


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
    """The side of our mean if the two means differ by more than both half widths together.

    A mean that was published without an interval is taken as exact. The result is None if ours does
    not have an interval, because the difference can then not be judged.
    """
    if ours.half_width is None:
        return None
    difference = ours.mean - published.mean
    if abs(difference) <= ours.half_width + (published.half_width or 0.0):
        return None
    return "above" if difference > 0 else "below"
