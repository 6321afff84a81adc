"""The runs of arms: what is known of them, and what a search selects."""

import shutil

from tests.parts.program.papers.finished_runs import finish
from tests.parts.program.series.made_up_arms import ARMS, SEARCH, diverge, gammas, look
from train.series.planner import Arm, Planner
from train.series.runs_folder import RunsFolder


def test_the_first_of_the_best_candidates_is_selected_and_no_run_is_made_twice(tmp_path):
    planner = look(tmp_path)
    assert planner.waiting == 2
    for run, score in zip(planner.runs[:3], (0.5, 0.9, 0.9), strict=True):
        assert look(tmp_path).tuned(SEARCH).selected is None
        finish(tmp_path, run.name, run.config, validation={"top_3_accuracy": score})
    planner = look(tmp_path)
    assert planner.tuned(SEARCH).fields == (("loss.gamma", 1.0),)
    assert planner.waiting == 0
    # By seed, so that every arm has a number early; seed 0 is of the search and not made twice.
    assert [(run.recipe.choice, run.seed) for run in planner.runs[3:]] == [
        ("cross_entropy", 0),
        ("focal", 2),
        ("cross_entropy", 2),
    ]
    assert gammas(planner.runs[4:5]) == [(1.0, 2)]


def test_arms_share_a_search_and_each_has_its_runs(tmp_path):
    other = Arm(SEARCH.recipe.changed({"num_epochs": 2}), SEARCH)
    # An arm that is named twice has its runs once.
    planner = look(tmp_path, [*ARMS, other, ARMS[0]])
    assert gammas(planner.runs[:3]) == [(0.5, 0), (1.0, 0), (2.0, 0)]
    assert (len(planner.runs), planner.waiting) == (5, 2 * 2)


def test_the_network_of_a_run_may_be_an_override(tmp_path):
    overrides = ("model.name=mlp", "model.start_from=runs/{model.name}")
    folder = RunsFolder(tmp_path)
    (run,) = Planner(folder, [ARMS[1]], [0], overrides=overrides).runs
    assert run.config["model"]["start_from"] == "runs/mlp"


def test_the_log_of_a_run_that_was_removed_is_not_of_the_next_one(tmp_path):
    first = look(tmp_path).runs[0]
    diverge(tmp_path, first)
    assert first not in look(tmp_path).to_make
    shutil.rmtree(tmp_path / first.name)
    assert look(tmp_path).to_make[0] == first
