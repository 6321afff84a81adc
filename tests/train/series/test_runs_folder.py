"""The runs that are found in a folder."""

import json

from tests.train.papers.finished_runs import finish
from tests.train.series.made_up_arms import BASE
from train.series.planned_runs import PlannedRun
from train.series.runs_folder import RunsFolder, Status


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
