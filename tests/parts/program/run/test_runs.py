"""Two runs are the same if only the machine differs; what a command writes replaces none of one."""

import json

import pytest

from configs import digits
from tests.parts.program.configurations import changed
from train.foundation.errors import UserError
from train.run.output_files import checked
from train.run.runs import FIELDS_OF_THE_MACHINE, StoredRun, key, run_name

CONFIG = json.loads(digits.get_config().to_json())


def test_a_field_with_its_default_is_not_in_the_name():
    for group, field in (("optimizer", "decay_epochs"), ("optimizer", "name"), ("model", "width")):
        config = changed(CONFIG, {"optimizer.decay_epochs": []})
        name = run_name(config)
        assert run_name(changed(config, {f"{group}.{field}": "other"})) != name
        del config[group][field]
        assert run_name(config) == name


def test_runs_differ_by_what_their_results_depend_on():
    for name in FIELDS_OF_THE_MACHINE:
        elsewhere = changed(CONFIG, {name: "elsewhere"})
        assert (key(elsewhere), run_name(elsewhere)) == (key(CONFIG), run_name(CONFIG))
    # A recipe may have an integer where a run writes a real number.
    recipe, written = (changed(CONFIG, {"optimizer.weight_decay": zero}) for zero in (0, 0.0))
    assert key(recipe) == key(written)
    other = changed(CONFIG, {"seed": 1})
    assert key(other) != key(CONFIG)
    assert run_name(other) != run_name(CONFIG)


def test_a_run_is_read_from_its_configuration_and_finished_with_its_results(tmp_path):
    assert StoredRun.read(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    run = StoredRun.read(tmp_path)
    assert run.fields["optimizer.name"] == "sgd"
    assert not run.is_finished
    with pytest.raises(UserError, match="has no finished run"):
        _ = run.results
    results = {"config": CONFIG, "best_epoch": 1, "best_step": 1, "num_classes": 10, "test": {}}
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert StoredRun.read(tmp_path).results == results


def test_the_files_of_a_run_are_refused_also_before_they_are_there(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    kept = ("config.json", "results.json", "sets.json", "outcomes_test.npz", "metrics.jsonl")
    for name in (*kept, "checkpoints/mine.json"):
        for folder in ("run", "link"):
            with pytest.raises(UserError, match=r"^--out must not be a file of a run; got "):
                checked("out", tmp_path / folder / name)
    for name in ("run/evaluation_test.json", "run/sets.jsonl", "results.json"):
        assert checked("out", tmp_path / name) == tmp_path / name


def test_nothing_is_written_into_a_prepared_data_set(tmp_path):
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(UserError, match=r"^--out must not be in a prepared data set; got "):
        checked("out", tmp_path / "mine.json")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", "must be a file; got an empty text"),
        ("/dev/null", "must be a file; got /dev/null"),
        ("{}", "must be a file"),
        ("{}/gone/report.json", "must be in an existing folder that may be written to"),
        ("{}/report.txt", "must be a file whose suffix is"),
        ("{}/scores.json", "must not be the file of --scores"),
    ],
)
def test_what_cannot_be_written_is_told_before_the_work(tmp_path, place, message):
    kept = {tmp_path / "scores.json": "the file of --scores"}
    with pytest.raises(UserError, match=f"^--out {message}"):
        checked("out", place.format(tmp_path), kept, suffixes=(".json",))
