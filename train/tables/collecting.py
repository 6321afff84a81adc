"""The finished runs of a table to its numbers, in per cent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from train.errors import UserError
from train.tables import statistics
from train.tables.planning import Planner, Tuned, tunings
from train.tables.runs import Run, Status
from train.tables.statistics import Summary
from train.tables.table import Cell, CountBin, Metric, Recipe, Table

_PER_CENT = 100.0


@dataclass(frozen=True)
class Number:
    """What the runs of a cell have come to.

    Attributes:
        cell: the cell.
        recipe: its runs, with what tuning selected; None before it has.
        values: by seed, of the finished runs that have a value; few-shot classes may be missing.
        shots: the mean over these seeds on few, medium and many shot classes.
        to_go: how many runs are not finished.
        diverged: the seeds whose runs came to numbers that are not finite; all, where every
            candidate of the tuning did.
        is_tuned: False while its tuning goes on.
    """

    cell: Cell
    recipe: Recipe | None
    values: Mapping[int, float]
    shots: Mapping[str, float | None]
    to_go: int
    diverged: tuple[int, ...] = ()
    is_tuned: bool = True

    @property
    def summary(self) -> Summary | None:
        """The mean and its interval; None without a value."""
        return statistics.summarize(list(self.values.values())) if self.values else None

    @property
    def differs(self) -> Literal["above", "below"] | None:
        """Where it lies if it differs from the published value by more than both intervals."""
        if self.summary is None or self.cell.published is None:
            return None
        return statistics.compare(self.summary, self.cell.published)


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
        to_go=sum(folder.status(run) in (Status.ABSENT, Status.UNFINISHED) for run in plan.runs)
        + plan.waiting,
    )


def _number(cell: Cell, planner: Planner) -> Number:
    runs = planner.finals(cell)
    if runs is None:
        failed = cell.tuning is not None and planner.tuned(cell.tuning).failed
        diverged = planner.seeds if failed else ()
        return Number(cell, None, {}, {}, to_go=0, diverged=diverged, is_tuned=failed)
    folder = planner.folder
    statuses = {run: folder.status(run) for run in runs}
    finished = [run for run, status in statuses.items() if status is Status.FINISHED]
    read = {run.seed: _read(run, cell.metric, planner) for run in finished}
    names = cell.metric.shots if isinstance(cell.metric, Metric) else {}
    by_shot = {
        shot: [_metric(run, cell.metric.split, name, planner) for run in finished]
        for shot, name in names.items()
        if isinstance(cell.metric, Metric)
    }
    return Number(
        cell=cell,
        recipe=runs[0].recipe,
        values={seed: value for seed, value in read.items() if value is not None},
        shots={shot: _mean(values) for shot, values in by_shot.items()},
        to_go=sum(s in (Status.ABSENT, Status.UNFINISHED) for s in statuses.values()),
        diverged=tuple(run.seed for run, s in statuses.items() if s is Status.DIVERGED),
    )


def _read(run: Run, metric: Metric | CountBin, planner: Planner) -> float | None:
    if isinstance(metric, Metric):
        return _metric(run, metric.split, metric.name, planner)
    for found in planner.folder.accuracy_by_count(run):
        if (found.get("from"), found.get("to")) == (metric.above, metric.up_to):
            return _per_cent(found.get("top_1_accuracy"))
    raise UserError(
        f"{planner.folder.workdir(run)} has no accuracy on classes with more than {metric.above} "
        f"training images{'' if metric.up_to is None else f', up to {metric.up_to}'}"
    )


def _metric(run: Run, split: str, name: str, planner: Planner) -> float | None:
    results = planner.folder.results(run) or {}
    if name not in results.get(split, {}):
        raise UserError(f"the results in {planner.folder.workdir(run)} have no {name} on {split}")
    return _per_cent(results[split][name])


def _best(table: Table, planner: Planner) -> dict[str, tuple[float, tuple[float | None, ...]]]:
    """By column, from any finished run: the best does not depend on the run."""
    found = {}
    for (_, column), cell in table.cells.items():
        if column in found or not isinstance(cell.metric, Metric):
            continue
        for run in planner.finals(cell) or ():
            results = planner.folder.results(run)
            best: Mapping[str, Any] = (results or {}).get("bayes", {})
            value = _per_cent(best.get(cell.metric.name))
            if value is not None:
                shots = tuple(_per_cent(best.get(name)) for name in cell.metric.shots.values())
                found[column] = (value, shots)
                break
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _per_cent(value: Any) -> float | None:
    return None if value is None else _PER_CENT * float(value)


def to_json(collected: Collected) -> dict[str, Any]:
    """The numbers for other programs, in per cent."""
    table = collected.table
    return {
        "table": table.number,
        "on": table.on,
        "title": table.title,
        "unit": "per cent",
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
    cell, summary, published = number.cell, number.summary, number.cell.published
    metric = cell.metric
    recipe = number.recipe or cell.recipe
    return {
        "config": recipe.file,
        "overrides": dict(recipe.overrides),
        "metric": {"name": metric.name, "split": metric.split}
        if isinstance(metric, Metric)
        else {"name": "top_1_accuracy", "split": "test", "above": metric.above, "to": metric.up_to},
        "values": {str(seed): value for seed, value in number.values.items()},
        "mean": None if summary is None else summary.mean,
        "half_width": None if summary is None else summary.half_width,
        "shots": dict(number.shots),
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


def _tuned_to_json(tuned: Tuned) -> dict[str, Any]:
    tuning = tuned.tuning
    return {
        "config": tuning.recipe.file,
        "overrides": dict(tuning.recipe.overrides),
        "metric": tuning.metric,
        "split": "validation",
        "seeds": list(tuning.seeds),
        "candidates": [
            {"overrides": dict(candidate), "values": list(scores)}
            for candidate, scores in zip(tuning.candidates, tuned.scores, strict=True)
        ],
        "selected": None if tuned.selected is None else dict(tuning.candidates[tuned.selected]),
        "runs_to_go": tuned.to_go,
    }
