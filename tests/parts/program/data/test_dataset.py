"""Prepared data sets are opened, checked and divided; CIFAR-100 and ImageNet as tfds lays them."""

import io
import json

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from configs import digits
from tests.parts.program.data.specs import dataset_spec
from train.configuration.parsing import parse
from train.data import label_noise
from train.data.cifar100 import SUPERCLASSES
from train.foundation.errors import UserError

CIFAR100 = {
    "name": "cifar100",
    "validation_size": 100,
    "holdout": "balanced",
    "train_size": None,
    "imbalance_factor": 1.0,
    "label_noise": 0.0,
    "label_noise_kind": "superclass",
}
IMAGENET = {
    "name": "imagenet",
    "validation_size": 1000,
    "train_size": None,
    "num_workers": 0,
    "skip_unreadable": False,
}
# Images of each class in the training split.
EACH = 3


def prepare(data_dir, name, version, num_classes, shape, splits):
    """A small data set under another's name, with images that encode their example."""
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=shape, encoding_format="png"),
            "label": tfds.features.ClassLabel(num_classes=num_classes),
        }
    )

    def generate(count):
        for index in range(count):
            pixels = np.full((32, 32, 3), index % 251, np.uint8)
            yield index, {"image": Image.fromarray(pixels), "label": index % num_classes}

    build(data_dir, name, version, features, {split: generate(n) for split, n in splits.items()})


def build(data_dir, name, version, features, splits):
    """Prepares examples by a builder that tensorflow-datasets does not know afterwards."""
    members = {
        "name": name,
        "VERSION": tfds.core.Version(version),
        "_info": lambda self: tfds.core.DatasetInfo(builder=self, features=features),
        "_split_generators": lambda _self, _manager: splits,
        "_generate_examples": None,
        "pkg_dir_path": None,
        "__module__": __name__,
    }
    with tfds.core.registered.skip_registration():
        builder = type(name, (tfds.core.GeneratorBasedBuilder,), members)
        builder(data_dir=str(data_dir), file_format="array_record").download_and_prepare()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("data"))
    tfds.disable_progress_bar()
    prepare(folder, "cifar100", "3.0.2", 100, (32, 32, 3), {"train": 100 * EACH, "test": 50})
    splits = {"train": 1000 * EACH, "validation": 60, "test": 10}
    prepare(folder, "imagenet2012", "5.1.0", 1000, (None, None, 3), splits)
    return folder


def groups_of(kind):
    spec = dataset_spec(CIFAR100 | {"label_noise": 0.1, "label_noise_kind": kind})
    return spec.label_noise.groups


def test_cifar100_is_divided_and_made_noisy(data_dir):
    clean = dataset_spec(CIFAR100).load(data_dir)
    assert [len(split) for split in (clean.train, clean.validation, clean.test)] == [200, 100, 50]
    assert (np.bincount(clean.validation.labels) == 1).all()
    for split in (clean.train, clean.validation, clean.test):
        # 251 shades for 100 classes: example i has the shade i mod 251 and the label i mod 100.
        for image, label in zip(split.images, split.labels, strict=True):
            assert label in {(int(image[0, 0, 0]) + wraps * 251) % 100 for wraps in (0, 1)}
    kinds = {kind: groups_of(kind) for kind in ("superclass", "blocks", "across")}
    assert kinds == {
        "superclass": SUPERCLASSES,
        "blocks": label_noise.blocks(100),
        "across": label_noise.across(100),
    }
    noisy = {
        seed: dataset_spec(CIFAR100 | {"label_noise": 1.0}).load(data_dir, seed=seed)
        for seed in (0, 1)
    }
    for split in ("validation", "test"):
        for dataset in noisy.values():
            np.testing.assert_array_equal(
                getattr(dataset, split).labels, getattr(clean, split).labels
            )
    np.testing.assert_array_equal(noisy[0].train.images, clean.train.images)
    assert (noisy[0].train.labels != clean.train.labels).mean() > 0.6
    assert (noisy[0].train.labels != noisy[1].train.labels).any()


def test_a_long_tail_is_made_of_the_training_images_alone(data_dir):
    # Each class has two images; the later classes keep one.
    tail = dataset_spec(CIFAR100 | {"imbalance_factor": 2.0}).load(data_dir)
    whole = dataset_spec(CIFAR100).load(data_dir)
    counts = np.bincount(tail.train.labels, minlength=100)
    assert np.bincount(counts).tolist() == [0, 99, 1]
    for split in ("validation", "test"):
        np.testing.assert_array_equal(getattr(tail, split).labels, getattr(whole, split).labels)
    with pytest.raises(
        UserError, match="imbalance_factor must be at most 2, the training examples"
    ):
        dataset_spec(CIFAR100 | {"imbalance_factor": 3.0}).load(data_dir)


def test_imagenet_is_streamed_and_its_labels_are_kept(data_dir):
    dataset = dataset_spec(IMAGENET).load(data_dir)
    assert [len(split) for split in (dataset.train, dataset.validation)] == [2000, 1000]
    # The official validation images are the test set.
    assert len(dataset.test) == 60
    for split in (dataset.train, dataset.validation, dataset.test):
        for index in (0, len(split) // 2, len(split) - 1):
            encoded, name = split.images.encoded(index)
            shade = int(np.asarray(Image.open(io.BytesIO(encoded)))[0, 0, 0])
            label = int(split.labels[index])
            assert label in {(shade + wraps * 251) % 1000 for wraps in range(12)}
            assert name.startswith("record ")
    again = dataset_spec(IMAGENET | {"train_size": 1000}).load(data_dir)
    assert (np.bincount(again.train.labels) == 1).all()
    assert set(again.train.images.indices) <= set(dataset.train.images.indices)
    np.testing.assert_array_equal(again.validation.labels, dataset.validation.labels)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CIFAR100 | {"train_size": 300}, "train_size must be at most the 200 .*; got 300"),
        (CIFAR100 | {"train_size": 150}, "train_size must be a multiple of the 100 .*; got 150"),
        (CIFAR100 | {"validation_size": 300}, "300 takes 3 of each, and class 0 has 3"),
        (IMAGENET | {"validation_size": 50}, "multiple of the 1000 classes"),
    ],
)
def test_impossible_sizes_are_refused(data_dir, config, message):
    with pytest.raises(UserError, match=message):
        dataset_spec(config).load(data_dir)


def test_what_is_not_prepared_says_how_to(tmp_path):
    command = rf"python -m train.prepare --dataset=cifar100 --data_dir={tmp_path}$"
    with pytest.raises(UserError, match=command):
        dataset_spec(CIFAR100).load(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_another_number_of_classes_is_refused(tmp_path):
    prepare(str(tmp_path), "cifar100", "3.0.2", 90, (32, 32, 3), {"train": 90, "test": 90})
    with pytest.raises(UserError, match="has 90 classes, and cifar100 as it is configured has 100"):
        dataset_spec(CIFAR100).load(str(tmp_path))


def test_options_are_checked_and_belong_to_their_data_set():
    config = json.loads(digits.get_config().to_json())
    common = {
        "batch_size": 64,
        "data_dir": None,
        "mixup": 0.0,
        "sampling": "uniform",
    }
    config["dataset"] = CIFAR100 | common
    parse(config)
    for name, value, message in (
        ("label_noise", 1.1, "label_noise must be"),
        ("label_noise_kind", "block", "label_noise_kind must be"),
        ("imbalance_factor", 0.5, "imbalance_factor must be"),
        ("num_workers", 2, "num_workers is not a field"),
    ):
        config["dataset"] = CIFAR100 | common | {name: value}
        with pytest.raises(UserError, match=f"config.dataset.{message}"):
            parse(config)
