"""The numbers of a table, read from its finished runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from train.evaluation.metric import Metric
from train.papers.tables.planning import Planner, Tuned, tunings
from train.papers.tables.readings import Reading, ResultMetric, per_cent
from train.papers.tables.table import Cell, Table
from train.series import statistics
from train.series.recipe import Recipe
from train.series.runs_folder import TO_MAKE, Status
from train.series.statistics import Summary


@dataclass(frozen=True)
class Values:
    """The numbers of runs by seed. A run can lack one, for example without few-shot classes."""

    by_seed: Mapping[int, float]

    @classmethod
    def of(cls, found: Mapping[int, float | None]) -> "Values":
        """The numbers that are not None."""
        return cls({seed: value for seed, value in found.items() if value is not None})

    @property
    def summary(self) -> Summary | None:
        """The mean and its interval; None if there are no numbers."""
        return statistics.summarize(list(self.by_seed.values())) if self.by_seed else None


@dataclass(frozen=True)
class Number:
    """A cell with the numbers of its runs.

    Attributes:
        cell: the cell.
        recipe: the recipe of its runs, with the selected candidate of the tuning; None before one
            is selected.
        values: the numbers of the finished runs.
        shots: the same on few, medium and many shot classes.
        to_go: the number of runs that are not finished.
        diverged: the seeds whose training diverged; all seeds if every candidate diverged.
        is_tuned: whether its tuning has ended.
        selected_by: the metrics on validation that selected the epochs of the finished runs.
    """

    cell: Cell
    recipe: Recipe | None
    values: Values
    shots: Mapping[str, Values]
    to_go: int
    diverged: tuple[int, ...] = ()
    is_tuned: bool = True
    selected_by: tuple[Metric, ...] = ()

    @property
    def summary(self) -> Summary | None:
        """The mean and its interval; None if there are no numbers."""
        return self.values.summary

    @property
    def differs(self) -> Literal["above", "below"] | None:
        """Where it lies if it differs from the published value by more than both intervals."""
        if self.summary is None or self.cell.published is None:
            return None
        return statistics.compare(self.summary, self.cell.published.summary)


@dataclass(frozen=True)
class Collected:
    """A table with its numbers.

    Attributes:
        table: the table.
        seeds: the seeds of its cells.
        overrides: the fields that the user changed in all runs.
        numbers: the numbers by (row, column).
        best: what the best classifier reaches by column, also on few, medium and many shot
            classes. Columns without a finished run are left out.
        tuned: its tunings.
        foreign: by folder, how the run in it differs from the planned run of that name.
        to_go: the number of known runs that are not finished.
    """

    table: Table
    seeds: tuple[int, ...]
    overrides: tuple[str, ...]
    numbers: Mapping[tuple[str, str], Number]
    best: Mapping[str, tuple[float, tuple[float | None, ...]]]
    tuned: tuple[Tuned, ...]
    foreign: Mapping[str, list[str]]
    to_go: int


def collect(table: Table, planner: Planner) -> Collected:
    """Reads the numbers of the finished runs.

    Raises:
        UserError: a file of a finished run cannot be read, or has no such metric.
    """
    plan = planner.plan(table)
    folder = planner.folder
    foreign = {str(folder.workdir(run)): folder.foreign(run) for run in plan.runs}
    return Collected(
        table=table,
        seeds=planner.seeds,
        overrides=planner.overrides,
        numbers={place: _number(cell, planner) for place, cell in table.cells.items()},
        best=_best(table, planner) if table.has_best else {},
        tuned=tuple(planner.tuned(tuning) for tuning in tunings(table)),
        foreign={path: differing for path, differing in foreign.items() if differing},
        to_go=sum(folder.status(run) in TO_MAKE for run in plan.runs) + plan.waiting,
    )


def _number(cell: Cell, planner: Planner) -> Number:
    runs = planner.finals(cell)
    if runs is None:
        failed = cell.tuning is not None and planner.tuned(cell.tuning).failed
        diverged = planner.seeds if failed else ()
        return Number(cell, None, Values({}), {}, to_go=0, diverged=diverged, is_tuned=failed)
    folder = planner.folder
    statuses = {run: folder.status(run) for run in runs}
    finished = {
        planned.seed: run
        for planned, status in statuses.items()
        if status is Status.FINISHED and (run := folder.finished(planned)) is not None
    }

    def values(reading: Reading) -> Values:
        return Values.of({seed: reading.read(run) for seed, run in finished.items()})

    return Number(
        cell=cell,
        recipe=runs[0].recipe,
        values=values(cell.metric),
        shots={shot: values(reading) for shot, reading in cell.metric.shots.items()},
        to_go=sum(s in TO_MAKE for s in statuses.values()),
        diverged=tuple(run.seed for run, s in statuses.items() if s is Status.DIVERGED),
        selected_by=tuple(Metric.parse(run.fields["select_by"]) for run in finished.values()),
    )


def _best(table: Table, planner: Planner) -> dict[str, tuple[float, tuple[float | None, ...]]]:
    """The best by column. It does not depend on the run: any finished one has it."""
    found = {}
    for (_, column), cell in table.cells.items():
        if column in found or not isinstance(cell.metric, ResultMetric):
            continue
        for planned in planner.finals(cell) or ():
            run = planner.folder.finished(planned)
            best: Mapping[str, Any] = {} if run is None else run.results.get("bayes", {})
            value = per_cent(best.get(cell.metric.name))
            if value is not None:
                shots = cell.metric.shots.values()
                of_shots = tuple(per_cent(best.get(shot.name)) for shot in shots)
                found[column] = (value, of_shots)
                break
    return found
