"""The effects that the thesis published, beside which the answers of the studies stand."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from train.papers.tables.published import PUBLISHED
from train.series.contrasts import Contrast

# The classes of the three numbers in the brackets of a cell.
_PARTS = ("few", "medium", "many")


@dataclass(frozen=True)
class Effect:
    """A published difference of two losses.

    Attributes:
        points: the first less the second, in points.
        decimals: how many decimals the thesis has.
    """

    points: float
    decimals: int

    @property
    def text(self) -> str:
        """The effect as the thesis would print it."""
        return f"{self.points:+.{self.decimals}f}"


def effect(losses: Sequence[str], table: str, *columns: str) -> Effect:
    """The difference of two cells of a published table.

    Args:
        losses: the rows of the two cells.
        table: the number of the table.
        columns: the column of both cells, or the column of each.
    """
    first, second = (
        PUBLISHED[table][loss, column]
        for loss, column in zip(losses, (columns[0], columns[-1]), strict=True)
    )
    decimals = max(first.decimals, second.decimals)
    # Binary numbers: 73.2 less 68.7 is not 4.5 exactly, and bounds are compared with it.
    return Effect(round(first.value - second.value, decimals), decimals)


def combined(cells: Sequence[str]) -> Effect:
    """The difference of two cells, or the difference of two such differences.

    Args:
        cells: two or four of them, each as its row, its table and its column: "ldam 4.5 K=5". The
            number of a part of the classes has its name at the end: "ldam 4.5 K=5 few".
    """
    numbers = [_number(*cell.split(" ")) for cell in cells]
    decimals = max(number.decimals for number in numbers)
    signs = (1, -1, -1, 1)
    points = sum(sign * one.points for sign, one in zip(signs, numbers, strict=False))
    return Effect(round(points, decimals), decimals)


def _number(row: str, table: str, column: str, part: str = "") -> Effect:
    """A cell, as the effect of something without any points."""
    cell = PUBLISHED[table][row, column]
    value = cell.shots[_PARTS.index(part)] if part else cell.value
    return Effect(value, cell.decimals)


def published(study: str, contrast: str) -> tuple[Effect, ...]:
    """The published effects of a primary contrast in a study; none if nothing was published."""
    return _effects().get((study, contrast), ())


def largest(effects: Sequence[Effect]) -> float:
    """The effect that is farthest from 0, in points."""
    return max((effect.points for effect in effects), key=abs)


def is_inside(effects: Sequence[Effect], found: Contrast) -> bool:
    """Whether the 95 % interval of a difference has the largest effect inside."""
    return abs(largest(effects) / 100 - found.estimate) <= found.half_width


@cache
def _effects() -> dict[tuple[str, str], tuple[Effect, ...]]:
    content = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return {
        (study, one["contrast"]): tuple(effect(one["losses"], *cell) for cell in one["cells"])
        for one in content["effects"]
        for study in one["studies"]
    }
