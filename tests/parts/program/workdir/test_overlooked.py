"""What a new run finds in its images: likely groups that splits divide, and near-duplicates."""

import csv
import io
import json
import shutil

import pytest

from configs import folder
from tests.parts.program.data.own import observations, pictures
from tests.parts.program.data.own.observations import CLASSES, PATTERN, observation
from tests.parts.program.data.own.test_own_images_run import small
from train import experiment
from train.configuration.datasets import FolderFields
from train.data import dataset_spec
from train.foundation.errors import UserError
from train.workdir import overlooked, run_files

SPLITS = ("train", "validation", "test")


def opened(path, **fields):
    """The fields of a folder, and its data set."""
    config = FolderFields(name="folder", batch_size=1, path=str(path), **fields)
    return config, dataset_spec(config).load(None)


def found_in(path, **fields):
    config, dataset = opened(path, **fields)
    return overlooked.find(dataset, config)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return observations.write(tmp_path_factory.mktemp("photos") / "photos", observations.names())


def unnamed(photos, root):
    """The photographs with names that do not have their observation."""
    for number, path in enumerate(sorted(photos.rglob("*.jpg"))):
        place = root / path.parent.name / f"IMG_{number * 7919 % 10000:04d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return root


def test_groups_in_names_are_one_line_with_the_flag(photos):
    found = found_in(photos)
    before, _, after = found.likely.partition(": 24 groups of several images, ")
    assert before.startswith(f"{photos}: names of files look like those of groups, such as ")
    number, _, rest = after.partition(" ")
    # Most of 24 are divided if photographs are divided one by one.
    assert 5 < int(number) < 24
    assert rest == (
        "of them in several splits, which makes accuracies too good; "
        rf"--config.dataset.group='{PATTERN}' keeps each in one split"
    )
    assert found.rows
    assert "config.dataset.group" not in found.summary


def test_with_groups_nothing_is_left_to_find(photos):
    for group in (PATTERN, "near_duplicates"):
        assert found_in(photos, group=group) == overlooked.NOTHING


def test_near_duplicates_of_other_splits_are_listed(photos, tmp_path):
    root = unnamed(photos, tmp_path / "photos")
    config, dataset = opened(root)
    found = overlooked.find(dataset, config)
    assert found.likely == ""
    split_of = {name: split for split in SPLITS for name in getattr(dataset, split).names}
    # The observation of each photograph, by its content.
    known = {path.read_bytes(): observation(path.name) for path in photos.rglob("*.jpg")}
    shown = {name: known[(root / name).read_bytes()] for name in split_of}
    earlier = {
        (shown[name], split)
        for name, of_name in split_of.items()
        for split in SPLITS[SPLITS.index(of_name) + 1 :]
    }
    # Each that has another of its observation in an earlier split.
    expected = {name for name, split in split_of.items() if (shown[name], split) in earlier}
    assert {row[0] for row in found.rows} == expected
    for name, split, label, other, its_split, its_label, correlation in found.rows:
        assert shown[name] == shown[other]
        assert (split, its_split) == (split_of[name], split_of[other])
        assert (label, its_label) == (name.partition("/")[0], other.partition("/")[0])
        assert 0.9 <= float(correlation) <= 1
    counts = [sum(row[1] == split for row in found.rows) for split in SPLITS]
    assert found.summary.startswith(
        f"near-duplicates: {counts[1]} of {len(dataset.validation)} validation images and "
        f"{counts[2]} of {len(dataset.test)} test images look like an image of another split"
    )
    assert found.summary.endswith(
        "--config.dataset.group=near_duplicates keeps images that look alike in one split"
    )


def test_ordinary_data_are_not_told_of(tmp_path):
    pictures.write_classes(tmp_path, CLASSES, 20, size=(40, 40))
    assert found_in(tmp_path) == overlooked.NOTHING


def test_any_name_can_be_listed(tmp_path, caplog):
    names = ['a,"b"\n.jpg', "\udcff.jpg", "=1+1.jpg"]
    rows = [(name, "test", "ash", name, "train", "ash", "1.000") for name in names]
    overlooked.Overlooked("groups", rows, "near-duplicates: 3").tell(tmp_path)
    file = tmp_path / run_files.NEAR_DUPLICATES
    text = file.read_bytes().decode()
    header, *read = csv.reader(io.StringIO(text, newline=""))
    assert header == [
        "image",
        "split",
        "class",
        "looks_like",
        "its_split",
        "its_class",
        "correlation",
    ]
    # As in other tables: no formulas, and Python's escapes for bytes that are not UTF-8.
    assert [row[0] for row in read] == ['a,"b"\n.jpg', r"\udcff.jpg", "'=1+1.jpg"]
    assert [row[3] for row in read] == [row[0] for row in read]
    assert caplog.messages == ["groups", f"near-duplicates: 3; listed in {file}"]


@pytest.mark.usefixtures("standard_promotion")
def test_a_run_tells_once_and_keeps_its_groups(photos, tmp_path, caplog, monkeypatch):
    fields = {"eval.ks": (1, 2), "select_by": "top_1_accuracy", "dataset.image_size": 16}
    config = small(folder, photos, **fields, num_epochs=1)
    experiment.run(config, tmp_path / "run")
    assert sum("look like" in message for message in caplog.messages) == 2
    with (tmp_path / "run" / run_files.NEAR_DUPLICATES).open(newline="") as file:
        assert len([*csv.reader(file)]) > 2
    # With groups there is nothing to tell, and the groups cannot change.
    caplog.clear()
    grouped = {**config, "dataset": {**config["dataset"], "group": PATTERN}}
    experiment.run(grouped, tmp_path / "grouped")
    assert caplog.messages == []
    assert not (tmp_path / "grouped" / run_files.NEAR_DUPLICATES).exists()
    listed = json.loads((tmp_path / "grouped" / run_files.LISTED).read_text())
    assert len(set(listed["groups"])) == 24
    with pytest.raises(UserError, match=r"dataset\.group"):
        experiment.run(config, tmp_path / "grouped")
    # A resumed run does not look again.
    monkeypatch.delattr(overlooked, "find")
    experiment.run({**config, "num_epochs": 2}, tmp_path / "run", extend=True)
    assert not any("look like" in message for message in caplog.messages)
