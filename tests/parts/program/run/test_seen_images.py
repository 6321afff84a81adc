"""What a run finds in its images, once: groups that splits divide, near-duplicates, bad images."""

import csv
import json
import shlex

import pytest

from configs import images
from tests.parts.program.data import observations, pictures
from tests.parts.program.data.observations import CLASSES, PATTERN
from train.configuration.datasets import ImagesFields
from train.data import dataset_spec, look
from train.data.near_duplicates import Alike
from train.foundation.errors import UserError
from train.run import experiment, reporting, run_folder


def opened(path, **fields):
    fields = ImagesFields(name="images", batch_size=1, path=str(path), **fields)
    return dataset_spec(fields).load(None)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return observations.write(tmp_path_factory.mktemp("photos") / "photos", observations.names())


def test_groups_in_names_are_one_line_with_the_flag(photos, caplog):
    assert opened(photos).alike.rows
    (told,) = caplog.messages
    before, _, after = told.partition(": 24 groups of several examples, ")
    such = f"config.dataset.path {photos}: names of files look like those of groups, such as "
    assert before.startswith(such)
    number, _, rest = after.partition(" ")
    # Most of 24 are divided if photographs are divided one by one.
    assert 5 < int(number) < 24
    assert rest.startswith("of them in several splits, which makes accuracies too good; --config.")
    flag, *_ = shlex.split(rest.rpartition("; ")[2])
    grouped = opened(photos, group=flag.partition("=")[2])
    assert grouped.alike == ([], "")
    assert len(caplog.messages) == 1


def test_with_groups_nothing_is_left_to_find_and_ordinary_images_are_not_told_of(
    photos, tmp_path, caplog
):
    pictures.write_classes(tmp_path, CLASSES, 20, size=(40, 40))
    for path, group in ((photos, PATTERN), (photos, "near_duplicates"), (tmp_path, None)):
        found = opened(path, group=group)
        assert found.alike == ([], "")
    assert caplog.messages == []


def test_any_name_can_be_listed(tmp_path, caplog):
    names = ['a,"b"\n.jpg', "\udcff.jpg", "=1+1.jpg"]
    rows = [[name, "test", "ash", name, "train", "ash", "1.000"] for name in names]
    reporting.write_alike(Alike(rows, "near-duplicates: 3"), tmp_path)
    file = tmp_path / run_folder.NEAR_DUPLICATES
    with file.open(encoding="utf-8", newline="") as text:
        header, *read = csv.reader(text)
    assert (header[0], header[3]) == ("image", "looks_like")
    # As in other tables: no formulas, and Python's escapes for bytes that are not UTF-8.
    assert [row[0] for row in read] == ['a,"b"\n.jpg', r"\udcff.jpg", "'=1+1.jpg"]
    assert [row[3] for row in read] == [row[0] for row in read]
    assert caplog.messages == [f"near-duplicates: 3; listed in {file}"]


@pytest.mark.usefixtures("standard_promotion")
def test_a_run_looks_once_and_goes_on_with_what_it_saw(tmp_path, caplog, capsys, monkeypatch):
    photos = observations.write(tmp_path / "photos", observations.names())
    broken = photos / "ash" / "broken.jpg"
    broken.write_bytes(b"no image")
    config = images.get_config()
    config.update({"num_epochs": 1, "select_by": "loss", "eval": {"ks": (1, 2)}})
    config.dataset.update({"path": str(photos), "batch_size": 8, "image_size": 16})
    config.model.name = "mlp"
    config = json.loads(config.to_json())
    workdir = tmp_path / "run"
    with pytest.raises(
        UserError, match=r"cannot be read: ash/broken.jpg is not an image; the command"
    ):
        experiment.run(config, workdir)
    assert not workdir.exists()
    config["dataset"]["skip_unreadable"] = True
    results = experiment.run(config, workdir)
    assert results["left_out"] == 1
    bad, likely, alike = caplog.messages
    assert bad.startswith(f"1 of 61 images of config.dataset.path {photos} cannot be read: ash/bro")
    assert bad.endswith("is not an image; they are left out")
    assert "look like those of groups" in likely
    assert alike.endswith(f"; listed in {workdir / run_folder.NEAR_DUPLICATES}")
    listed = (workdir / run_folder.NEAR_DUPLICATES).read_bytes()
    assert len(listed.splitlines()) > 2
    seen = run_folder.read_seen(workdir)
    assert [*seen.unreadable] == ["ash/broken.jpg"]
    assert f"images left out as unreadable: 1; listed in {workdir}" in capsys.readouterr().out
    # A run that goes on does not look again, and leaves the same image out.
    monkeypatch.delattr(look, "look")
    config["dataset"]["skip_unreadable"] = False
    (workdir / run_folder.RESULTS).unlink()
    experiment.run(config, workdir)
    assert (workdir / run_folder.NEAR_DUPLICATES).read_bytes() == listed
    assert run_folder.read_seen(workdir) == seen
    assert caplog.messages[3:] == [bad]
    monkeypatch.undo()
    config["dataset"]["group"] = PATTERN
    with pytest.raises(UserError, match=r"dataset\.group"):
        experiment.run(config, workdir)
