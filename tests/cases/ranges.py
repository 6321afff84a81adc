"""Which numbers a parameter may be: what is refused, and what makes NaN if it is traced."""

import dataclasses
from typing import Any

import numpy as np

Refusal = tuple[dict[str, Any], type[Exception], str]
NAN, INFINITY = float("nan"), float("inf")


@dataclasses.dataclass(frozen=True)
class Range:
    """The range of a real scalar: numbers outside of it, and its words in a message."""

    outside: tuple[Any, ...]
    words: str = ""

    def wrong(self, num_classes: int) -> tuple[Any, ...]:
        """Values that a program gives NaN for."""
        return (*self.outside, NAN, INFINITY)

    def refusals(self, name: str, num_classes: int) -> list[Refusal]:
        """Values that are refused: (arguments, error, pattern of the message)."""
        return [
            ({name: np.ones(2)}, ValueError, rf"{name} must be a scalar, got shape \(2,\)"),
            ({name: "1"}, TypeError, rf"{name} must be a real number or array, got str"),
            ({name: 1j}, TypeError, rf"{name} must be real, got dtype complex"),
            *(
                ({name: value}, ValueError, f"{name} must be (finite and )?{self.words}, got")
                for value in (*self.outside, NAN)
            ),
        ]


@dataclasses.dataclass(frozen=True)
class OfClasses(Range):
    """The range of a scalar or one value for each class."""

    def wrong(self, num_classes: int) -> tuple[Any, ...]:
        return tuple(
            np.where(np.arange(num_classes) == 2, value, 1) for value in super().wrong(num_classes)
        )

    def refusals(self, name: str, num_classes: int) -> list[Refusal]:
        shape = rf"{name} must be a scalar or have one value for each"
        return [
            ({name: np.ones(2)}, ValueError, rf"{shape}.*\(2,\)"),
            ({name: np.ones((1, num_classes))}, ValueError, shape),
            ({name: "1"}, TypeError, f"{name} must be a real number"),
        ]


@dataclasses.dataclass(frozen=True)
class Counts(OfClasses):
    """The range of a number of examples for each class."""

    def refusals(self, name: str, num_classes: int) -> list[Refusal]:
        ones = [1] * (num_classes - 1)
        shape = rf"{name} must have .* {num_classes} classes, got shape"
        return [
            ({name: [3, 2]}, ValueError, rf"{shape} \(2,"),
            ({name: 3}, ValueError, rf"{shape} \(\)"),
            (
                {name: [*ones, 0]},
                ValueError,
                rf"{name} must be positive and finite for each class, got 0 for class",
            ),
            ({name: "12"}, TypeError, f"{name} must be a real number or array, got str"),
            ({name: [*ones, 1j]}, TypeError, f"{name} must be real, got dtype"),
        ]


@dataclasses.dataclass(frozen=True)
class Listed(Range):
    """Arrays, or numbers without words, whose refusals have tests beside the function."""

    def wrong(self, num_classes: int) -> tuple[Any, ...]:
        return self.outside

    def refusals(self, name: str, num_classes: int) -> list[Refusal]:
        return []


AT_LEAST_0 = Range((-0.5, -INFINITY), "at least 0")
POSITIVE = Range((0.0, -0.5, -INFINITY), "greater than 0")
PART = Range((1.0, 1.5, -0.5, -INFINITY), "at least 0 and less than 1")
ENTMAX_ALPHA = Range((0.5, 2.5), "at least 1 and at most 2")
MARGINS = OfClasses((-0.5, -INFINITY))
CLASS_COUNTS = Counts((0.0, -0.5, -INFINITY))
