"""What the command line names for writing: a run's own files are never replaced."""

import pytest

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
    ("folder", "name"),
    [
        *(("run", name) for name in ("config.json", "results.json", "metrics.jsonl")),
        *(("run", name) for name in ("classes.json", "sets.json", "data.json")),
        *(("run", name) for name in ("seen_images.json", "lock", "outcomes_test.npz")),
        ("link", "results.json"),
        ("run/../link", "checkpoints/7/state/_METADATA"),
    ],
)
def test_the_files_of_a_run_are_refused_also_before_they_are_there(tmp_path, run, folder, name):
    with pytest.raises(UserError) as caught:
        output_files.checked("out", f"{tmp_path}/{folder}/{name}")
    first = name.split("/", maxsplit=1)[0]
    message = f"--out must not replace {first} of the run in {run}; got {run}/{name}"
    assert str(caught.value) == message


def test_other_files_in_a_run_and_the_same_names_elsewhere_are_taken(tmp_path, run):
    for name in ("evaluation_test.json", "sets.jsonl", "figure.png"):
        assert output_files.checked("out", str(run / name)) == run / name
    (run / "classes.json").unlink()
    (tmp_path / "classes.json").touch()
    for folder in (run, tmp_path):
        path = folder / "results.json"
        assert output_files.checked("out", str(path)) == path


def test_nothing_is_written_into_a_prepared_data_set(tmp_path):
    folder = tmp_path / "digits" / "1.0.0"
    (folder / "more").mkdir(parents=True)
    (folder / "dataset_info.json").touch()
    for name in ("examples-train.json", "new.json", "more/new.json"):
        message = f"^--out must not be in the prepared data set in {folder}; got {folder}/{name}$"
        with pytest.raises(UserError, match=message):
            output_files.checked("out", str(folder / name))
    assert output_files.checked("out", f"{folder}.json")


def test_a_figure_does_not_replace_the_curves_of_a_run(run):
    path = run / "learning_curves.png"
    with pytest.raises(UserError, match="--out must not replace learning_curves"):
        drawing.draw("level_sets", str(path), workdirs=None, folder=None, options={})
    assert not path.exists()
