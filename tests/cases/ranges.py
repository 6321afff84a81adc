"""Which numbers a parameter may be: what is refused, and what makes NaN if it is traced."""

import dataclasses
from typing import Any

import numpy as np

NAN, INFINITY = float("nan"), float("inf")


@dataclasses.dataclass(frozen=True)
class Range:
    """The range of a real scalar: numbers outside of it."""

    outside: tuple[Any, ...]

    def wrong(self, num_classes: int) -> tuple[Any, ...]:
        """Values that a program gives NaN for."""
        return (*self.outside, NAN, INFINITY)

    def refused(self, num_classes: int) -> tuple[Any, ...]:
        """Values that are refused, also for what they are."""
        return (*self.outside, NAN, np.ones(2), "1", 1j)


@dataclasses.dataclass(frozen=True)
class OfClasses(Range):
    """The range of a scalar or one value for each class."""

    def wrong(self, num_classes: int) -> tuple[Any, ...]:
        return tuple(
            np.where(np.arange(num_classes) == 2, value, 1) for value in super().wrong(num_classes)
        )

    def refused(self, num_classes: int) -> tuple[Any, ...]:
        return (*self.wrong(num_classes), np.ones(2), np.ones((1, num_classes)), "1")


@dataclasses.dataclass(frozen=True)
class Counts(OfClasses):
    """The range of a number of examples for each class."""

    def refused(self, num_classes: int) -> tuple[Any, ...]:
        ones = [1] * (num_classes - 1)
        return (*self.wrong(num_classes), [3, 2], 3, [*ones, 0], "12", [*ones, 1j])


@dataclasses.dataclass(frozen=True)
class Listed(Range):
    """Arrays, or numbers that only this function refuses."""

    def wrong(self, num_classes: int) -> tuple[Any, ...]:
        return self.outside

    def refused(self, num_classes: int) -> tuple[Any, ...]:
        return (*(value for value in self.outside if np.shape(value)[:1] == (num_classes,)), "1")


AT_LEAST_0 = Range((-0.5, -INFINITY))
POSITIVE = Range((0.0, -0.5, -INFINITY))
PART = Range((1.0, 1.5, -0.5, -INFINITY))
ENTMAX_ALPHA = Range((0.5, 2.5))
MARGINS = OfClasses((-0.5, -INFINITY))
CLASS_COUNTS = Counts((0.0, -0.5, -INFINITY))
