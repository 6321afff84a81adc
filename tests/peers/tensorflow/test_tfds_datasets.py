"""CIFAR-100 and ImageNet from archives in the published byte formats, by tfds's own builders."""

import dataclasses
import hashlib
import io
import json
import tarfile

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from tests.parts.program import test_recipes
from tests.parts.program.data import archives
from tests.parts.program.data.specs import dataset_spec
from train import prepare
from train.foundation.errors import UserError

CIFAR_100_URL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"


def run(dataset, tmp_path):
    prepare.prepare(
        dataset,
        data_dir=str(tmp_path / "data"),
        manual_dir=str(tmp_path / "manual"),
    )


def opened(name, tmp_path, split):
    builder = tfds.builder(name, data_dir=tmp_path / "data", file_format="array_record")
    decoders = {"image": tfds.decode.SkipDecoding()}
    return builder, list(builder.as_data_source(split, decoders=decoders))


@pytest.fixture
def cifar100(tmp_path, monkeypatch):
    """An archive, which tfds takes for the published one, and the arrays in it."""
    archive, arrays = archives.cifar100_tar(tmp_path / "manual", num_train=200, num_test=100)
    builder = tfds.builder_cls("cifar100")
    published = builder.url_infos[CIFAR_100_URL]
    ours = dataclasses.replace(
        published,
        size=archive.stat().st_size,
        checksum=hashlib.sha256(archive.read_bytes()).hexdigest(),
    )
    monkeypatch.setitem(builder.url_infos, CIFAR_100_URL, ours)
    return arrays


def test_cifar_100_has_the_pixels_and_labels_of_the_archive(tmp_path, cifar100):
    run("cifar100", tmp_path)
    for split, (images, labels) in cifar100.items():
        builder, found = opened("cifar100", tmp_path, split)
        assert len(found) == len(labels)
        for example in found:
            # Stored in another order; the identifier has the place in the archive.
            place = int(example["id"].decode().removeprefix(f"{split}_"))
            pixels = np.asarray(Image.open(io.BytesIO(example["image"])))
            np.testing.assert_array_equal(pixels, images[place])
            assert example["label"] == labels[place]
            assert example["coarse_label"] == labels[place] // 5
    assert builder.info.features["label"].names[7] == "fine_07"


def test_a_data_set_is_prepared_by_its_name(tmp_path, cifar100, capsys):
    run("tfds:cifar100", tmp_path)
    assert "tfds:cifar100: 100 classes; images: 200 train, 100 test" in capsys.readouterr().out
    fields = {"name": "images", "path": "tfds:cifar100", "validation_fraction": 0.5}
    dataset = dataset_spec(fields).load(str(tmp_path / "data"))
    assert dataset.image_shape == (32, 32, 3)
    assert len(dataset.test) == 100
    # The fine labels, which are named "label", not the coarse ones.
    assert dataset.class_names[7] == "fine_07"
    expected = np.bincount(cifar100["test"][1], minlength=100)
    np.testing.assert_array_equal(np.bincount(dataset.test.labels, minlength=100), expected)


def test_a_wrong_checksum_is_refused_with_both(tmp_path):
    archive, _ = archives.cifar100_tar(tmp_path / "manual", num_train=200, num_test=100)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    message = rf"cifar100 cannot be prepared from .*: NonMatchingChecksumError.*58a81ae1.*{digest}"
    with pytest.raises(UserError, match=message):
        run("cifar100", tmp_path)


def test_imagenet_has_the_files_of_both_archives(tmp_path, capsys):
    archives.imagenet_tars(tmp_path / "manual", num_classes=6, num_validation=10)
    # From a start that was killed.
    torn = tmp_path / "data/imagenet2012/incomplete.5.1.0"
    torn.mkdir(parents=True)
    run("imagenet", tmp_path)
    assert not torn.exists()
    assert "imagenet: 1,000 classes; images: 12 train, 10 validation" in capsys.readouterr().out
    _, train = opened("imagenet2012", tmp_path, "train")
    for example in train:
        synset, index = example["file_name"].decode().removesuffix(".JPEG").split("_")
        assert example["label"] == archives.synsets().index(synset)
        assert example["image"] == archives.jpeg(int(example["label"]) + int(index))
    listed = json.loads((tmp_path / "data/imagenet2012/5.1.0/examples-train.json").read_bytes())
    assert listed["label"] == [example["label"] for example in train]
    assert listed["file_name"] == [example["file_name"].decode() for example in train]


def test_the_cifar_100_recipe_trains_on_what_was_prepared(run_seed, tmp_path, cifar100):
    run("cifar100", tmp_path)
    train_two_epochs("cifar100", tmp_path, run_seed)


def test_the_imagenet_recipe_trains_on_what_was_prepared(run_seed, tmp_path):
    # All classes, because the recipe holds out the same number of each: one of the two images.
    archives.imagenet_tars(tmp_path / "manual", num_classes=1000, num_validation=1000)
    run("imagenet", tmp_path)
    train_two_epochs("imagenet", tmp_path, run_seed)


def train_two_epochs(recipe, tmp_path, seed):
    """Two epochs by the real command, which is killed if it hangs, and a look at its results."""
    # The images that the archives leave for training make two batches.
    results = test_recipes.train(recipe, tmp_path / "data", tmp_path / "run", seed, 2)
    test = results["test"]
    for k in results["config"]["eval"]["ks"]:
        for rule in (f"top_{k}_accuracy", f"average_{k}_accuracy"):
            # No class has 20 training images; the same float32 values, added in another order.
            assert test[f"few_{rule}"] == pytest.approx(test[f"macro_{rule}"], rel=1e-6)
            assert test[f"medium_{rule}"] is None
            assert test[f"many_{rule}"] is None


def test_a_damaged_imagenet_archive_is_one_line_and_nothing_is_prepared(tmp_path):
    archives.imagenet_tars(tmp_path / "manual", num_classes=6, num_validation=10)
    with tarfile.open(tmp_path / "manual/ILSVRC2012_img_train.tar", "w") as archive:
        content = b"not an archive" * 100
        member = tarfile.TarInfo("n01440764.tar")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    with pytest.raises(
        UserError, match=r"imagenet cannot be prepared from .*: ReadError"
    ) as caught:
        run("imagenet", tmp_path)
    assert "\n" not in str(caught.value)
    assert not tfds.builder("imagenet2012", data_dir=tmp_path / "data").is_prepared()
