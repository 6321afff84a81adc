"""A table, and what its runs leave in a folder, made without training."""

import json
from dataclasses import replace

from train.evaluation.metric import Metric
from train.papers.tables.planning import Planner
from train.papers.tables.readings import ResultMetric
from train.papers.tables.table import Cell, Table, Tuning, grid
from train.series.recipe import Recipe
from train.series.runs_folder import RunsFolder
from train.training.steps_in_flight import DivergedError

BASE = Recipe("digits", "focal")
TOP_1 = ResultMetric(Metric.accuracy("top", 1))
TOP_3 = ResultMetric(Metric.accuracy("top", 3))
TUNING = Tuning(BASE, grid(gamma=(0.5, 1.0, 2.0)), TOP_3.metric, seeds=(0, 1))
TUNED = Table(
    number="1.1",
    title="accuracy",
    rows={"focal": "focal", "cross_entropy": "cross-entropy"},
    columns={"K=1": "K = 1", "K=3": "K = 3"},
    cells={
        ("focal", "K=1"): Cell(BASE, TOP_1, tuning=TUNING),
        ("focal", "K=3"): Cell(BASE, TOP_3, tuning=TUNING),
        ("cross_entropy", "K=3"): Cell(Recipe("digits", "cross_entropy"), TOP_3),
    },
    seeds=(1, 2),
)


def look(folder, table=TUNED):
    return Planner(RunsFolder(folder), table.seeds)


def gammas(runs):
    return [(run.config["loss"]["gamma"], run.seed) for run in runs]


def log(folder, run, lines):
    """Writes what a run logs as it goes, and returns the file."""
    path = folder / run.name / "metrics.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def diverge(folder, run):
    """What a run leaves that came to numbers that are not finite."""
    (folder / run.name).mkdir(parents=True)
    (folder / run.name / "config.json").write_text(json.dumps(run.config))
    (folder / f"{run.name}.log").write_text(f"epoch 1/2\nerror: {DivergedError('at step 3')}\n\n")


def one_cell(metric):
    cells = {("focal", "K=1"): Cell(BASE, metric)}
    return replace(TUNED, cells=cells, seeds=(0,))
