"""The runs of arms: what is planned, and what a search selects."""

from tests.train.papers.finished_runs import finish
from tests.train.series.made_up_arms import ARMS, SEARCH, diverge, gammas, look
from train.series.planner import Arm
from train.series.runs_folder import RunsFolder, Status


def test_the_search_comes_first_and_selects_the_other_runs(tmp_path):
    planner = look(tmp_path)
    assert gammas(planner.runs[:3]) == [(0.5, 0), (1.0, 0), (2.0, 0)]
    assert [(run.recipe.choice, run.seed) for run in planner.runs[3:]] == [
        ("cross_entropy", 0),
        ("cross_entropy", 2),
    ]
    assert planner.waiting == 2
    for run, score in zip(planner.runs[:3], (0.5, 0.9, 0.9), strict=True):
        assert look(tmp_path).tuned(SEARCH).selected is None
        finish(tmp_path, run.name, run.config, validation={"top_3_accuracy": score})
    tuned = look(tmp_path).tuned(SEARCH)
    assert [trials[0].score for trials in tuned.trials] == [0.5, 0.9, 0.9]
    # The first of equals.
    assert (tuned.to_go, tuned.selected, tuned.fields) == (0, 1, (("loss.gamma", 1.0),))
    planner = look(tmp_path)
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


def test_a_candidate_that_diverged_is_not_selected(tmp_path):
    for run in look(tmp_path).tuned(SEARCH).runs:
        if gammas([run]) == [(1.0, 0)]:
            diverge(tmp_path, run)
            assert RunsFolder(tmp_path).status(run) is Status.DIVERGED
        else:
            finish(tmp_path, run.name, run.config, validation={"top_3_accuracy": 0.1})
    tuned = look(tmp_path).tuned(SEARCH)
    assert [trials[0].score for trials in tuned.trials] == [0.1, None, 0.1]
    assert (tuned.to_go, tuned.selected) == (0, 0)


def test_nothing_waits_for_a_search_that_diverged_everywhere(tmp_path):
    for run in look(tmp_path).tuned(SEARCH).runs:
        diverge(tmp_path, run)
    assert look(tmp_path).tuned(SEARCH).failed
    assert look(tmp_path).waiting == 0
    assert look(tmp_path).finals(ARMS[0]) is None
