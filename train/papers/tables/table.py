"""A table: rows and columns of cells. Each cell is a number that is read from finished runs."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from train.papers.tables.published import Published
from train.papers.tables.readings import Reading
from train.series.planner import Arm
from train.series.recipe import Recipe
from train.series.search import Search


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
        """The arm of its runs."""
        return Arm(self.recipe, self.search)


@dataclass(frozen=True)
class Table:
    """Rows and columns of cells. Some places may be empty.

    A figure of a paper is a table, too, if its runs are planned and its numbers are collected.

    Attributes:
        number: the number in the paper, such as 4.4.
        title: what is measured, and on which data.
        rows: the labels of the rows, by their keys on the command line.
        columns: the heads of the columns, by their keys on the command line.
        cells: the cells by (row, column).
        seeds: the seeds that each cell is run with.
        note: what a reader of the numbers has to know.
        on: the embedded data set; None for the paper's.
        has_best: whether the runs report what the best classifier reaches, which is then a row.
        is_figure: whether the number is the number of a figure, and not of a table of the paper.
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
    is_figure: bool = False

    @property
    def name(self) -> str:
        """The table in messages."""
        kind = "figure" if self.is_figure else "table"
        return f"{kind} {self.number}" + (f" on {self.on}" if self.on else "")

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
