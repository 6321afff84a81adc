"""Tables and figures have one idea of the same run."""

import json

import pytest

from tests.parts.program.configurations import changed
from tests.parts.program.papers.finished_runs import finish
from train.foundation.errors import UserError
from train.papers.figures import selection
from train.run.runs import FIELDS_OF_THE_MACHINE, all_fields
from train.series.planned_runs import PlannedRun
from train.series.recipe import Recipe
from train.series.runs_folder import RunsFolder, Status

OTHER_VALUES = {
    "dataset.data_dir": "/elsewhere",
    "dataset.num_workers": 3,
    "dataset.skip_unreadable": True,
    "checkpoint.every_steps": 7,
    "checkpoint.every_minutes": 1.5,
    "parallel": "mesh",
    "class_devices": 2,
    "model.remat": True,
    "compilation_cache": False,
    "trackers": ("mlflow",),
}


@pytest.fixture
def planned():
    return PlannedRun(Recipe("digits", "noised_balanced"), 0)


def make(folder, name, config):
    finish(folder, name, config, test={"top_1_accuracy": 0.5}, best_epoch=1)
    return str(folder / name)


def test_all_fields_of_the_machine_are_tried():
    assert OTHER_VALUES.keys() == FIELDS_OF_THE_MACHINE


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_run_on_another_machine_is_the_same_for_tables_and_figures(tmp_path, planned, name):
    elsewhere = changed(planned.config, {name: OTHER_VALUES[name]})
    assert all_fields(elsewhere) != all_fields(planned.config)
    other = make(tmp_path, "other", elsewhere)
    folder = RunsFolder(tmp_path)
    assert folder.status(planned) is Status.FINISHED
    assert folder.workdir(planned) == tmp_path / "other"
    ours = make(tmp_path, "ours", planned.config)
    with pytest.raises(UserError, match="the same experiment with the same seed, 0"):
        selection.check_seeds(selection.read([ours, other]))
    seed = make(tmp_path, "seed", {**elsewhere, "seed": 1})
    selection.check_seeds(selection.read([ours, seed]))


def test_another_optimizer_makes_another_run(tmp_path, planned):
    other = make(tmp_path, "other", changed(planned.config, {"optimizer.name": "adamw"}))
    assert RunsFolder(tmp_path).status(planned) is Status.ABSENT
    ours = make(tmp_path, "ours", {**planned.config, "seed": 1})
    with pytest.raises(UserError, match=r"differ in optimizer\.name: 'sgd' -> 'adamw'"):
        selection.check_seeds(selection.read([ours, other]))


def test_a_run_is_found_under_any_name_and_an_unfinished_one_gone_on_with(tmp_path, planned):
    config = {**planned.config, "dataset": {**planned.config["dataset"], "data_dir": "/elsewhere"}}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    folder = RunsFolder(tmp_path)
    assert (folder.workdir(planned), folder.status(planned)) == (
        tmp_path / "mine",
        Status.UNFINISHED,
    )
    # A finished one is preferred, wherever it is in the order of the names.
    for name in ("a", "z"):
        finish(tmp_path, name, config, test={"top_1_accuracy": 0.5})
        folder = RunsFolder(tmp_path)
        assert folder.status(planned) is Status.FINISHED
        assert folder.workdir(planned).name in ("a", "z")


def test_a_changed_run_in_the_planned_place_is_not_taken(tmp_path, planned):
    config = {**planned.config, "num_epochs": 2}
    finish(tmp_path, planned.name, config, test={"top_1_accuracy": 0.5, "top_3_accuracy": 0.5})
    folder = RunsFolder(tmp_path)
    assert folder.foreign(planned) == ["num_epochs: 30 -> 2"]
    assert folder.status(planned) is Status.ABSENT
    assert folder.finished(planned) is None
