"""The numbers of a table, read from its finished runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from train.papers.tables.readings import Reading, ResultMetric, per_cent
from train.papers.tables.table import Cell, Table
from train.series import collecting, statistics
from train.series.collecting import Collected, Finals
from train.series.planner import Planner
from train.series.statistics import Values


@dataclass(frozen=True)
class CellNumbers:
    """A cell with the numbers of its runs.

    Attributes:
        cell: the cell.
        finals: its runs, with the selected candidate of the search.
        values: the numbers of the finished runs.
        shots: the same on few, medium and many shot classes.
        diverged: the seeds whose training diverged; all seeds if every candidate diverged.
    """

    cell: Cell
    finals: Finals
    values: Values
    shots: Mapping[str, Values]
    diverged: tuple[int, ...]

    @property
    def differs(self) -> Literal["above", "below"] | None:
        """Our side of the published value if the two differ by more than both intervals."""
        if self.values.summary is None or self.cell.published is None:
            return None
        return statistics.compare(self.values.summary, self.cell.published.summary)


@dataclass(frozen=True)
class TableNumbers:
    """A table with its numbers.

    Attributes:
        table: the table.
        seeds: the seeds of its cells.
        overrides: the fields that the user changed in all runs.
        numbers: the numbers by (row, column).
        best: what the best classifier reaches by column, also on few, medium and many shot
            classes. Columns without a finished run are left out.
        collected: what has ended of its runs.
    """

    table: Table
    seeds: tuple[int, ...]
    overrides: tuple[str, ...]
    numbers: Mapping[tuple[str, str], CellNumbers]
    best: Mapping[str, tuple[float, tuple[float | None, ...]]]
    collected: Collected


def collect(table: Table, planner: Planner) -> TableNumbers:
    """Reads the numbers of the finished runs.

    Raises:
        UserError: a file of a finished run cannot be read, or has no such metric.
    """
    collected = collecting.collect(planner)
    numbers = {
        place: _number(cell, collected.finals[cell.arm], planner.seeds)
        for place, cell in table.cells.items()
    }
    return TableNumbers(
        table=table,
        seeds=planner.seeds,
        overrides=planner.overrides,
        numbers=numbers,
        best=_best(numbers) if table.has_best else {},
        collected=collected,
    )


def _number(cell: Cell, finals: Finals, seeds: tuple[int, ...]) -> CellNumbers:
    def values(reading: Reading) -> Values:
        return Values.known({seed: reading.read(run) for seed, run in finals.finished.items()})

    # It is known with the runs, like the recipe.
    of_shots = cell.metric.shots if finals.planned else {}
    shots = {shot: values(reading) for shot, reading in of_shots.items()}
    diverged = seeds if finals.tuned.failed else finals.diverged
    return CellNumbers(cell, finals, values(cell.metric), shots, diverged)


def _best(
    numbers: Mapping[tuple[str, str], CellNumbers],
) -> dict[str, tuple[float, tuple[float | None, ...]]]:
    """The best by column. It does not depend on the run: any finished one has it."""
    found = {}
    for (_, column), number in numbers.items():
        metric = number.cell.metric
        if column in found or not isinstance(metric, ResultMetric):
            continue
        for run in number.finals.finished.values():
            best: Mapping[str, Any] = run.results.get("bayes", {})
            value = per_cent(best.get(metric.name))
            if value is not None:
                shots = tuple(per_cent(best.get(shot.name)) for shot in metric.shots.values())
                found[column] = (value, shots)
                break
    return found
