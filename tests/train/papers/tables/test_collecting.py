"""The numbers of a table, read from finished runs."""

from dataclasses import replace

import pytest

from tests.train.papers.finished_runs import finish
from tests.train.papers.tables.made_up_runs import BASE, TUNED, diverge, log, look, one_cell
from train.evaluation.metric import Metric
from train.foundation.errors import UserError
from train.papers.tables import collecting, display, json_output
from train.papers.tables.readings import (
    FirstEpochMean,
    ResultMetric,
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
