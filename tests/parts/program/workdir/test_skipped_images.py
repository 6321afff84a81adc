"""The list of the images that a run left out."""

import json

import pytest
from absl import logging

from train.data.batches import SkippedImage
from train.workdir import skipped_images
from train.workdir.skipped_images import SkippedImages


def image(number, source="photos"):
    return SkippedImage(f"ash/{number}.png", source, f"ash/{number}.png is not an image")


def listed(workdir):
    lines = (workdir / "skipped_images.jsonl").read_bytes().splitlines(keepends=True)
    assert all(line.endswith(b"\n") for line in lines)
    found = [json.loads(line) for line in lines]
    assert {one.pop("split") for one in found} <= {"train", "test"}
    return [SkippedImage(**one) for one in found]


@pytest.fixture
def warnings(monkeypatch):
    found = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: found.append(text % values))
    return found


def test_an_image_is_listed_once(tmp_path, warnings):
    skipped = SkippedImages(tmp_path)
    assert not (tmp_path / "skipped_images.jsonl").exists()
    names = [0, 1, 0, 2, 2]
    for number in names:
        skipped.add(image(number), "train")
    # The folder was moved; and the same name in another split.
    skipped.add(image(0, source="elsewhere"), "train")
    skipped.add(image(0), "test")
    assert listed(tmp_path) == [image(number) for number in (0, 1, 2, 0)]
    assert [skipped.count(split) for split in ("train", "validation", "test")] == [3, 0, 1]


def test_a_name_in_another_form_of_unicode_is_listed_once(tmp_path, warnings):
    """As on a disk of a Mac, to which the images were copied."""
    for name in ("h\u00eatre/0.png", "he\u0302tre/0.png"):
        SkippedImages(tmp_path).add(SkippedImage(name, "photos", "is empty"), "test")
    assert [one.image for one in listed(tmp_path)] == ["h\u00eatre/0.png"]


def test_names_of_any_bytes_are_listed(tmp_path, warnings):
    name = b'caf\xe9 \n"1".png'.decode(errors="surrogateescape")
    for _ in range(2):
        SkippedImages(tmp_path).add(SkippedImage(name, "三", "is empty"), "test")
    assert [one.image for one in listed(tmp_path)] == [name]


def test_a_run_that_goes_on_goes_on_with_the_list(tmp_path, warnings):
    SkippedImages(tmp_path).add(image(0), "train")
    path = tmp_path / "skipped_images.jsonl"
    # Killed while it wrote the second image.
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    again = SkippedImages(tmp_path)
    again.add(image(0), "train")
    again.add(image(1), "train")
    assert listed(tmp_path) == [image(0), image(1)]


def test_processes_share_a_list(tmp_path, warnings):
    one, other = SkippedImages(tmp_path), SkippedImages(tmp_path)
    for number, process in enumerate([one, other, other, one, other, one]):
        process.add(image(number // 2), "train")
        process.add(image(0), "train")
    assert listed(tmp_path) == [image(0), image(1), image(2)]


def test_the_1st_the_10th_and_the_100th_are_told(tmp_path, warnings):
    skipped = SkippedImages(tmp_path)
    for number in range(105):
        skipped.add(image(number), "train")
    told = [f"images left out, unreadable so far: {count}, listed in " for count in (1, 10, 100)]
    assert [warning[: len(text)] for warning, text in zip(warnings, told, strict=True)] == told
    assert warnings[0].endswith("skipped_images.jsonl; ash/0.png is not an image")


def test_what_was_told_before_is_counted_and_not_told_again(tmp_path, warnings):
    skipped = SkippedImages(tmp_path)
    for number in range(2):
        skipped.add_told(image(number), "train")
        skipped.add(image(number), "train")
    assert warnings == []
    skipped.add(image(2), "train")
    (warning,) = warnings
    assert warning.startswith("images left out, unreadable so far: 3, listed in ")


def test_without_a_folder_images_are_only_told(warnings):
    skipped = SkippedImages(None)
    skipped.add(image(0), "train")
    skipped.add(image(0), "train")
    assert warnings == [
        "images left out, unreadable so far: 1; ash/0.png is not an image",
    ]


def test_a_list_that_somebody_edited_is_added_to(tmp_path, warnings):
    path = tmp_path / "skipped_images.jsonl"
    path.write_text("a note\n[]\n")
    SkippedImages(tmp_path).add(image(0), "train")
    assert path.read_text().startswith("a note\n[]\n{")


def test_the_number_of_images_and_their_file_are_shown(tmp_path, warnings, capsys):
    left_out = {"left_out": {"train": 1, "validation": 0, "test": 2000}}
    skipped_images.show(tmp_path, left_out)
    assert capsys.readouterr().out == ""
    SkippedImages(tmp_path).add(image(0), "train")
    path = tmp_path / "skipped_images.jsonl"
    for results, numbers in ((left_out, "1 of train, 2,000 of test"), ({}, "1")):
        skipped_images.show(tmp_path, results)
        line = f"images left out as unreadable: {numbers}; listed in {path}\n"
        assert capsys.readouterr().out == line
