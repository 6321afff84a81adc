"""What the command line names for writing: a run's own files are never replaced."""

import re

import pytest

from train.data.own import image_records
from train.foundation.errors import UserError
from train.papers.figures import drawing
from train.workdir import output_files


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    (folder / "checkpoints" / "7" / "state").mkdir(parents=True)
    for name in ("config.json", "classes.json", "evaluation_test.json"):
        (folder / name).write_text("{}")
    (tmp_path / "link").symlink_to(folder)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "results.json", "metrics.jsonl", "classes.json", "calibration.json"),
        *("data.json", "skipped_images.jsonl", "learning_curves.png", "lock"),
        *("outcomes_test.npz", "checkpoints/7/out", "checkpoints/7/state/_METADATA"),
    ],
)
@pytest.mark.parametrize("folder", ["run", "link", "run/../link"])
def test_the_files_of_a_run_are_refused_also_before_they_are_there(tmp_path, run, folder, name):
    with pytest.raises(UserError) as caught:
        output_files.checked("out", f"{tmp_path}/{folder}/{name}")
    first = name.split("/", maxsplit=1)[0]
    message = f"--out must not replace {first} of the run in {run}; got {run}/{name}"
    assert str(caught.value) == message


def test_a_path_from_the_folder_of_the_run_is_refused_too(run, monkeypatch):
    monkeypatch.chdir(run)
    with pytest.raises(UserError, match=re.escape(f"config.json of the run in {run}; ")):
        output_files.checked("out", "config.json")


def test_other_files_in_a_run_and_the_same_names_elsewhere_are_taken(tmp_path, run):
    for name in ("evaluation_test.json", "sets.jsonl", "figure.png"):
        assert output_files.checked("out", str(run / name)) == run / name
    (run / "classes.json").unlink()
    (tmp_path / "classes.json").touch()
    for folder in (run, tmp_path):
        path = folder / "results.json"
        assert output_files.checked("out", str(path)) == path


def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path, monkeypatch):
    def may(folder, how):
        # Root may write to all folders, so this is what the system says to others.
        return folder.stat().st_mode & how << 6 == how << 6

    monkeypatch.setattr(output_files.os, "access", may)
    tmp_path.chmod(0o555)
    message = f"--out must be in a writable folder; {tmp_path} is not"
    with pytest.raises(UserError, match=re.escape(message)):
        output_files.checked("out", tmp_path / "sets.jsonl")
    tmp_path.chmod(0o755)
    assert output_files.checked("out", tmp_path / "sets.jsonl") == tmp_path / "sets.jsonl"


def test_a_link_of_the_system_is_not_replaced(tmp_path, monkeypatch):
    system = tmp_path / "dev"
    system.mkdir()
    (tmp_path / "log").write_text("printed")
    (system / "stdout").symlink_to(tmp_path / "log")
    (tmp_path / "alias").symlink_to(system)
    (tmp_path / "mine").symlink_to(system / "stdout")
    monkeypatch.setattr(output_files, "_SYSTEM", (system,))
    for folder in ("dev", "alias", "dev/../dev"):
        out = f"{tmp_path}/{folder}/stdout"
        with pytest.raises(
            UserError,
            match=f"^--out must not be in {system}, a folder of the system; got {tmp_path}/",
        ):
            output_files.checked("out", out)
    with pytest.raises(UserError, match=f"^--out must not be in {system}, "):
        drawing.draw("level_sets", f"{system}/a.png", workdirs=None, folder=None, options={})
    # A link of the user's own is replaced.
    assert output_files.checked("out", f"{tmp_path}/mine") == tmp_path / "mine"


def test_an_open_file_is_no_output(tmp_path):
    message = "^--out must not be in /proc, a folder of the system; got /proc/self/fd/[0-9]+$"
    with (tmp_path / "log").open("w") as log, pytest.raises(UserError, match=message):
        output_files.checked("out", f"/proc/self/fd/{log.fileno()}")


def test_memory_that_is_shared_is_a_folder_like_others(tmp_path, monkeypatch):
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(output_files, "_SYSTEM", (tmp_path,))
    monkeypatch.setattr(output_files, "_SHARED_MEMORY", tmp_path / "shm")
    out = tmp_path / "shm" / "a.json"
    assert output_files.checked("out", str(out)) == out


@pytest.mark.parametrize("description", ["dataset_info.json", image_records.DESCRIPTION])
def test_nothing_is_written_into_a_prepared_data_set(tmp_path, description):
    folder = tmp_path / "digits" / "1.0.0"
    (folder / "more").mkdir(parents=True)
    (folder / description).touch()
    for name in ("labels-train.npy", "new.json", "more/new.json"):
        message = f"^--out must not be in the prepared data set in {folder}; got {folder}/{name}$"
        with pytest.raises(UserError, match=message):
            output_files.checked("out", str(folder / name))
    assert output_files.checked("out", f"{folder}.json")


def test_a_figure_does_not_replace_the_curves_of_a_run(run):
    path = run / "learning_curves.png"
    with pytest.raises(UserError, match="--out must not replace learning_curves"):
        drawing.draw("level_sets", str(path), workdirs=None, folder=None, options={})
    assert not path.exists()
