"""The numbers of `published.toml`, and how they are written there."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from train.series.statistics import Summary

_PUBLISHED = re.compile(
    r"(?P<value>\d+(?:\.(?P<decimals>\d+))?)"
    r"(?:±(?P<half_width>[\d.]+))?"
    r"(?: \((?P<shots>[\d./]+)\))?"
)


@dataclass(frozen=True)
class Published:
    """A published number in per cent.

    Attributes:
        value: the number.
        half_width: half the width of its 95 % interval; None if none was published.
        shots: the numbers for few, medium and many shot classes; empty if none were published.
        decimals: the number of decimals that were printed.
    """

    value: float
    half_width: float | None
    shots: tuple[float, ...]
    decimals: int

    @classmethod
    def parse(cls, text: str) -> "Published":
        """The number as the papers write it: `36.3±0.3 (12.6/42.9/71.7)`."""
        match = _PUBLISHED.fullmatch(text)
        if match is None:
            raise ValueError(f"not a published number: {text!r}")
        half_width, shots = match["half_width"], match["shots"]
        return cls(
            value=float(match["value"]),
            half_width=None if half_width is None else float(half_width),
            shots=() if shots is None else tuple(map(float, shots.split("/"))),
            decimals=len(match["decimals"] or ""),
        )

    @property
    def summary(self) -> Summary:
        """The number and its interval as a `Summary`, to be compared with the summary of runs."""
        return Summary(self.value, self.half_width)


def _read() -> dict[str, dict[tuple[str, str], Published]]:
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    found = {}
    for number, rows in tomllib.loads(text).items():
        columns = rows.pop("columns")
        found[number] = {
            (row, column): Published.parse(cell)
            for row, cells in rows.items()
            for column, cell in zip(columns, cells, strict=True)
        }
    return found


# The published values by table, row and column.
PUBLISHED = _read()
