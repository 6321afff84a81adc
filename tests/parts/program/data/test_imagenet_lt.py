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


@pytest.fixture
def folder(data_dir, tmp_path):
    """A copy of the data set, whose files are not to be written to but deleted first."""
    copied = tmp_path / "imagenet_lt"
    return shutil.copytree(data_dir / "imagenet_lt", copied, copy_function=os.link)


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
        ", line 1: .* from 0 to 999",
    ),
    "two folders in one class": (lambda lines: [*lines, LINE[:-1] + "3"], ", line 2001: .*EG 3"),
    "class without images": (
        lambda lines: [line for line in lines if not line.endswith(" 7")],
        " has images of 999 classes, not 1000",
    ),
    "no list": (None, "$"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_list_is_refused_with_file_and_line(folder, case):
    change, message = BAD[case]
    bad = folder / "ImageNet_LT_train.txt"
    lines = bad.read_text().splitlines()
    bad.unlink()
    if change is not None:
        bad.write_text("\n".join(change(lines)))
    with pytest.raises(UserError, match=rf"ImageNet_LT_train\.txt{message}"):
        load(folder.parent)


def test_an_image_that_is_absent_or_cannot_be_read_stops_a_run_before_its_first_step(folder):
    bad = folder / "val/n01440764/ILSVRC2012_val_00000001.JPEG"
    content = bad.read_bytes()
    bad.unlink()
    for reason in ("No such file", "truncated"):
        with pytest.raises(UserError, match=rf"images of {folder} .*val_00000001\.JPEG.*{reason}"):
            load(folder.parent)
        bad.write_bytes(content[:-9])
