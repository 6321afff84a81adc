"""ImageNet-LT from the published form of the lists, over the files of ImageNet."""

import os
import shutil

import pytest

from tests.parts.program.data import archives
from tests.parts.program.data.specs import dataset_spec
from train.data.photographs import LISTS
from train.foundation.errors import UserError

FIELDS = {"name": "imagenet_lt", "batch_size": 4, "num_workers": 0}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    archives.imagenet_lt(folder / "imagenet_lt")
    return folder


def load(data_dir):
    return dataset_spec(FIELDS).load(str(data_dir))


def test_the_images_are_those_of_the_lists_in_their_order(data_dir):
    dataset = load(data_dir)
    assert dataset.class_names == archives.synsets()
    for split, file in zip(dataset.splits.values(), LISTS.values(), strict=True):
        lines = (data_dir / "imagenet_lt" / file).read_text().splitlines()
        assert len(split) == len(lines)
        for index, line in enumerate(lines):
            path, label = line.split(" ")
            assert split.name(index) == path
            assert split.labels[index] == int(label)
            assert split.encoded(index) == (data_dir / "imagenet_lt" / path).read_bytes()


LINE = "train/n01440764/n01440764_190.JPEG 0"
BAD = {
    "class out of range": (
        lambda lines: [LINE[:-1] + "1000", *lines],
        r"ImageNet_LT_train\.txt, line 1: .* from 0 to 999",
    ),
    "two folders in one class": (
        lambda lines: [*lines, LINE[:-1] + "3"],
        r"ImageNet_LT_train\.txt, line 2001: .*n01440764_190\.JPEG 3",
    ),
    "class without images": (
        lambda lines: [line for line in lines if not line.endswith(" 7")],
        r"ImageNet_LT_train\.txt has images of 999 classes, not 1000",
    ),
    "no list": (None, r"config\.dataset\.data_dir must be .* does not have ImageNet_LT_train\.txt"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_list_is_refused_with_file_and_line(data_dir, tmp_path, case):
    change, message = BAD[case]
    folder = tmp_path / "imagenet_lt"
    folder.mkdir()
    for part in ("train", "val"):
        (folder / part).symlink_to(data_dir / "imagenet_lt" / part)
    for file in LISTS.values():
        (folder / file).write_bytes((data_dir / "imagenet_lt" / file).read_bytes())
    bad = folder / "ImageNet_LT_train.txt"
    if change is None:
        bad.unlink()
    else:
        bad.write_text("".join(f"{line}\n" for line in change(bad.read_text().splitlines())))
    with pytest.raises(UserError, match=message):
        load(tmp_path)


def test_an_image_that_is_absent_or_cannot_be_read_stops_a_run_before_its_first_step(
    data_dir, tmp_path
):
    folder = tmp_path / "imagenet_lt"
    shutil.copytree(data_dir / "imagenet_lt", folder, copy_function=os.link)
    bad = folder / "val/n01440764/ILSVRC2012_val_00000001.JPEG"
    content = bad.read_bytes()
    bad.unlink()
    for reason in ("No such file", "truncated"):
        with pytest.raises(UserError, match=rf"val_00000001\.JPEG of {folder}.*{reason}"):
            load(tmp_path)
        bad.write_bytes(content[:-9])
