"""The random search of fields: ranges, which are extended where the best is at an end, and choices.

Without extensions a comparison is unfair without a word: the range of one arm may end too early.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from train.foundation.errors import UserError

# How often the ranges of a search are extended at most, and with how many candidates each time.
ROUNDS, PER_ROUND = 3, 4
# The part of a range next to an end within which a value counts as at that end.
_OUTER = 0.1
# A range is extended by this part of its length.
_LONGER = 0.5
_ATTEMPTS = 100


class Range(Struct, frozen=True, forbid_unknown_fields=True):
    """A number that is drawn between two numbers.

    Attributes:
        low: the smallest value.
        high: the largest value.
        scale: whether the value or its logarithm is uniform.
        least: the value below which the range is not extended.
        most: the value above which the range is not extended.
    """

    low: float = field(name="from")
    high: float = field(name="to")
    scale: Literal["linear", "log"]
    least: float = -math.inf
    most: float = math.inf

    def __post_init__(self) -> None:
        # Not so for infinite ends, and for such that are no numbers.
        is_range = 0 < self.high - self.low < math.inf
        is_inside = self.least <= self.low and self.high <= self.most
        if not (is_range and is_inside and (self.low > 0 or self.scale == "linear")):
            rule = "from must be below to, and positive on a log scale; least and most are outside"
            raise UserError(f"{rule}; got {self.low:g} to {self.high:g}")

    def draw(self, rng: np.random.Generator) -> float:
        """A value of four digits."""
        drawn = self._value(rng.uniform(self._place(self.low), self._place(self.high)))
        return min(max(drawn, self.low), self.high)

    def extended(self, value: float) -> "tuple[Range, Range] | None":
        """The longer range if a value is at an end, and its part that is new or at that end."""
        low, high = self._place(self.low), self._place(self.high)
        length, place = high - low, (self._place(value) - low) / (high - low)
        if place <= _OUTER and self.low > self.least:
            longer = replace(self, low=max(self._value(low - _LONGER * length), self.least))
            return longer, replace(longer, high=self._value(low + _OUTER * length))
        if place >= 1 - _OUTER and self.high < self.most:
            longer = replace(self, high=min(self._value(high + _LONGER * length), self.most))
            return longer, replace(longer, low=self._value(high - _OUTER * length))
        return None

    def reach(self) -> Iterator[float]:
        """The ends after as many extensions as there can be."""
        for end in ("low", "high"):
            furthest = self
            for _ in range(ROUNDS):
                if parts := furthest.extended(getattr(furthest, end)):
                    furthest = parts[0]
            yield getattr(furthest, end)

    def _place(self, value: float) -> float:
        return math.log(value) if self.scale == "log" else value

    def _value(self, place: float) -> float:
        return float(f"{math.exp(place) if self.scale == 'log' else place:.4g}")


class Choice(Struct, frozen=True, forbid_unknown_fields=True):
    """One of a few values; there are no others."""

    values: Annotated[tuple[Any, ...], Meta(min_length=1)]

    def draw(self, rng: np.random.Generator) -> Any:
        """One of the values."""
        return self.values[rng.integers(len(self.values))]

    def reach(self) -> Iterator[Any]:
        """The values."""
        yield from self.values


Space = Mapping[str, Range | Choice]
Candidate = dict[str, Any]


def draw(
    space: Space, count: int, seed: int, part: int = 0, known: Sequence[Candidate] = ()
) -> list[Candidate]:
    """Candidates that differ: drawn ones, or every combination of choices if there are fewer.

    Args:
        space: the searched fields.
        count: how many candidates.
        seed: the seed of the draws.
        part: the number of the extension, 0 before the first.
        known: the candidates before these.
    """
    choices = [one.values for one in space.values() if isinstance(one, Choice)]
    if len(choices) == len(space) and math.prod(map(len, choices)) <= count:
        return [dict(zip(space, one, strict=True)) for one in itertools.product(*choices)]
    # The numbers of a field do not depend on the other fields: arms that share it draw the same
    # values of it, so that no arm has the better luck.
    generators = {
        name: np.random.default_rng([seed, part, int(sha256(name.encode()).hexdigest()[:16], 16)])
        for name in space
    }
    found: list[Candidate] = []
    # A range can be so narrow that it has fewer values of four digits than are wanted.
    for _ in range(_ATTEMPTS * count):
        candidate = {name: one.draw(generators[name]) for name, one in space.items()}
        if candidate not in known and candidate not in found:
            found.append(candidate)
        if len(found) == count:
            break
    return found


def extended(space: Space, best: Candidate) -> tuple[Space, Space] | None:
    """The space with longer ranges where the best candidate is at an end; None if it is at none.

    Returns:
        The space, and the part of it that new candidates are drawn from: in the new parts of the
        longer ranges, and anywhere in the others.
    """
    parts = {
        name: part
        for name, one in space.items()
        if isinstance(one, Range) and (part := one.extended(best[name]))
    }
    if not parts:
        return None
    longer, new = ({name: one[at] for name, one in parts.items()} for at in (0, 1))
    return {**space, **longer}, {**space, **new}
