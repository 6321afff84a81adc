"""The fields that a random search draws: ranges, which may be extended, and choices."""

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

Side = Literal["low", "high"]
Scale = Literal["log", "linear"]

# The part of a range next to an end within which a value counts as at that end.
_OUTER = 0.1
# A range is extended by this part of its length.
_EXTENSION = 0.5


@dataclass(frozen=True)
class Range:
    """A real field that is drawn between two numbers.

    Attributes:
        name: the field.
        start: the smallest value.
        end: the largest value.
        scale: whether the value or its logarithm is uniform.
        least: the value below which the range is not extended; None for no such limit.
        most: the value above which the range is not extended; None for no such limit.
    """

    name: str
    start: float
    end: float
    scale: Scale
    least: float | None
    most: float | None

    def draw(self, generator: np.random.Generator) -> float:
        """A value of four digits."""
        drawn = self._value(generator.uniform(self._place(self.start), self._place(self.end)))
        return min(max(_round(drawn), self.start), self.end)

    def edge(self, value: float) -> Side | None:
        """The end near which a value is and beyond which the range can be extended, if any."""
        low, high = self._place(self.start), self._place(self.end)
        position = (self._place(value) - low) / (high - low)
        if position <= _OUTER and (self.least is None or self.start > self.least):
            return "low"
        if position >= 1 - _OUTER and (self.most is None or self.end < self.most):
            return "high"
        return None

    def extended(self, side: Side) -> "Range":
        """The range with half of its length more on one side, as far as the limits allow."""
        low, high = self._place(self.start), self._place(self.end)
        longer = _EXTENSION * (high - low)
        if side == "low":
            start = _round(self._value(low - longer))
            return replace(self, start=start if self.least is None else max(start, self.least))
        end = _round(self._value(high + longer))
        return replace(self, end=end if self.most is None else min(end, self.most))

    def beyond(self, side: Side) -> "Range":
        """What the extension on one side adds, and the outer tenth of the range there."""
        low, high = self._place(self.start), self._place(self.end)
        outer = _OUTER * (high - low)
        longer = self.extended(side)
        if side == "low":
            return replace(longer, end=_round(self._value(low + outer)))
        return replace(longer, start=_round(self._value(high - outer)))

    def _place(self, value: float) -> float:
        return math.log(value) if self.scale == "log" else value

    def _value(self, place: float) -> float:
        return math.exp(place) if self.scale == "log" else place


@dataclass(frozen=True)
class Choice:
    """A field that is one of a few values; it cannot be extended.

    Attributes:
        name: the field.
        values: the values.
    """

    name: str
    values: tuple[Any, ...]

    def draw(self, generator: np.random.Generator) -> Any:
        """One of the values."""
        return self.values[generator.integers(len(self.values))]


Parameter = Range | Choice


def generator(seed: int, name: str, part: int) -> np.random.Generator:
    """The random numbers of a parameter in a part of the search.

    They depend on the name of the field, not on the other fields: arms that share a field draw the
    same values of it, so that no arm has the better luck.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.default_rng([seed, part, int.from_bytes(digest[:8], "big")])


def _round(value: float) -> float:
    """Rounds to four digits, so that names of runs stay short."""
    return float(f"{value:.4g}")
