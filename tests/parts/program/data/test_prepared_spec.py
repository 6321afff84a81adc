"""Prepared data sets are opened, checked and divided; CIFAR-100 and ImageNet as tfds lays them."""

import functools
import io

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from tests.parts.program.data.prepared_pictures import CLASSES, build, published
from tests.parts.program.data.specs import dataset_spec
from train.data import PreparedSpec, photographs
from train.data.cifar100 import SUPERCLASS_NAMES
from train.foundation.errors import UserError

CIFAR100 = {"name": "cifar100", "validation_size": 100, "holdout": "balanced"}
IMAGENET = {"name": "imagenet", "validation_size": 1000}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    published(folder, "cifar100", 100, {"train": 300, "test": 50})
    published(folder, "imagenet2012", 1000, {"train": 3000, "validation": 60})
    return folder


def shades(split):
    """The shade of each image, in memory or encoded."""
    if not split.are_encoded:
        return split.rows(np.arange(len(split)))[:, 0, 0, 0].tolist()
    images = (Image.open(io.BytesIO(split.encoded(index))) for index in range(len(split)))
    return [np.asarray(image)[0, 0, 0].item() for image in images]


@pytest.mark.parametrize(
    ("fields", "sizes"), [(CIFAR100, [200, 100, 50]), (IMAGENET, [2000, 1000, 60])]
)
def test_published_sets_are_divided(data_dir, fields, sizes):
    spec = dataset_spec(fields)
    dataset = spec.load(str(data_dir))
    splits = (dataset.train, dataset.validation, dataset.test)
    # The official validation images of ImageNet are the test set.
    assert [len(split) for split in splits] == sizes
    assert (np.bincount(dataset.validation.labels) == 1).all()
    for split in splits:
        # Example i has the shade i mod 251, and the label i mod the number of classes.
        for shade, label in zip(shades(split), split.labels, strict=True):
            assert label in {(shade + 251 * wraps) % spec.num_classes for wraps in range(12)}
    assert not {*dataset.train.places} & {*dataset.validation.places}
    if spec.name == "cifar100":
        assert dataset.tree.ranks == ("superclass", "class")
        assert {path[0] for path in dataset.tree.paths} == {*SUPERCLASS_NAMES}


# The fields, below what folder, and what the line tells.
REFUSED = [
    (CIFAR100 | {"validation_size": 300}, "data", "fewer examples of each than the 3 of the sma"),
    (IMAGENET | {"validation_size": 50}, "data", "multiple of the 1000 classes"),
    (CIFAR100, "gone", "python -m train.prepare --dataset=cifar100 --data_dir=.*gone$"),
    (CIFAR100, "few", "has 90 classes and .*, and cifar100 as it is conf.* has 100 and .*; prep"),
]


@pytest.mark.parametrize(("fields", "folder", "message"), REFUSED)
def test_what_cannot_be_opened_or_divided_is_told(data_dir, tmp_path, fields, folder, message):
    if folder == "few":
        published(tmp_path / "few", "cifar100", 90, {"train": 90, "test": 90})
    with pytest.raises(UserError, match=message):
        dataset_spec(fields).load(str(data_dir if folder == "data" else tmp_path / folder))
    assert folder == "few" or not [*tmp_path.iterdir()]


@pytest.mark.parametrize("reader", [None, photographs.READER])
def test_examples_without_a_label_are_left_out(tmp_path, reader, caplog):
    splits = {"train": [0, 1, 2, -1] * 3, "validation": [0, -1, 2], "test": [0, 1, 2]}
    build(tmp_path, splits, shape=(8, 8, 3))
    spec = PreparedSpec(
        name="trees",
        num_classes=3,
        image_shape=(8, 8, 3),
        builder=functools.partial(tfds.builder, "trees"),
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
        reader=reader,
    )
    dataset = spec.load(str(tmp_path))
    assert [len(split) for split in dataset.splits.values()] == [9, 2, 3]
    assert dataset.class_names == CLASSES
    lines = [line.split(": ")[1] for line in caplog.messages]
    assert lines == [f"{number} examples without a label are left out" for number in (3, 1)]
