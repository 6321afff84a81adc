"""ImageNet-LT from the published form of the lists, with a folder and with prepared ImageNet."""

import json
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from tests.parts.program.data import archives
from train import prepare
from train.data.imagenet_lt import ImagenetLt
from train.data.preparing import dataset_writer, imagenet_lt
from train.data.preparing.shards import Example
from train.data.preparing.sources import FolderSource
from train.foundation.errors import UserError


@pytest.fixture(scope="module")
def manual_dir(tmp_path_factory):
    return archives.imagenet_lt(tmp_path_factory.mktemp("manual"))


def run(manual_dir, data_dir):
    prepare.prepare(
        "imagenet_lt",
        data_dir=str(data_dir),
        manual_dir=str(manual_dir),
        skip_unreadable=False,
    )
    return ImagenetLt(data_dir=str(data_dir), file_format="array_record")


def examples(builder):
    decoders = {"image": tfds.decode.SkipDecoding()}
    return {
        split: list(builder.as_data_source(split, decoders=decoders))
        for split in builder.info.splits
    }


def test_the_images_are_those_of_the_lists_in_their_order(manual_dir, tmp_path):
    builder = run(manual_dir, tmp_path)
    found = examples(builder)
    assert {split: len(part) for split, part in found.items()} == {
        "train": 2000,
        "validation": 1000,
        "test": 1000,
    }
    for split, file in imagenet_lt.LISTS.items():
        lines = (manual_dir / file).read_text().splitlines()
        for line, example in zip(lines, found[split], strict=True):
            path, label = line.split(" ")
            assert example["file_name"].decode() == path
            assert example["label"] == int(label)
            assert example["image"] == (manual_dir / path).read_bytes()
    assert tuple(builder.info.features["label"].names) == archives.synsets()
    classes = json.loads((tmp_path / "imagenet_lt/1.0.0/classes.json").read_text())
    assert classes[1] == {"synset": "n01443537"}


def test_prepared_imagenet_will_do_instead_of_the_folder(manual_dir, tmp_path):
    # As tfds lays it out, written without TensorFlow; in another order than the lists'.
    source = FolderSource(manual_dir)
    paths = sorted(path for path in source.paths() if path.endswith(".JPEG"))
    dataset_writer.write(
        tfds.builder("imagenet2012", data_dir=tmp_path, file_format="array_record"),
        dataset_writer.Contents(
            splits={
                split: [
                    Example(
                        path,
                        archives.synsets().index(Path(path).parent.name),
                        {"file_name": Path(path).name},
                    )
                    for path in reversed(paths)
                    if path.startswith(f"{folder}/")
                ]
                for split, folder in (("train", "train"), ("validation", "val"))
            },
            class_names=archives.synsets(),
            classes=[],
            source=source,
        ),
        skip_unreadable=False,
    )
    lists = tmp_path / "lists"
    lists.mkdir()
    for file in imagenet_lt.LISTS.values():
        (lists / file).write_bytes((manual_dir / file).read_bytes())
    assert examples(run(lists, tmp_path)) == examples(run(manual_dir, tmp_path / "folder"))
    # Found out once: reading the names takes reading every record.
    names = tmp_path / "imagenet2012/5.1.0/file_names-train.txt"
    assert names.read_text().split() == [
        Path(path).name for path in reversed(paths) if path.startswith("train/")
    ]


LINE = "train/n01440764/n01440764_190.JPEG 0"
BAD = {
    "absent image": (
        lambda lines: [*lines[:4], "train/n01443537/n01443537_1.JPEG 1", *lines[5:]],
        r"ImageNet_LT_train\.txt, line 5: there is no image .*n01443537_1\.JPEG",
    ),
    "class out of range": (
        lambda lines: [LINE[:-1] + "1000", *lines],
        r"ImageNet_LT_train\.txt, line 1: .* from 0 to 999",
    ),
    "two folders in one class": (
        lambda lines: [*lines, LINE[:-1] + "3"],
        r"line 2001: class 3 is n01491361 in earlier lines, and n01440764 in this one",
    ),
    "class without images": (
        lambda lines: [line for line in lines if not line.endswith(" 7")],
        r"ImageNet_LT_train\.txt has no image of class 7",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_list_is_refused_with_file_and_line(manual_dir, tmp_path, case):
    change, message = BAD[case]
    for part in ("train", "val"):
        (tmp_path / part).symlink_to(manual_dir / part)
    for file in imagenet_lt.LISTS.values():
        (tmp_path / file).write_bytes((manual_dir / file).read_bytes())
    list_file = tmp_path / "ImageNet_LT_train.txt"
    list_file.write_text(
        "".join(f"{line}\n" for line in change(list_file.read_text().splitlines()))
    )
    with pytest.raises(UserError, match=message):
        run(tmp_path, tmp_path / "data")
