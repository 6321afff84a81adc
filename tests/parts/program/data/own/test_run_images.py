"""A run goes on with the images that it began with, of which some may be gone or damaged."""

import csv
import json
import pickle
import shutil

import numpy as np
import pytest

from configs import folder
from tests.parts.program.data.own import pictures
from tests.parts.program.data.own.test_own_images_run import CLASSES, small
from train import experiment
from train.data import dataset_spec
from train.data.batches import TrainingBatches
from train.data.own.listing import ListedFiles
from train.foundation import files, json_files
from train.foundation.errors import UserError
from train.prediction import trained
from train.prediction.embedding.found import configuration
from train.workdir import run_files

pytestmark = pytest.mark.usefixtures("standard_promotion")

SPLITS = ("train", "validation", "test")
# Two photographs of some plants; the path, the class and the plant.
ROWS = [(f"{name}/{n}.png", name, f"{name} {min(n, 6)}") for name in CLASSES for n in range(8)]


def held_out(root):
    pictures.write_classes(root, CLASSES, 8)
    return "folder", root, {}


def nested(root):
    pictures.write_classes(root, ("acer/campestre", "acer/rubrum", "三"), 8)
    return "folder", root, {"nested": True}


def with_splits(root):
    for split in ("train", "val", "test"):
        pictures.write(root, [f"{split}/{name}/{n}.png" for name in CLASSES for n in range(4)])
    return "folder", root, {}


def table(root):
    pictures.write_classes(root, CLASSES, 8)
    write_table(root, ROWS)
    return "table", root / "photos.csv", {}


def write_table(root, rows):
    with (root / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "group"), *rows])


def spec(kind, path, fields):
    return dataset_spec(configuration(kind, path, **fields))


def content(dataset):
    """The names, labels and pixels of all images; None for one that cannot be read."""
    found = {}
    for name in SPLITS:
        split = getattr(dataset, name)
        examples = [split.images.source[index] for index in split.images.indices.tolist()]
        found[name] = [
            (example["file_name"], label, None if "unreadable" in example else example["image"])
            for example, label in zip(examples, split.labels.tolist(), strict=True)
        ]
    return found


def as_read_back(listed):
    return ListedFiles.from_plain(json.loads(files.to_json(listed.to_plain())))


@pytest.mark.parametrize("make", [nested, with_splits, table])
def test_images_that_are_gone_keep_their_places(tmp_path, make):
    kind, path, fields = make(tmp_path / "photos")
    unopened = spec(kind, path, fields)
    before = unopened.load(None)
    listed = as_read_back(before.files)
    expected = content(before)
    # Without any change, nothing else is opened.
    assert content(unopened.going_on(listed).load(None)) == expected
    root = path if kind == "folder" else path.parent
    gone = {expected[split][index][0] for split in SPLITS for index in (0, -1)}
    for name in gone:
        (root / name).unlink()
    found = unopened.going_on(listed).load(None)
    assert content(found) == {
        split: [(name, label, None if name in gone else image) for name, label, image in images]
        for split, images in expected.items()
    }
    for name in ("class_names", "image_shape", "digest"):
        assert getattr(found, name) == getattr(before, name)
    assert files.to_json(found.files.to_plain()) == files.to_json(before.files.to_plain())
    # The processes that decode get the same.
    sent = pickle.loads(pickle.dumps(found.train))
    one, other = (
        TrainingBatches(split, 8, skip_unreadable=True, seed=3)[2] for split in (sent, found.train)
    )
    for name in one.keys() - {"skipped"}:
        np.testing.assert_array_equal(one[name], other[name])
    # Without the list they are another data set.
    assert unopened.load(None).digest != before.digest


def test_a_class_can_be_gone(tmp_path):
    kind, path, fields = with_splits(tmp_path / "photos")
    before = spec(kind, path, fields).load(None)
    for split in ("train", "val", "test"):
        shutil.rmtree(path / split / "fir")
    shutil.rmtree(path / "test")
    found = spec(kind, path, fields).going_on(before.files).load(None)
    assert (found.digest, found.class_names) == (before.digest, before.class_names)
    assert [image for _, _, image in content(found)["test"]] == [None] * len(before.test)


def add(root):
    (root / "ash" / "0.png").unlink()
    pictures.write(root, ["ash/new.png"])


def replace(root):
    pictures.picture("other", size=(13, 11)).save(root / "ash" / "0.png")


def rename_a_class(root):
    (root / "ash").rename(root / "oak")


@pytest.mark.parametrize("change", [add, replace, rename_a_class])
def test_other_changes_make_another_data_set(tmp_path, change):
    kind, path, fields = held_out(tmp_path / "photos")
    before = spec(kind, path, fields).load(None)
    change(path)
    now = spec(kind, path, fields)
    assert now.going_on(before.files).load(None).digest == now.load(None).digest != before.digest


def test_other_labels_and_groups_in_a_table_make_another_data_set(tmp_path):
    kind, path, fields = table(tmp_path)
    before = spec(kind, path, fields).load(None)
    for changed in (
        [("ash/0.png", "birch", ""), *ROWS[1:]],
        [(name, label, "") for name, label, _ in ROWS],
        # A row is gone too.
        [("ash/0.png", "birch", ""), *ROWS[1:-1]],
    ):
        write_table(tmp_path, changed)
        now = spec(kind, path, fields)
        assert now.going_on(before.files).load(None).digest == now.load(None).digest
        assert now.load(None).digest != before.digest
    # A row that is gone, of an image that is not.
    write_table(tmp_path, ROWS[1:])
    found = spec(kind, path, fields).going_on(before.files).load(None)
    assert found.digest == before.digest
    assert [name for images in content(found).values() for name, _, one in images if not one] == [
        "ash/0.png"
    ]


def test_names_of_any_bytes_are_listed(tmp_path):
    name = b"caf\xe9.png".decode(errors="surrogateescape")
    pictures.write_classes(tmp_path, CLASSES, 5)
    (tmp_path / "ash" / "0.png").rename(tmp_path / "ash" / name)
    listed = spec("folder", tmp_path, {}).load(None).files
    content = json_files.sealed(listed.to_plain())
    (tmp_path / run_files.LISTED).write_bytes(content)
    again = run_files.read_listed(tmp_path)
    assert f"ash/{name}" in again.listing.paths
    assert files.to_json(again.to_plain()) == files.to_json(listed.to_plain())


def test_images_of_classes_that_are_left_out_are_listed(tmp_path):
    kind, path, fields = with_splits(tmp_path)
    pictures.write_classes(path / "test", ("yew",), 2)
    before = spec(kind, path, {**fields, "unseen_classes": "leave_out"})
    listed = before.load(None).files
    (tmp_path / run_files.LISTED).write_bytes(json_files.sealed(listed.to_plain()))
    again = before.going_on(run_files.read_listed(tmp_path)).load(None)
    assert again.digest == listed.digest


# Runs


class StoppedError(Exception):
    pass


def stop(_epoch, _metrics):
    raise StoppedError


@pytest.fixture(scope="module")
def began(tmp_path_factory):
    """A folder of photographs, and a run on it that was stopped after the first of two epochs."""
    root = tmp_path_factory.mktemp("began")
    pictures.write_classes(root / "photos", CLASSES, 10)
    with pytest.raises(StoppedError):
        experiment.run(small(folder, root / "photos"), root / "run", after_epoch=stop)
    return root


@pytest.fixture
def moved(began, tmp_path):
    """The same in another place."""
    for name in ("photos", "run"):
        shutil.copytree(began / name, tmp_path / name)
    return tmp_path


def config_of(root, **fields):
    return small(folder, root / "photos", **fields)


SKIP = {"dataset.skip_unreadable": True}


def without_times(results):
    names = ("epoch_seconds", "examples_per_second", "data_wait_share", "config")
    return {name: value for name, value in results.items() if name not in names}


def names_of(root, role):
    listed = run_files.read_listed(root / "run").listing
    return [path for path, of in zip(listed.paths, listed.roles, strict=True) if of == role]


def test_a_run_goes_on_with_data_that_were_moved(began, moved, capsys):
    shutil.copytree(began / "run", moved / "there")
    expected = experiment.run(config_of(began), moved / "there")
    capsys.readouterr()
    results = experiment.run(config_of(moved), moved / "run")
    assert "continuing after epoch 1 of 2" in capsys.readouterr().out
    assert without_times(results) == without_times(expected)
    assert results["config"]["dataset"]["path"] == str(moved / "photos")
    assert run_files.read_config(moved / "run")["dataset"]["path"] == str(moved / "photos")
    # The finished run, too; and a classifier reads them where it is told.
    (moved / "photos").rename(moved / "again")
    message = r"moved, give their new place with --path$"
    with pytest.raises(UserError, match=message):
        trained.load(moved / "run").predict("test")
    found = trained.load(moved / "run", {"path": str(moved / "again")}).predict("test")
    assert len(found.labels) == 12
    config = config_of(moved)
    config["dataset"]["path"] = str(moved / "again")
    assert experiment.run(config, moved / "run") == results
    assert len(trained.load(moved / "run").predict("test").labels) == 12


def test_data_that_are_not_there_or_others_are_told(began, moved):
    before = sorted(moved.rglob("*"))
    config = config_of(moved)
    for place in ("gone", "other"):
        config["dataset"]["path"] = str(moved / place)
        with pytest.raises(UserError, match=rf"{moved}/{place}\b"):
            experiment.run(config, moved / "run")
        assert sorted(moved.rglob("*")) == before
        pictures.write_classes(moved / "other", CLASSES, 11)
        before = sorted(moved.rglob("*"))


def test_a_run_is_finished_without_the_images_that_are_gone(moved, capsys):
    gone = {"train": names_of(moved, 0)[3], "test": names_of(moved, 2)[0]}
    (moved / "photos" / gone["train"]).unlink()
    damaged = moved / "photos" / gone["test"]
    damaged.write_bytes(damaged.read_bytes()[:-60])
    before = {path: path.read_bytes() for path in (moved / "run").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"2 images of .*; the command of the run with"):
        experiment.run(config_of(moved), moved / "run")
    assert {path: path.read_bytes() for path in before} == before
    shutil.copytree(moved / "run", moved / "again")
    capsys.readouterr()
    results = experiment.run(config_of(moved, **SKIP), moved / "run")
    printed = capsys.readouterr().out
    words = "1 of train, 1 of test"
    assert f"images that cannot be read, and are left out: {words}; the next one that" in printed
    assert "continuing after epoch 1 of 2" in printed
    assert f"images left out as unreadable: {words}; listed in " in printed
    assert results["left_out"] == {"train": 1, "validation": 0, "test": 1}
    listed = (moved / "run" / "skipped_images.jsonl").read_text().splitlines()
    entries = map(json.loads, listed)
    assert {entry["split"]: entry["image"] for entry in entries} == gone
    # Which image is in which step is a function of the run and of what is left out.
    again = experiment.run(config_of(moved, **SKIP), moved / "again")
    assert without_times(again) == without_times(results)
    assert len(trained.load(moved / "run").predict("test").labels) == 11
    # The finished run keeps what it left out, also if the field is not given again.
    assert experiment.run(config_of(moved), moved / "run") == results
    assert len(trained.load(moved / "run").predict("test").labels) == 11
    # What is gone later is left out by the same means.
    (moved / "photos" / names_of(moved, 2)[1]).unlink()
    assert experiment.run(config_of(moved, **SKIP), moved / "run") == results
    assert len(trained.load(moved / "run").predict("test").labels) == 10


def test_an_image_that_fails_in_the_test_costs_no_training(moved, capsys):
    """Damage that neither the first nor the last bytes show."""
    damaged = moved / "photos" / names_of(moved, 2)[0]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 255
    damaged.write_bytes(content)
    message = rf"cannot decode {names_of(moved, 2)[0]} of .*; the command of the run w"
    with pytest.raises(UserError, match=message):
        experiment.run(config_of(moved, **{"dataset.check_images": "all"}), moved / "run")
    assert "continuing" not in capsys.readouterr().out
    with pytest.raises(UserError, match=message):
        experiment.run(config_of(moved), moved / "run")
    assert "continuing after epoch 1 of 2" in capsys.readouterr().out
    results = experiment.run(config_of(moved, **SKIP), moved / "run")
    assert "continuing after epoch 2 of 2" in capsys.readouterr().out
    assert results["left_out"] == {"train": 0, "validation": 0, "test": 1}


def test_a_stop_does_not_change_what_is_left_out(tmp_path):
    pictures.write_classes(tmp_path / "photos", CLASSES, 10)
    for name in ("ash/1.png", "birch/5.png", "cedar/2.png"):
        (tmp_path / "photos" / name).write_bytes(b"no image")
    config = config_of(tmp_path, **SKIP)
    expected = experiment.run(config, tmp_path / "whole")
    with pytest.raises(StoppedError):
        experiment.run(config, tmp_path / "run", after_epoch=stop)
    assert without_times(experiment.run(config, tmp_path / "run")) == without_times(expected)
    assert sum(expected["left_out"].values()) == 3


def test_classes_and_splits_that_cannot_be_read_are_refused(tmp_path):
    pictures.write_classes(tmp_path / "photos", CLASSES, 10)
    for file in (tmp_path / "photos" / "elm").iterdir():
        file.write_bytes(b"no image")
    with pytest.raises(UserError, match=r"no training image of elm in \S+photos can be read"):
        experiment.run(config_of(tmp_path, **SKIP), tmp_path / "run")
    assert not (tmp_path / "run").exists()
