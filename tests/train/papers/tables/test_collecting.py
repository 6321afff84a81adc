"""The numbers of a table, read from finished runs."""

from dataclasses import replace

import pytest

from tests.train.papers.finished_runs import finish
from tests.train.papers.tables.made_up_runs import BASE, TOP_1, TUNED, diverge, log, look, one_cell
from train.evaluation.metric import Metric
from train.foundation.errors import UserError
from train.papers.tables import collecting, display, json_output
from train.papers.tables.readings import (
    FirstEpochMean,
    LastEpoch,
    ResultMetric,
    SetSizeShare,
)
from train.papers.tables.table import Cell, Published
from train.series.planned_runs import PlannedRun


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


def test_a_share_of_sets_is_that_of_the_examples_of_all_shots(tmp_path):
    table, run = one_cell(SetSizeShare(3, size=1)), PlannedRun(BASE, 0)
    counts = {"average_3": {"all": [1, 6, 13], "few": [0, 1, 0]}, "average_1": {"all": [0, 20, 0]}}
    evaluation = {"split": "test", "set_size_counts": counts}
    finish(tmp_path, run.name, run.config, evaluation=evaluation)
    collected = collecting.collect(table, look(tmp_path, table))
    assert collected.numbers["focal", "K=1"].values.by_seed == {0: 30.0}
    [cell] = json_output.to_json(collected)["cells"]
    assert cell["metric"] == {"name": "average_3_share_of_size_1", "split": "test"}
    # Counts end with the largest set.
    evaluation["set_size_counts"] = {"average_3": {"all": [20]}}
    finish(tmp_path, run.name, run.config, evaluation=evaluation)
    collected = collecting.collect(table, look(tmp_path, table))
    assert collected.numbers["focal", "K=1"].values.by_seed == {0: 0.0}
    for broken in ({}, {"average_3": {}}, {"average_3": {"all": []}}, {"average_3": {"all": [0]}}):
        evaluation["set_size_counts"] = broken
        finish(tmp_path, run.name, run.config, evaluation=evaluation)
        with pytest.raises(UserError, match="cannot be read as an evaluation"):
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
