"""Data sets of tensorflow-datasets by name: found, split, refused and prepared."""

import json
import re

import numpy as np
import pytest
import tensorflow_datasets as tfds

from configs import tfds as recipe
from tests.parts.program.data import test_dataset
from tests.parts.program.data.own import pictures, refused
from tests.parts.program.data.specs import dataset_spec
from tests.parts.program.forked import start
from train.foundation.errors import UserError

CLASSES = ("ash", "birch", "cedar")
EACH = 10


def prepare(data_dir, name, splits, *, image="image", label="label", more=None):
    """Prepares pictures.

    Args:
        data_dir: the folder of all prepared data sets.
        name: of the data set.
        splits: the labels of each split.
        image: the name of the feature with the images.
        label: the name of the feature with the labels.
        more: further features, which no example has values for.
    """
    features = tfds.features.FeaturesDict(
        {
            image: tfds.features.Image(shape=(None, None, 3), encoding_format="png"),
            label: tfds.features.ClassLabel(names=list(CLASSES)),
            **(more or {}),
        }
    )

    def generate(split):
        for index, number in enumerate(splits[split]):
            example = {image: pictures.picture(f"{split}/{index}"), label: number}
            yield index, example | dict.fromkeys(more or {}, 0)

    test_dataset.build(
        data_dir, name, "1.0.0", features, {split: generate(split) for split in splits}
    )


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    tfds.disable_progress_bar()
    labels = [index % 3 for index in range(3 * EACH)]
    prepare(folder, "trees", {"train": labels, "validation": labels[:6], "test": labels[:9]})
    prepare(folder, "one_split", {"train": labels}, image="photo", label="species")
    prepare(folder, "other_names", {"few": labels[:6], "most": labels})
    prepare(folder, "usual_names", {"Train": labels, "dev": labels[:6], "testing": labels[:9]})
    prepare(folder, "unlabelled", {"train": labels, "test": [-1] * 4})
    more = {"genus": tfds.features.ClassLabel(num_classes=2)}
    prepare(folder, "two_labels", {"train": labels}, label="species", more=more)
    return folder


def configured(data_dir, name, **fields):
    config = recipe.get_config()
    config.dataset.update(tfds_name=name, data_dir=str(data_dir), batch_size=8, **fields)
    config.dataset.augmentation = "none"
    config.model.name = "mlp"
    config.num_epochs = 2
    config.eval.ks = (1, 2)
    config.loss.k = 1
    config.select_by = "top_1_accuracy"
    return json.loads(config.to_json())


def load(data_dir, name, **fields):
    return dataset_spec(configured(data_dir, name, **fields)["dataset"]).load(str(data_dir))


def sizes(dataset):
    return [len(split) for split in (dataset.train, dataset.validation, dataset.test)]


def test_missing_splits_are_held_out_of_each_class(data_dir):
    dataset = load(data_dir, "one_split", validation_fraction=0.2, test_fraction=0.1)
    assert sizes(dataset) == [21, 6, 3]
    for split, each in ((dataset.train, 7), (dataset.validation, 2), (dataset.test, 1)):
        assert np.bincount(split.labels).tolist() == [each] * 3
    # A function of the data alone.
    again = load(data_dir, "one_split", validation_fraction=0.2, test_fraction=0.1)
    np.testing.assert_array_equal(again.test.images.indices, dataset.test.images.indices)


def test_splits_of_other_names_are_fields(data_dir):
    dataset = load(data_dir, "other_names", train_split="most", test_split="few")
    # Validation images are held out of "most": 1.5 of each class, rounded up.
    assert sizes(dataset) == [24, 6, 6]


def test_splits_have_their_usual_names(data_dir):
    assert sizes(load(data_dir, "usual_names")) == [3 * EACH, 6, 9]


def test_a_split_without_labels_is_left_out(data_dir):
    assert sizes(load(data_dir, "unlabelled", test_fraction=0.1)) == [21, 6, 3]
    with pytest.raises(UserError, match=r"dataset\.test_split: images of 'test' have no labels"):
        load(data_dir, "unlabelled", test_split="test")


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("oxford_flower102", {}, r"tfds_name must be .*; did you mean 'oxford_flowers102'\?"),
        ("oxford_flowers102", {}, r"is not prepared in .*--dataset=tfds:oxford_flowers102 --data_"),
        (
            "two_labels",
            {},
            r"must have one class label .*, or one named 'label'; it has genus, species",
        ),
        ("other_names", {}, r"has no split train: .*train_split must be one of few, most"),
        ("trees", {"test_split": "train"}, r"test_split must be a split of its own; 'train' has"),
    ],
)
def test_what_cannot_be_used_is_told(data_dir, tmp_path, capfd, name, fields, message):
    line = refused.line_of(configured(data_dir, name, **fields), tmp_path, capfd)
    assert re.search(message, line), line


def test_damaged_data_sets_are_told(tmp_path, capfd):
    prepare(tmp_path, "trees", {"train": [0, 1, 2] * EACH})
    folder = tmp_path / "trees" / "1.0.0"
    (records,) = folder.glob("*.array_record*")
    described = folder / "dataset_info.json"
    whole = described.read_bytes()
    in_tfrecord = json.loads(whole) | {"fileFormat": "tfrecord"}
    for path, content in (
        (described, json.dumps(in_tfrecord).encode()),
        (described, whole[:50]),
        (folder / "features.json", b"{}"),
        (records, records.read_bytes()[:500]),
        (records, None),
    ):
        before = path.read_bytes()
        path.unlink() if content is None else path.write_bytes(content)
        capfd.readouterr()  # The preparation's.
        line = refused.line_of(configured(tmp_path, "trees"), tmp_path, capfd)
        assert "trees" in line
        path.write_bytes(before)


def test_another_name_is_another_digest(tmp_path):
    for name in ("oaks", "pines"):
        prepare(tmp_path, name, {"train": [index % 3 for index in range(30)]})
    assert load(tmp_path, "oaks").digest != load(tmp_path, "pines").digest


def test_another_label_is_another_digest(data_dir, tmp_path):
    labels = [index % 3 for index in range(3 * EACH)]
    prepare(tmp_path, "trees", {"train": [*labels[:-1], 0], "validation": labels[:6], "test": [0]})
    digests = {load(folder, "trees").digest for folder in (data_dir, data_dir, tmp_path)}
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tfds:trees", "is prepared already, in "),
        ("tfds:nothing", "error: config.dataset.tfds_name"),
    ],
)
def test_prepare_takes_the_name_after_a_prefix(data_dir, name, message):
    done = start("train.prepare", f"--dataset={name}", f"--data_dir={data_dir}")
    prepared = name == "tfds:trees"
    assert done.returncode == (0 if prepared else 2), done.stderr
    (line,) = (done.stdout if prepared else done.stderr).splitlines()
    assert message in line
