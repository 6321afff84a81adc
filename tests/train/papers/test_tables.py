"""The papers' tables: their numbers, the runs behind each, and what is made of finished runs."""

import importlib
import json
import math
import re
import signal
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from tests.train.papers.test_tables_command import finish
from train import configuration
from train.evaluation import metric
from train.evaluation.metric import Metric
from train.foundation.errors import InterruptedRunError, UserError
from train.foundation.nested import flatten
from train.papers import statistics
from train.papers.statistics import Summary
from train.papers.tables import collecting, display, execution, json_output
from train.papers.tables.catalogue import CATALOGUE, THESIS
from train.papers.tables.planned_runs import PlannedRun
from train.papers.tables.planning import Planner, tunings
from train.papers.tables.published import PUBLISHED
from train.papers.tables.readings import (
    CountBin,
    FirstEpochMean,
    LastEpoch,
    ResultMetric,
    SetSizeShare,
)
from train.papers.tables.runs_folder import RunsFolder, Status
from train.papers.tables.table import Cell, Published, Recipe, Table, Tuning, grid
from train.training.steps_in_flight import DivergedError

# The number, and the data set where it is an embedded one.
NAMES = {key: " on ".join(filter(None, key)) for key in CATALOGUE}


# The numbers


@pytest.mark.parametrize("number", THESIS)
def test_every_published_number_has_its_cell(number):
    table = CATALOGUE[number, None]
    assert table.cells.keys() == PUBLISHED[number].keys()
    assert {row for row, _ in table.cells} == set(table.rows)
    assert {column for _, column in table.cells} == set(table.columns)
    for place, cell in table.cells.items():
        assert cell.published == PUBLISHED[number][place]
        if isinstance(cell.metric, ResultMetric):
            assert bool(cell.published.shots) == cell.metric.with_shots
            # Tables 4.2 and 4.3 are of the best validation accuracy.
            assert cell.metric.split == ("validation" if number in ("4.2", "4.3") else "test")


def test_published_numbers_are_those_that_the_recipes_cite():
    # The two were written down apart from each other.
    cited = {
        ("4.4", "cifar100"): ("p=0", "p=0.1", "p=0.2", "p=0.3", "p=0.4"),
        ("4.5", "plantnet300k"): ("K=1", "K=3", "K=5"),
        ("4.6", "imagenet_lt"): ("K=1", "K=3", "K=5"),
        ("4.9", "imagenet"): ("K=1", "K=5"),
        ("5.1", "cifar100"): ("K=5",),
        ("5.2", "plantnet300k_average_k"): ("K=2", "K=3", "K=5", "K=10"),
    }
    for (number, config), columns in cited.items():
        words = importlib.import_module(f"configs.{config}").__doc__
        for row in CATALOGUE[number, None].rows:
            ours = [PUBLISHED[number][row, column].value for column in columns]
            lines = re.findall(rf"\b{row} +([\d. ]+\d)", words)
            theirs = [[float(value) for value in line.split()] for line in lines]
            assert ours in theirs, (number, row)


def test_a_published_number_is_read_as_it_is_printed():
    read = Published.parse("36.3±0.3 (12.6/42.9/71.7)")
    assert read == Published(36.3, 0.3, (12.6, 42.9, 71.7), decimals=1)
    assert Published.parse("9") == Published(9.0, None, (), decimals=0)
    with pytest.raises(ValueError, match="not a published number"):
        Published.parse("36.3 ± 0.3")


# The runs


@pytest.mark.parametrize("key", CATALOGUE, ids=NAMES.values())
@pytest.mark.slow
def test_every_run_of_a_table_can_be_made_and_leaves_the_cells_metric(key):
    table = CATALOGUE[key]
    for cell in table.cells.values():
        config = PlannedRun(cell.recipe, 0).config
        configuration.check(config)
        selectable = metric.selectable(config["eval"]["ks"])
        if isinstance(cell.metric, ResultMetric):
            metrics = (cell.metric, *cell.metric.shots.values())
            assert {one.metric for one in metrics} <= set(selectable)
    for tuning in tunings(table):
        for candidate in tuning.candidates:
            config = PlannedRun(tuning.recipe.changed(candidate), 0).config
            configuration.check(config)
            assert tuning.metric in metric.selectable(config["eval"]["ks"])


CONFIGURATIONS = {
    ("3.1", "50-500", "accuracy"): {
        "dataset.name": "plantnet300k",
        "model.name": "resnet50",
        "loss.name": "cross_entropy",
        "optimizer.learning_rate": 0.01,
        "optimizer.decay_epochs": [20, 25],
    },
    ("4.2", "noised_balanced", "epsilon=1e-3"): {
        "dataset.name": "cifar100",
        "loss.k": 5,
        "loss.epsilon": 0.001,
        "loss.num_samples": 10,
        "dataset.label_noise": 0.0,
    },
    ("4.3", "noised_balanced", "M=50"): {"loss.epsilon": 0.2, "loss.num_samples": 50},
    ("4.4", "smooth_top_k_hinge", "p=0.3"): {
        "loss.tau": 1.0,
        "loss.k": 5,
        "dataset.label_noise": 0.3,
        "select_by": "top_5_accuracy",
        "dataset.holdout": "permuted",
    },
    ("4.5", "noised_imbalanced", "K=3"): {
        "loss.k": 3,
        "loss.epsilon": 0.01,
        "loss.max_margin": 0.2,
        "loss.scale": 60.0,
        "select_by": "macro_top_3_accuracy",
    },
    ("4.5", "cross_entropy", "K=1"): {"select_by": "macro_top_1_accuracy"},
    ("4.6", "smooth_top_k_hinge", "K=1"): {
        "dataset.name": "imagenet_lt",
        "loss.k": 1,
        "loss.tau": 0.1,
        "select_by": "macro_top_1_accuracy",
    },
    ("4.8", "ldam", "K=10"): {"select_by": "macro_top_10_accuracy"},
    ("4.9", "noised_balanced", "K=1"): {
        "loss.k": 1,
        "loss.epsilon": 0.5,
        "select_by": "top_1_accuracy",
        "optimizer.weight_decay": 1.5e-4,
    },
    ("5.1", "cross_entropy", "K=5"): {
        "dataset.holdout": "balanced",
        "select_by": "average_5_accuracy",
    },
    ("5.1", "noised_balanced", "K=5"): {
        "dataset.holdout": "balanced",
        "select_by": "average_5_accuracy",
        "loss.epsilon": 0.2,
    },
    ("5.2", "average_k", "K=10"): {
        "model.name": "resnet18",
        "loss.k": 10,
        "loss.alpha": 5.0,
        "select_by": "average_10_accuracy",
    },
    ("5.2", "assume_negative", "K=2"): {"select_by": "average_2_accuracy"},
}


@pytest.mark.parametrize("place", CONFIGURATIONS, ids=" ".join)
def test_a_cell_is_run_as_the_thesis_says(place):
    number, row, column = place
    recipe = CATALOGUE[number, None].cells[row, column].recipe
    config = dict(flatten(PlannedRun(recipe, 0).config))
    expected = CONFIGURATIONS[place]
    assert {name: config[name] for name in expected} == expected


def keys(number, *places):
    cells = CATALOGUE[number, None].cells
    return {PlannedRun(cells[place].recipe, 0).key for place in places or cells}


def test_cells_share_the_runs_that_are_the_same():
    assert keys("4.7") == keys("4.4")
    assert keys("4.5") < keys("4.8")
    p0 = keys("4.4", ("noised_balanced", "p=0"))
    assert keys("4.3", ("noised_balanced", "M=10")) == p0
    assert p0 < keys("4.4")
    # In chapter 5 other images are held out, and another metric selects.
    assert not keys("5.1") & keys("4.4")


def test_a_runs_folder_is_named_after_what_is_changed(tmp_path):
    recipe = Recipe("digits", "focal", (("loss.gamma", 2.0), ("model.name", "mlp")))
    assert PlannedRun(recipe, 3).name == "digits-focal-model=mlp-gamma=2.0-seed=3"
    # Whatever is written out that the recipe has anyway, it is the same run in the same place.
    same = recipe.changed({"num_epochs": 30})
    assert PlannedRun(same, 3).name == PlannedRun(recipe, 3).name
    assert PlannedRun(same, 3).key == PlannedRun(recipe, 3).key
    # Where the data lie changes nothing of the run; a parameter does.
    assert PlannedRun(recipe, 3, ("dataset.data_dir=/data",)).key == PlannedRun(recipe, 3).key
    assert PlannedRun(recipe, 3, ("dataset.data_dir=/data",)).name == PlannedRun(recipe, 3).name
    shorter = PlannedRun(recipe, 3, ("num_epochs=2",))
    assert shorter.key != PlannedRun(recipe, 3).key
    # Each has a place, so that a trial is not in the way of the run.
    assert shorter.name == "digits-focal-model=mlp-gamma=2.0-num_epochs=2-seed=3"
    # No file system takes a name of 300 letters; two that begin alike are two all the same.
    long = [PlannedRun(recipe, 3, (f"model.pretrained={300 * 'a'}{end}",)).name for end in "bc"]
    assert len(set(long)) == 2
    assert max(map(len, long)) < 220
    assert PlannedRun(recipe, 4).key != PlannedRun(recipe, 3).key


def test_rows_and_columns_can_be_left_out():
    part = CATALOGUE["4.4", None].part(["noised_balanced", "cross_entropy"], ["p=0.2"])
    assert list(part.cells) == [("cross_entropy", "p=0.2"), ("noised_balanced", "p=0.2")]
    assert list(part.rows) == ["cross_entropy", "noised_balanced"]
    assert list(part.columns) == ["p=0.2"]


# The statistics


def test_the_interval_is_students():
    # t with 2 degrees of freedom at 97.5 %, from a table: 4.3027; the deviation is 1.
    summary = statistics.summarize([70.0, 71.0, 72.0])
    assert summary.mean == pytest.approx(71.0)
    # As many digits as the table has.
    assert summary.half_width == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert statistics.summarize([70.0]) == Summary(70.0, None)


def test_an_interval_covers_the_mean_as_often_as_it_says(rng):
    covered = [
        abs(summary.mean) <= summary.half_width
        for summary in map(statistics.summarize, rng.normal(size=(2000, 4)))
    ]
    # Four standard deviations of a frequency of 0.95 in 2,000 draws.
    assert np.mean(covered) == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 2000))


@pytest.mark.parametrize(
    ("ours", "published", "where"),
    [
        (Summary(72.0, 0.5), "71.0±0.4", "above"),
        (Summary(70.0, 0.5), "71.0±0.4", "below"),
        (Summary(71.5, 0.5), "71.0±0.4", None),
        # Each interval alone would be too short.
        (Summary(71.75, 0.5), "71.0±0.5", None),
        # As far apart as both together; all four numbers are exact.
        (Summary(71.5, 0.25), "71.0±0.25", None),
        (Summary(71.75, 0.5), "71.0", "above"),
        (Summary(99.0, None), "71.0±0.4", None),
    ],
)
def test_what_differs_by_more_than_both_intervals(ours, published, where):
    assert statistics.compare(ours, Published.parse(published).summary) == where


@pytest.mark.parametrize(
    ("scores", "smaller", "selected"),
    [
        ([[0.1, 0.2], [0.3, 0.2], [0.2, 0.2]], False, 1),
        ([[0.1, 0.2], [0.3, 0.2], [0.2, 0.2]], True, 0),
        ([[0.2], [0.3], [0.3]], False, 1),
        ([[0.3], [0.2], [0.2]], True, 1),
        ([[0.9, None], [0.3, 0.2]], False, 1),
        ([[float("nan")], [0.3]], False, 1),
        ([[None], [None]], False, None),
    ],
)
def test_the_best_mean_is_selected_and_the_first_of_equals(scores, smaller, selected):
    assert statistics.best(scores, smaller_is_better=smaller) == selected


def test_a_grid_has_every_combination():
    assert grid(gamma=(1, 2), tau=(3,)) == (
        (("loss.gamma", 1), ("loss.tau", 3)),
        (("loss.gamma", 2), ("loss.tau", 3)),
    )


# A folder of made-up runs


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


def test_the_grid_comes_first_and_selects_the_final_runs(tmp_path):
    plan = look(tmp_path).plan(TUNED)
    assert gammas(plan.grid) == [(g, seed) for g in (0.5, 1.0, 2.0) for seed in (0, 1)]
    assert [(run.recipe.loss, run.seed) for run in plan.finals] == [
        ("cross_entropy", 1),
        ("cross_entropy", 2),
    ]
    # The two cells of focal have the same runs.
    assert plan.waiting == 2
    for run, score in zip(plan.grid, (0.5, 0.6, 0.9, 0.6, 0.7, 0.7), strict=True):
        assert look(tmp_path).tuned(TUNING).selected is None
        finish(tmp_path, run.name, run.config, validation={"top_3_accuracy": score})
    tuned = look(tmp_path).tuned(TUNING)
    assert tuned.scores == ((0.5, 0.6), (0.9, 0.6), (0.7, 0.7))
    assert (tuned.to_go, tuned.selected) == (0, 1)
    plan = look(tmp_path).plan(TUNED)
    assert plan.waiting == 0
    # By seed, so that every cell has a number early; seed 1 is of the grid and is not made twice.
    assert [(run.recipe.loss, run.seed) for run in plan.runs[6:]] == [
        ("cross_entropy", 1),
        ("focal", 2),
        ("cross_entropy", 2),
    ]
    assert gammas(plan.runs[7:8]) == [(1.0, 2)]


def test_candidates_can_be_selected_by_their_last_epoch(tmp_path, capsys):
    tuning = replace(TUNING, at_last_epoch=True, seeds=(0,))
    table = one_cell(LastEpoch(TOP_3.metric))
    cells = {place: replace(cell, tuning=tuning) for place, cell in table.cells.items()}
    table = replace(table, cells=cells)
    last = (0.7, 0.5, 0.6)
    for run, score in zip(look(tmp_path).plan(table).grid, last, strict=True):
        # The selected epochs would have it the other way round.
        finish(tmp_path, run.name, run.config, validation={"top_3_accuracy": 1 - score})
        lines = [
            {"step": 1, "epoch": 1, "split": "validation", "top_3_accuracy": 1 - score},
            {"step": 2, "epoch": 2, "split": "validation", "top_3_accuracy": score},
        ]
        log(tmp_path, run, lines)
    tuned = look(tmp_path).tuned(tuning)
    assert (tuned.scores, tuned.selected) == (tuple((score,) for score in last), 0)
    collected = collecting.collect(table, look(tmp_path, table))
    assert json_output.to_json(collected)["tuning"][0]["epoch"] == "last"
    display.show(collected)
    assert "after the last epoch" in " ".join(capsys.readouterr().out.split())


def test_a_candidate_that_diverged_is_ruled_out(tmp_path):
    runs = look(tmp_path).plan(TUNED).grid
    for run in runs:
        if gammas([run]) == [(1.0, 1)]:
            diverge(tmp_path, run)
            assert RunsFolder(tmp_path).status(run) is Status.DIVERGED
        else:
            finish(tmp_path, run.name, run.config, validation={"top_3_accuracy": run.seed + 0.1})
    tuned = look(tmp_path).tuned(TUNING)
    assert tuned.scores[1] == (0.1, None)
    assert (tuned.to_go, tuned.selected) == (0, 0)


def test_nothing_waits_for_a_grid_that_diverged_everywhere(tmp_path, capsys):
    for run in look(tmp_path).plan(TUNED).grid:
        diverge(tmp_path, run)
    planner = look(tmp_path)
    assert planner.tuned(TUNING).failed
    assert planner.plan(TUNED).waiting == 0
    collected = collecting.collect(TUNED, planner)
    assert collected.numbers["focal", "K=1"].diverged == TUNED.seeds
    assert collected.to_go == 2
    display.show(collected)
    rows = [re.split(r"\s{2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert ["focal", "diverged", "diverged"] in rows
    assert ["gamma = 0.5", "-", "diverged"] in rows


def test_a_run_is_found_under_any_name_and_an_unfinished_one_gone_on_with(tmp_path):
    run = PlannedRun(BASE, 0)
    config = {**run.config, "dataset": {**run.config["dataset"], "data_dir": "/elsewhere"}}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    folder = RunsFolder(tmp_path)
    assert (folder.workdir(run), folder.status(run)) == (tmp_path / "mine", Status.UNFINISHED)
    # A finished one is preferred, wherever it is in the order of the names.
    for name in ("a", "z"):
        finish(tmp_path, name, config, test={"top_1_accuracy": 0.5})
        folder = RunsFolder(tmp_path)
        assert folder.status(run) is Status.FINISHED
        assert folder.workdir(run).name in ("a", "z")


def test_a_changed_run_in_the_planned_place_is_not_taken(tmp_path):
    run = PlannedRun(BASE, 1)
    config = {**run.config, "num_epochs": 2}
    finish(tmp_path, run.name, config, test={"top_1_accuracy": 0.5, "top_3_accuracy": 0.5})
    folder = RunsFolder(tmp_path)
    assert folder.foreign(run) == ["num_epochs: 30 -> 2"]
    assert folder.status(run) is Status.ABSENT
    assert folder.finished(run) is None


def test_numbers_are_per_cent_and_some_runs_have_none(tmp_path):
    metric = ResultMetric(Metric.accuracy("top", 1, "macro"), with_shots=True)
    cell = Cell(BASE, metric, Published.parse("60.0±0.1 (1/2/3)"))
    table = replace(TUNED, cells={("focal", "K=1"): cell}, seeds=(0, 1, 2, 3))
    for seed, value in enumerate((0.7, 0.72)):
        test = {
            "macro_top_1_accuracy": value,
            "few_top_1_accuracy": None,
            "medium_top_1_accuracy": value - 0.1,
            "many_top_1_accuracy": 0.9,
        }
        run = PlannedRun(BASE, seed)
        finish(tmp_path, run.name, run.config, test=test)
    diverge(tmp_path, PlannedRun(BASE, 2))
    collected = collecting.collect(table, look(tmp_path, table))
    number = collected.numbers["focal", "K=1"]
    # Rounding of float64.
    assert number.values.by_seed == pytest.approx({0: 70.0, 1: 72.0}, rel=1e-12)
    assert number.shots["few"].summary is None
    assert number.shots["medium"].by_seed == pytest.approx({0: 60.0, 1: 62.0}, rel=1e-12)
    assert (number.to_go, number.diverged, collected.to_go) == (1, (2,), 1)
    # 12.7062 is the quantile of t with one degree of freedom; the deviation is √2.
    assert number.summary.half_width == pytest.approx(12.7062, rel=1e-4)
    assert number.differs is None


def one_cell(metric):
    cells = {("focal", "K=1"): Cell(BASE, metric)}
    return replace(TUNED, cells=cells, seeds=(0,))


def test_a_share_of_sets_is_that_of_the_examples_of_all_shots(tmp_path):
    table, run = one_cell(SetSizeShare(3, size=1)), PlannedRun(BASE, 0)
    counts = {"average_3": {"all": [1, 6, 13], "few": [0, 1, 0]}, "average_1": {"all": [0, 20, 0]}}
    evaluation = {"split": "test", "set_size_counts": counts}
    finish(tmp_path, run.name, run.config, evaluation=evaluation)
    collected = collecting.collect(table, look(tmp_path, table))
    assert collected.numbers["focal", "K=1"].values.by_seed == {0: 30.0}
    [cell] = json_output.to_json(collected)["cells"]
    assert cell["metric"] == {"name": "average_3_share_of_size_1", "split": "test"}
    for broken in ({}, {"average_3": {}}, {"average_3": {"all": []}}, {"average_3": {"all": [0]}}):
        evaluation["set_size_counts"] = broken
        finish(tmp_path, run.name, run.config, evaluation=evaluation)
        with pytest.raises(UserError, match=r"cannot be read as what train\.evaluate leaves"):
            collecting.collect(table, look(tmp_path, table))


def test_a_metric_of_the_last_epoch_is_that_of_validation(tmp_path):
    table, run = one_cell(LastEpoch(TOP_1.metric)), PlannedRun(BASE, 0)
    finish(tmp_path, run.name, run.config)
    lines = [
        {"step": 10, "epoch": 1, "split": "validation", "top_1_accuracy": 0.75},
        {"step": 20, "epoch": 2, "split": "validation", "top_1_accuracy": 0.5},
        {"step": 20, "epoch": 2, "split": "train", "top_1_accuracy": 0.25},
    ]
    log(tmp_path, run, lines)
    collected = collecting.collect(table, look(tmp_path, table))
    assert collected.numbers["focal", "K=1"].values.by_seed == {0: 50.0}
    (cell,) = json_output.to_json(collected)["cells"]
    assert cell["metric"] == {"name": "top_1_accuracy", "split": "validation", "epoch": "last"}
    # No example counted for it.
    log(tmp_path, run, [lines[0] | {"top_1_accuracy": None}])
    collected = collecting.collect(table, look(tmp_path, table))
    assert collected.numbers["focal", "K=1"].summary is None
    log(tmp_path, run, [{"step": 10, "epoch": 1, "split": "validation"}])
    with pytest.raises(UserError, match=r"has no validation top_1_accuracy after the last epoch"):
        collecting.collect(table, look(tmp_path, table))


def test_a_mean_of_the_first_epoch_weighs_steps_alike_and_is_no_share(tmp_path, capsys):
    table, run = one_cell(FirstEpochMean("nonzero_gradients")), PlannedRun(BASE, 0)
    finish(tmp_path, run.name, run.config)
    lines = [
        {"step": 10, "epoch": 1, "split": "train", "nonzero_gradients": 2.0},
        {"step": 15, "epoch": 1, "split": "train", "nonzero_gradients": 5.0},
        {"step": 15, "epoch": 1, "split": "validation", "nonzero_gradients": 7.0},
        {"step": 25, "epoch": 2, "split": "train", "nonzero_gradients": 9.0},
    ]
    path = log(tmp_path, run, lines)
    collected = collecting.collect(table, look(tmp_path, table))
    assert collected.numbers["focal", "K=1"].values.by_seed == {0: 3.0}
    assert json_output.to_json(collected)["unit"] == "as it is"
    display.show(collected)
    assert " 3.00" in capsys.readouterr().out
    path.unlink()
    with pytest.raises(UserError, match=r"there is no .*metrics\.jsonl"):
        collecting.collect(table, look(tmp_path, table))


# Making runs, by commands that take no time


LEAVES_RESULTS = """
import json, pathlib, sys
workdir, config = pathlib.Path(sys.argv[1]), sys.argv[2]
workdir.mkdir(parents=True, exist_ok=True)
(workdir / "config.json").write_text(config)
print("trained")
metrics = {"top_1_accuracy": 0.5, "top_3_accuracy": json.loads(config)["loss"].get("gamma", 0)}
results = {"validation": metrics, "test": metrics}
(workdir / "results.json").write_text(json.dumps(results))
"""
FAILS = "print('error: no room'); raise SystemExit(3)"
LEAVES_NOTHING = "print('done')"
DIVERGES = f"print('error: {DivergedError('at step 3')}'); raise SystemExit(2)"
STOPS_ALL = """
import os, signal, sys
def stop(number, frame):
    print("saved")
    sys.exit(128 + number)
number = int(sys.argv[3])
signal.signal(number, stop)
os.kill(os.getppid(), number)
signal.pause()
"""

# For the alarm, if for nothing else: so that a lost signal does not hang the tests.
WAITS = "import signal; signal.alarm(60); signal.pause()"
POPEN = subprocess.Popen


@pytest.fixture
def made(monkeypatch):
    """The runs made in order, each by the script that `scripts` has for it or by the default."""
    order, scripts = [], {}

    def training(run, workdir):
        order.append((run.recipe.loss, run.config["loss"].get("gamma"), run.seed))
        script, *rest = scripts.get(order[-1], (LEAVES_RESULTS,))
        return ["-c", script, str(workdir), json.dumps(run.config), *rest]

    monkeypatch.setattr(PlannedRun, "training", training)
    return order, scripts


def test_runs_are_made_once_in_order_and_the_grid_decides(tmp_path, made, capsys):
    order, _ = made
    result = execution.execute(TUNED, lambda: look(tmp_path))
    assert not result.failed
    grid_runs = [("focal", g, seed) for g in (0.5, 1.0, 2.0) for seed in (0, 1)]
    finals = [("cross_entropy", 1.0, 1), ("focal", 2.0, 2), ("cross_entropy", 1.0, 2)]
    assert order == grid_runs + finals
    printed = capsys.readouterr().out
    # Nine are made; one of the ten that could be is of the grid too.
    assert "run 1 of 10: digits-focal-gamma=0.5-seed=0\n" in printed
    assert re.search(r"run 9 of 9: digits-cross_entropy-seed=2 \(about \d+ s left\)\n", printed)
    assert "trained" in (tmp_path / "digits-focal-gamma=2.0-seed=2.log").read_text()
    order.clear()
    assert not execution.execute(TUNED, lambda: look(tmp_path)).ended
    assert order == []
    # What was lost is made again, and nothing else.
    (tmp_path / "digits-focal-gamma=2.0-seed=2" / "results.json").unlink()
    execution.execute(TUNED, lambda: look(tmp_path))
    assert order == [("focal", 2.0, 2)]


def test_a_failed_run_does_not_stop_the_others(tmp_path, made, capsys):
    order, scripts = made
    scripts["focal", 0.5, 0] = (FAILS,)
    scripts["cross_entropy", 1.0, 2] = (LEAVES_NOTHING,)
    result = execution.execute(TUNED, lambda: look(tmp_path))
    assert result.failed == {
        "digits-focal-gamma=0.5-seed=0": "error: no room",
        "digits-cross_entropy-seed=2": "the command ended well, and left no results",
    }
    # The final runs of focal wait for the whole grid.
    assert ("focal", 2.0, 2) not in order
    assert "failed after 0 s: error: no room (see " in capsys.readouterr().out
    order.clear()
    scripts.clear()
    assert not execution.execute(TUNED, lambda: look(tmp_path)).failed
    # A failed run is tried again.
    assert order == [("focal", 0.5, 0), ("focal", 2.0, 2), ("cross_entropy", 1.0, 2)]


def test_a_run_that_diverges_is_not_made_again(tmp_path, made):
    order, scripts = made
    scripts["focal", 2.0, 0] = (DIVERGES,)
    result = execution.execute(TUNED, lambda: look(tmp_path))
    assert list(result.failed) == ["digits-focal-gamma=2.0-seed=0"]
    # The grid selects without it.
    assert order[-2] == ("focal", 1.0, 2)
    order.clear()
    execution.execute(TUNED, lambda: look(tmp_path))
    assert order == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_ends_all(tmp_path, made, number):
    order, scripts = made
    scripts["focal", 0.5, 1] = (STOPS_ALL, str(int(number)))
    before = signal.getsignal(number)
    with pytest.raises(InterruptedRunError, match="the same command goes on") as raised:
        execution.execute(TUNED, lambda: look(tmp_path))
    assert raised.value.number == number
    assert order == [("focal", 0.5, 0), ("focal", 0.5, 1)]
    # It had time to save.
    assert (tmp_path / "digits-focal-gamma=0.5-seed=1.log").read_text() == "saved\n"
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_run_is_started_reaches_it(tmp_path, made, monkeypatch, number):
    _, scripts = made
    scripts["focal", 0.5, 0] = (WAITS,)
    started = []

    def interrupted(*arguments, **options):
        started.append(POPEN(*arguments, **options))
        signal.raise_signal(number)
        return started[0]

    monkeypatch.setattr(execution.subprocess, "Popen", interrupted)
    with pytest.raises(InterruptedRunError, match="the same command goes on"):
        execution.execute(TUNED, lambda: look(tmp_path))
    assert [process.returncode for process in started] == [-number]


def test_an_evaluation_follows_the_run_it_is_wanted_of(tmp_path, made, monkeypatch):
    order, _ = made
    evaluates = (
        "import json, pathlib, sys; path = pathlib.Path(sys.argv[1]) / 'evaluation_test.json'; "
        "path.write_text(json.dumps({'split': 'test', 'accuracy_by_count': "
        "[{'from': 10, 'to': 50, 'top_1_accuracy': 0.25}]}))"
    )
    monkeypatch.setattr(
        PlannedRun, "evaluation", lambda _, workdir: ["-c", evaluates, str(workdir)]
    )
    plain, counted = TOP_1, CountBin(10, 50)
    cells = {
        ("focal", "K=1"): Cell(BASE, plain),
        ("focal", "K=3"): Cell(BASE, counted),
        ("cross_entropy", "K=3"): Cell(BASE, plain),
    }
    table = replace(TUNED, cells=cells, seeds=(0,))
    assert not execution.execute(table, lambda: look(tmp_path, table)).failed
    assert len(order) == 1
    numbers = collecting.collect(table, look(tmp_path, table)).numbers
    assert [number.summary.mean for number in numbers.values()] == [50.0, 25.0, 50.0]
    # Where the evaluation alone is missing, it alone is made.
    (tmp_path / PlannedRun(BASE, 0).name / "evaluation_test.json").unlink()
    execution.execute(table, lambda: look(tmp_path, table))
    assert collecting.collect(table, look(tmp_path, table)).to_go == 0
    trained = (tmp_path / f"{PlannedRun(BASE, 0).name}.log").read_text()
    assert trained == "trained\n"
