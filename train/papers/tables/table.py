"""A table: rows and columns of cells. Each cell is a number that is read from finished runs."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from train.papers.tables.readings import Reading
from train.series.planner import Arm, Search
from train.series.recipe import Recipe
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
        """The number and its interval as a `Summary`, to be compared with that of runs."""
        return Summary(self.value, self.half_width)


@dataclass(frozen=True)
class Cell:
    """A number of a table.

    Attributes:
        recipe: the recipe of its runs, before the search.
        metric: the number that is read from each run.
        published: the number that it is compared with.
        search: finds some parameters of the recipe first; None if nothing is tuned.
    """

    recipe: Recipe
    metric: Reading
    published: Published | None = None
    search: Search | None = None

    @property
    def arm(self) -> Arm:
        """What its runs are of."""
        return Arm(self.recipe, self.search, self.metric.of_evaluation)


@dataclass(frozen=True)
class Table:
    """Rows and columns of cells. Some places may be empty.

    Attributes:
        number: the number in the paper, such as 4.4.
        title: what is measured, and on which data.
        rows: the labels of the rows, by their keys on the command line.
        columns: the heads of the columns, by their keys on the command line.
        cells: the cells by (row, column).
        seeds: the seeds that each cell is run with.
        note: what a reader of the numbers has to know.
        on: the embedded data set; None for that of the paper.
        has_best: whether the runs report what the best classifier reaches, which is then a row.
    """

    number: str
    title: str
    rows: Mapping[str, str]
    columns: Mapping[str, str]
    cells: Mapping[tuple[str, str], Cell]
    seeds: tuple[int, ...]
    note: str = ""
    on: str | None = None
    has_best: bool = False

    @property
    def is_in_per_cent(self) -> bool:
        """Whether all its numbers are shares."""
        return all(cell.metric.is_share for cell in self.cells.values())

    @property
    def name(self) -> str:
        """The table as the command line names it."""
        return f"table {self.number}" + (f" on {self.on}" if self.on else "")

    def part(self, rows: Sequence[str] | None, columns: Sequence[str] | None) -> "Table":
        """The table with only these rows and columns, in its own order; None keeps all."""
        kept_rows = {key: text for key, text in self.rows.items() if rows is None or key in rows}
        kept_columns = {
            key: text for key, text in self.columns.items() if columns is None or key in columns
        }
        places = itertools.product(kept_rows, kept_columns)
        return replace(
            self,
            rows=kept_rows,
            columns=kept_columns,
            cells={place: self.cells[place] for place in places if place in self.cells},
        )
