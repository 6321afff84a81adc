"""The list of the images that a run left out."""

import json

from train.data.batches import SkippedImage
from train.workdir.skipped_images import SkippedImages


def image(number, source="photos"):
    return SkippedImage(f"ash/{number}.png", source, f"ash/{number}.png is not an image")


def listed(workdir):
    lines = (workdir / "skipped_images.jsonl").read_bytes().splitlines(keepends=True)
    assert all(line.endswith(b"\n") for line in lines)
    found = [json.loads(line) for line in lines]
    assert {one.pop("split") for one in found} <= {"train", "test"}
    return [SkippedImage(**one) for one in found]


def test_an_image_is_listed_once(tmp_path):
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


def test_names_of_any_bytes_are_listed(tmp_path):
    name = b'caf\xe9 \n"1".png'.decode(errors="surrogateescape")
    for _ in range(2):
        SkippedImages(tmp_path).add(SkippedImage(name, "三", "is empty"), "test")
    assert [one.image for one in listed(tmp_path)] == [name]


def test_a_run_that_goes_on_goes_on_with_the_list(tmp_path):
    SkippedImages(tmp_path).add(image(0), "train")
    path = tmp_path / "skipped_images.jsonl"
    # Killed while it wrote the second image.
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    again = SkippedImages(tmp_path)
    again.add(image(0), "train")
    again.add(image(1), "train")
    assert listed(tmp_path) == [image(0), image(1)]


def test_processes_share_a_list(tmp_path):
    one, other = SkippedImages(tmp_path), SkippedImages(tmp_path)
    for number, process in enumerate([one, other, other, one, other, one]):
        process.add(image(number // 2), "train")
        process.add(image(0), "train")
    assert listed(tmp_path) == [image(0), image(1), image(2)]


def test_a_list_that_somebody_edited_is_added_to(tmp_path):
    path = tmp_path / "skipped_images.jsonl"
    path.write_text("a note\n[]\n")
    SkippedImages(tmp_path).add(image(0), "train")
    assert path.read_text().startswith("a note\n[]\n{")
