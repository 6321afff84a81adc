"""The finished runs of a table to its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from train.evaluation.metric import Metric, rule_name
from train.papers import statistics
from train.papers.statistics import Summary
from train.papers.tables import readings
from train.papers.tables.planning import Planner, Tuned, tunings
from train.papers.tables.runs_folder import TO_MAKE, Status
from train.papers.tables.table import (
    AnyMetric,
    Cell,
    CountBin,
    FirstEpochMean,
    LastEpoch,
    Recipe,
    ResultMetric,
    SetSizeShare,
    Table,
)


@dataclass(frozen=True)
class Values:
    """A number of each run, by seed; a run may have none, as of few-shot classes."""

    by_seed: Mapping[int, float]

    @classmethod
    def of(cls, found: Mapping[int, float | None]) -> "Values":
        """What was found, None where a run has none."""
        return cls({seed: value for seed, value in found.items() if value is not None})

    @property
    def summary(self) -> Summary | None:
        """The mean and its interval; None without a value."""
        return statistics.summarize(list(self.by_seed.values())) if self.by_seed else None


@dataclass(frozen=True)
class Number:
    """What the runs of a cell have come to.

    Attributes:
        cell: the cell.
        recipe: its runs, with what tuning selected; None before it has.
        values: those of the finished runs.
        shots: the same on few, medium and many shot classes.
        to_go: how many runs are not finished.
        diverged: the seeds whose runs came to numbers that are not finite; all, where every
            candidate of the tuning did.
        is_tuned: False while its tuning goes on.
    """

    cell: Cell
    recipe: Recipe | None
    values: Values
    shots: Mapping[str, Values]
    to_go: int
    diverged: tuple[int, ...] = ()
    is_tuned: bool = True

    @property
    def summary(self) -> Summary | None:
        """The mean and its interval; None without a value."""
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
        seeds: those of its cells.
        overrides: what the user changed in all runs.
        numbers: by (row, column).
        best: by column, what the best classifier reaches, with few, medium and many; empty where
            no finished run of the column says it.
        tuned: its tunings.
        foreign: the folders that have a run's name and another run in them, and how it differs.
        to_go: the runs that are not finished, as far as they are known.
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
    """Reads what the finished runs left.

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
    metric = cell.metric
    shots = metric.shots if isinstance(metric, ResultMetric) else {}

    def values(metric: AnyMetric) -> Values:
        return Values.of({seed: readings.read(metric, run) for seed, run in finished.items()})

    return Number(
        cell=cell,
        recipe=runs[0].recipe,
        values=values(metric),
        shots={shot: values(metric) for shot, metric in shots.items()},
        to_go=sum(s in TO_MAKE for s in statuses.values()),
        diverged=tuple(run.seed for run, s in statuses.items() if s is Status.DIVERGED),
    )


def _best(table: Table, planner: Planner) -> dict[str, tuple[float, tuple[float | None, ...]]]:
    """By column, from any finished run: the best does not depend on the run."""
    found = {}
    for (_, column), cell in table.cells.items():
        if column in found or not isinstance(cell.metric, ResultMetric):
            continue
        for planned in planner.finals(cell) or ():
            run = planner.folder.finished(planned)
            best: Mapping[str, Any] = {} if run is None else run.results.get("bayes", {})
            value = readings.per_cent(best.get(cell.metric.name))
            if value is not None:
                shots = cell.metric.shots.values()
                of_shots = tuple(readings.per_cent(best.get(shot.name)) for shot in shots)
                found[column] = (value, of_shots)
                break
    return found


def to_json(collected: Collected) -> dict[str, Any]:
    """The numbers for other programs."""
    table = collected.table
    return {
        "table": table.number,
        "on": table.on,
        "title": table.title,
        "unit": "per cent" if table.is_in_per_cent else "as it is",
        "interval": "95 %, Student's t over seeds",
        "seeds": list(collected.seeds),
        "changed_in_all_runs": list(collected.overrides),
        "cells": [
            {"row": row, "column": column, **_number_to_json(number)}
            for (row, column), number in collected.numbers.items()
        ],
        "best": {
            column: {"value": value, "shots": list(shots)}
            for column, (value, shots) in collected.best.items()
        },
        "tuning": [_tuned_to_json(tuned) for tuned in collected.tuned],
        "runs_to_go": collected.to_go,
    }


def _number_to_json(number: Number) -> dict[str, Any]:
    cell, published = number.cell, number.cell.published
    recipe = number.recipe or cell.recipe
    return {
        "config": recipe.file,
        "overrides": dict(recipe.overrides),
        "metric": _metric_to_json(cell.metric),
        **_values_to_json(number.values),
        "shots": {shot: _values_to_json(values) for shot, values in number.shots.items()},
        "published": None
        if published is None
        else {
            "value": published.value,
            "half_width": published.half_width,
            "shots": list(published.shots),
        },
        "differs": number.differs,
        "runs_to_go": number.to_go if number.is_tuned else None,
        "diverged": list(number.diverged),
    }


def _values_to_json(values: Values) -> dict[str, Any]:
    summary = values.summary
    return {
        "values": {str(seed): value for seed, value in values.by_seed.items()},
        "mean": None if summary is None else summary.mean,
        "half_width": None if summary is None else summary.half_width,
    }


def _metric_to_json(metric: AnyMetric) -> dict[str, Any]:
    match metric:
        case ResultMetric():
            return {"name": metric.name, "split": metric.split}
        case CountBin():
            bounds = {"above": metric.above, "to": metric.up_to}
            return {"name": Metric.accuracy("top", 1).name, "split": "test", **bounds}
        case SetSizeShare():
            rule = rule_name("average", metric.k)
            return {"name": f"{rule}_share_of_size_{metric.size}", "split": "test"}
        case LastEpoch():
            return {"name": metric.metric.name, "split": "validation", "epoch": "last"}
        case FirstEpochMean():
            return {"name": metric.name, "split": "train", "epoch": 1}


def _tuned_to_json(tuned: Tuned) -> dict[str, Any]:
    tuning = tuned.tuning
    return {
        "config": tuning.recipe.file,
        "overrides": dict(tuning.recipe.overrides),
        "metric": tuning.metric.name,
        "split": "validation",
        **({"epoch": "last"} if tuning.at_last_epoch else {}),
        "seeds": list(tuning.seeds),
        "candidates": [
            {"overrides": dict(candidate), "values": list(scores)}
            for candidate, scores in zip(tuning.candidates, tuned.scores, strict=True)
        ],
        "selected": None if tuned.selected is None else dict(tuning.candidates[tuned.selected]),
        "runs_to_go": tuned.to_go,
    }
