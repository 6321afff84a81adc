"""The numbers of a table, read from finished runs."""

import re
from dataclasses import replace

import pytest

from tests.parts.program.papers.finished_runs import finish
from tests.parts.program.papers.tables.made_up_runs import TUNED, collect, look
from tests.parts.program.series.made_up_arms import BASE, SEARCH, diverge
from train.papers.tables import outputs
from train.papers.tables.published import Published
from train.papers.tables.readings import ResultMetric
from train.papers.tables.table import Cell
from train.reports.metric import Metric
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
    numbers = collect(tmp_path, table)
    number = numbers.numbers["focal", "K=1"]
    # Rounding of float64.
    assert number.values == pytest.approx({0: 70.0, 1: 72.0}, rel=1e-12)
    assert number.shots["few"].summary is None
    assert number.shots["medium"] == pytest.approx({0: 60.0, 1: 62.0}, rel=1e-12)
    assert (number.finals.to_go, number.diverged, numbers.collected.to_go) == (1, (2,), 1)
    # 12.7062 is the quantile of t with one degree of freedom; the deviation is √2.
    assert number.values.summary.half_width == pytest.approx(12.7062, rel=1e-4)
    assert number.differs is None


def test_a_search_that_diverged_everywhere_is_told(tmp_path, capsys):
    for run in look(tmp_path).tuned(SEARCH).runs:
        diverge(tmp_path, run)
    numbers = collect(tmp_path)
    assert numbers.numbers["focal", "K=1"].diverged == TUNED.seeds
    assert numbers.collected.to_go == 2
    outputs.show(numbers)
    rows = [re.split(r"\s{2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert ["focal", "diverged", "diverged"] in rows
    assert ["gamma = 0.5", "-", "diverged"] in rows


def test_the_json_has_the_search_and_what_it_selected(tmp_path):
    metric = ResultMetric(Metric.accuracy("top", 1, "macro"), with_shots=True)
    cells = {("focal", "K=1"): Cell(BASE, metric, search=SEARCH)}
    table = replace(TUNED, cells=cells, seeds=(1, 2))
    (cell,) = outputs.to_plain(collect(tmp_path, table))["cells"]
    assert (cell["overrides"], cell["shots"], cell["runs_to_go"]) == ({}, {}, None)
    scores = {0.5: 0.3, 1.0: 0.9, 2.0: 0.6}
    for run, score in zip(look(tmp_path).tuned(SEARCH).runs, scores.values(), strict=True):
        finish(tmp_path, run.name, run.config, validation={"top_3_accuracy": score})
    plain = outputs.to_plain(collect(tmp_path, table))
    (cell,) = plain["cells"]
    assert (cell["overrides"], cell["runs_to_go"]) == ({"loss.gamma": 1.0}, 2)
    assert cell["shots"]["few"] == {"values": {}, "mean": None, "half_width": None}
    assert plain["tuning"] == [
        {
            "config": "configs/digits.py:focal",
            "overrides": {},
            "metric": "top_3_accuracy",
            "split": "validation",
            "seeds": [0],
            "candidates": [
                {"overrides": {"loss.gamma": gamma}, "values": [score]}
                for gamma, score in scores.items()
            ],
            "selected": {"loss.gamma": 1.0},
            "runs_to_go": 0,
        }
    ]
