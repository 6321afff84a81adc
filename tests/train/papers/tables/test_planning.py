"""The runs of a table: what is planned, what tuning selects, and what is found in a folder."""

import json
import re

from tests.train.papers.finished_runs import finish
from tests.train.papers.tables.made_up_runs import (
    BASE,
    TUNED,
    TUNING,
    diverge,
    gammas,
    look,
)
from train.papers.tables import collecting, display
from train.series.planned_runs import PlannedRun
from train.series.runs_folder import RunsFolder, Status


def test_the_grid_comes_first_and_selects_the_final_runs(tmp_path):
    plan = look(tmp_path).plan(TUNED)
    assert gammas(plan.grid) == [(g, seed) for g in (0.5, 1.0, 2.0) for seed in (0, 1)]
    assert [(run.recipe.choice, run.seed) for run in plan.finals] == [
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
    assert [(run.recipe.choice, run.seed) for run in plan.runs[6:]] == [
        ("cross_entropy", 1),
        ("focal", 2),
        ("cross_entropy", 2),
    ]
    assert gammas(plan.runs[7:8]) == [(1.0, 2)]


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
