"""Records of a folder or a table: the same data as the files, written whole or not at all."""

import csv
import errno
import json
import os
import pickle

import numpy as np
import pytest

from tests.parts.program.data.own import pictures
from tests.parts.program.data.specs import dataset_spec
from train import prepare
from train.data.batches import EvaluationBatches, TrainingBatches
from train.data.own import image_records
from train.foundation.errors import InterruptedRunError, UserError

CLASSES = ("ash", "birch", "cedar")


def config(kind, path, **fields):
    own = {
        "name": kind,
        "path": str(path),
        "validation_fraction": 0.2,
        "test_fraction": 0.2,
        "unseen_classes": "refuse",
        "image_size": None,
        "augmentation": "random_resized_crop",
        "respect_exif_orientation": True,
        "normalization": "half",
        **({"nested": False} if kind == "folder" else {}),
    }
    return own | fields


def load(kind, path, **fields):
    return dataset_spec(config(kind, path, **fields)).load(None)


def with_a_test_split(root):
    pictures.write_classes(root / "train", CLASSES, 10)
    pictures.write_classes(root / "test", CLASSES[:2], 4)
    # A copy in another split, of which both warn.
    content = (root / "train" / "ash" / "0.png").read_bytes()
    (root / "test" / "birch" / "copy.png").write_bytes(content)
    return "folder", root, {}


def nested(root):
    pictures.write_classes(root, ("acer/campestre", "acer/rubrum", '三 "x"'), 8)
    return "folder", root, {"nested": True}


def table(root):
    rows = [(f"{name}-{n}.png", name, f"{n // 2}") for name in CLASSES for n in range(10)]
    pictures.write(root, [path for path, _, _ in rows])
    with (root / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "group"), *rows])
    return "table", root / "photos.csv", {}


@pytest.mark.parametrize("make", [with_a_test_split, nested, table])
def test_records_are_the_same_data_as_the_files(tmp_path, make, capsys, caplog):
    kind, path, fields = make(tmp_path / "photos")
    out = tmp_path / "records"
    prepare.write_records(kind, path, out, nested=fields.get("nested", False))
    assert capsys.readouterr().out.endswith(f"images; prepared in {out}\n")
    assert sorted(file.name for file in out.iterdir()) == [
        "checksums.json",
        "image_records.json",
        "images.bin",
    ]
    # The fractions are chosen when the records are read.
    for more in ({}, {"validation_fraction": 0.4, "test_fraction": 0.2}):
        caplog.clear()
        expected = load(kind, path, **fields, **more)
        warned = [record.getMessage().replace(str(path), str(out)) for record in caplog.records]
        caplog.clear()
        found = load(kind, out, **fields, **more)
        assert [record.getMessage() for record in caplog.records] == warned
        # The groups of the table are in several classes.
        assert bool(warned) == (make in (with_a_test_split, table))
        assert found.class_names == expected.class_names
        assert found.image_shape == expected.image_shape
        assert found.digest == expected.digest
        for name in ("train", "validation", "test"):
            one, other = getattr(found, name), getattr(expected, name)
            np.testing.assert_array_equal(one.labels, other.labels)
            for index in range(len(other)):
                # The bytes, and the name below the folder.
                assert one.images.file_name(index) == other.images.file_name(index)
                assert one.images.encoded(index)[0] == other.images.encoded(index)[0]
    for make_batches in (
        lambda split: TrainingBatches(split, 8, skip_unreadable=True, seed=3)[1],
        lambda split: EvaluationBatches(split, 8, skip_unreadable=True)[1],
    ):
        one, other = make_batches(found.train), make_batches(expected.train)
        for name in one.keys() - {"skipped"}:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder of images and its records."""
    folder = tmp_path_factory.mktemp("prepared")
    pictures.write_classes(folder / "photos", CLASSES, 5)
    prepare.write_records("folder", folder / "photos", folder / "records", nested=False)
    return folder


def test_records_are_written_once(prepared, tmp_path, capsys):
    before = (prepared / "records" / "images.bin").stat()
    prepare.write_records("folder", prepared / "photos", prepared / "records", nested=False)
    assert "are prepared already, in" in capsys.readouterr().out
    assert (prepared / "records" / "images.bin").stat() == before
    pictures.write_classes(tmp_path, CLASSES, 6)
    with pytest.raises(UserError, match=r"--out \S+/records has records of other images; delete"):
        prepare.write_records("folder", tmp_path, prepared / "records", nested=False)


def test_the_nesting_is_that_of_the_preparation(prepared):
    with pytest.raises(UserError, match=r"nested must be False, as the records in .*; got True"):
        load("folder", prepared / "records", nested=True)
    # A table has no such field.
    assert load("table", prepared / "records").class_names == CLASSES


def test_a_preparation_that_ends_early_leaves_nothing_and_begins_anew(tmp_path, monkeypatch):
    pictures.write_classes(tmp_path / "photos", CLASSES, 5)
    out = tmp_path / "records"
    ends = [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]

    def end(_file):
        raise ends.pop(0)

    monkeypatch.setattr(os, "fsync", end)
    for expected, message in (
        (InterruptedRunError, "the same command starts over"),
        (OSError, r"No space left on device: \S+/incomplete\.records/images\.bin"),
    ):
        with pytest.raises(expected, match=message):
            prepare.write_records("folder", tmp_path / "photos", out, nested=False)
        assert not out.exists()
        assert (tmp_path / "incomplete.records").exists()
    monkeypatch.undo()
    prepare.write_records("folder", tmp_path / "photos", out, nested=False)
    assert len(image_records.read(out).found.images) == 15
    assert not (tmp_path / "incomplete.records").exists()


def damage_records(folder):
    path = folder / "images.bin"
    path.write_bytes(path.read_bytes()[:-100])


def without_checksums(folder):
    """The records as an earlier version wrote them."""
    (folder / "checksums.json").unlink()
    described = folder / "image_records.json"
    content = json.loads(described.read_text())
    del content["crc32"]
    described.write_text(json.dumps(content))


def fewer_records(folder):
    without_checksums(folder)
    described = folder / "image_records.json"
    described.write_text(described.read_text().replace('"ash/0.png", ', "", 1))


def another_label(folder):
    path = folder / "image_records.json"
    path.write_text(path.read_text().replace('"labels": [0', '"labels": [1'))


def of_a_later_version(folder):
    without_checksums(folder)
    path = folder / "image_records.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))


@pytest.mark.parametrize(
    "change", [damage_records, fewer_records, another_label, of_a_later_version]
)
def test_damaged_records_are_told(tmp_path, change):
    pictures.write_classes(tmp_path / "photos", CLASSES, 5)
    prepare.write_records("folder", tmp_path / "photos", tmp_path / "records", nested=False)
    change(tmp_path / "records")
    with pytest.raises(UserError, match=rf"{tmp_path}/records (are|is) .*prepare") as caught:
        load("folder", tmp_path / "records")
    assert "\n" not in str(caught.value)


def test_a_changed_image_is_told_when_it_is_read(tmp_path, capfd):
    pictures.write_classes(tmp_path / "photos", CLASSES, 5)
    folder = tmp_path / "records"
    prepare.write_records("folder", tmp_path / "photos", folder, nested=False)
    whole = [example["image"] for example in image_records.read(folder).found.images]
    content = bytearray((folder / "images.bin").read_bytes())
    # The last of seven images.
    content[sum(map(len, whole[:7])) - 1] ^= 1
    (folder / "images.bin").write_bytes(content)
    source = image_records.read(folder).found.images
    sent = pickle.loads(pickle.dumps(source))
    for index, image in enumerate(whole):
        if index == 6:
            with pytest.raises(
                UserError, match=r"1\.png in images\.bin changed since it was written\)"
            ):
                _ = sent[index]
        else:
            assert sent[index]["image"] == image
    # Records of an earlier version have no checksums, and are read all the same.
    without_checksums(folder)
    assert image_records.read(folder).found.images[6]["image"] != whole[6]
    assert image_records.read(folder).found.images[7]["image"] == whole[7]


def test_a_place_that_cannot_be_used_is_told(prepared, tmp_path):
    photos = prepared / "photos"
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    before = sorted(tmp_path.iterdir())
    for out in (photos / "records", photos, prepared, tmp_path / "file", tmp_path / "dangling"):
        with pytest.raises(UserError, match="--out must "):
            prepare.write_records("folder", photos, out, nested=False)
    assert sorted(tmp_path.iterdir()) == before


def test_records_lack_no_image_that_can_be_read_now(tmp_path, capsys):
    photos, records = tmp_path / "photos", tmp_path / "records"
    pictures.write_classes(photos, CLASSES, 5)
    damaged = photos / "ash" / "0.png"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-50])

    def write(**options):
        prepare.write_records("folder", photos, records, nested=False, **options)

    write(skip_unreadable=True)
    write(skip_unreadable=True)
    assert "are prepared already" in capsys.readouterr().out
    message = r"--out \S+/records lacks images that can be read now: ash/0\.png; delete it, or give"
    damaged.write_bytes(whole)
    with pytest.raises(UserError, match=message):
        write(skip_unreadable=True)
