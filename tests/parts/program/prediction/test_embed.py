"""Features of networks: what they are, which rows they are of, and what interruptions leave."""

import dataclasses
import itertools
import multiprocessing
import os
import signal
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests.parts.program.data import pictures
from tests.parts.program.prediction import small_network
from train.classifiers import network, trained
from train.classifiers.network import spec_of_images
from train.configuration.datasets import FeaturesFields, ImagesFields
from train.data import dataset_spec
from train.foundation.errors import UserError
from train.models import MODELS
from train.models.model_spec import NORMALIZATIONS
from train.prediction.embedding import embed, find

CLASSES = ("ash", "birch", "cedar", "dogwood", "elm", "fir")
EACH = 25


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    pictures.write_classes(root, CLASSES, EACH)
    return root


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file of weights of the small network."""
    file = tmp_path_factory.mktemp("weights") / "resnet50.pth"
    safetensors.numpy.save_file(small_network.weights()[1], file)
    return file


class Sums:
    """In the place of a network: quick, and it counts the batches that it computes."""

    image_shape = (10, 12, 3)
    digest = "sums"
    parameters_digest = network = path = "sums"
    num_features = 5

    def __init__(self):
        self.batches = 0

    spec = spec_of_images(Path("photos"), image_shape)
    reader = spec.image_reader

    def compiled(self):
        weights = np.random.default_rng(0).normal(size=(360, self.num_features)).astype(np.float32)

        def compute(images):
            self.batches += 1
            return images.reshape(len(images), -1).astype(np.float32) @ weights

        return compute


def arrays(path):
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def test_weights_choose_their_network_and_its_images(weights, monkeypatch):
    small_network.shrink(monkeypatch.setitem)
    clip = NORMALIZATIONS["clip"]
    of_patches = {"image_size": 20, "multiple_of": 10, "normalization": clip}
    twin = dataclasses.replace(MODELS["resnet50"], **of_patches)
    assert network.of_weights(weights).image_shape == (224, 224, 3)
    monkeypatch.setitem(MODELS, "twin", twin)
    used = network.of_weights(weights, "twin")
    assert used.network == "twin"
    assert used.image_shape == (20, 20, 3)
    assert (used.spec.mean, used.spec.std) == clip
    assert network.of_weights(weights, "twin", 30).image_shape == (30, 30, 3)
    images = np.zeros((1, 20, 20, 3), np.uint8)
    by_imagenet = network.of_weights(weights, "resnet50", 20)
    assert not np.allclose(used.compiled()(images), by_imagenet.compiled()(images))
    with pytest.raises(UserError, match="resnet50, twin"):
        network.of_weights(weights)
    with pytest.raises(UserError, match="--image_size"):
        network.of_weights(weights, "twin", 25)


@pytest.mark.usefixtures("standard_promotion")
def test_features_of_a_run_are_those_below_its_head(photos, finished_run, tmp_path):
    used = network.of_run(finished_run)
    embed(used, find(photos), tmp_path / "a.npz")
    content = arrays(tmp_path / "a.npz")
    classifier = trained.load(finished_run)
    rows = [0, 149]
    pixels = [
        used.reader.for_evaluation((photos / content["names"][row]).read_bytes(), "a picture")
        for row in rows
    ]
    # Grey, of 8 by 8 pixels, as the digits of the run are.
    assert pixels[0].shape == (8, 8, 1)
    head = classifier.params["head"]["Dense_0"]
    logits = content["features"][rows] @ head["kernel"] + head["bias"]
    scores = classifier.parts.objective.scores(jnp.asarray(logits))
    # Float32 rounding of a few sums.
    np.testing.assert_allclose(classifier.scores()(np.stack(pixels)), scores, rtol=1e-4, atol=1e-6)


def test_groups_of_a_table_are_those_of_the_features(photos, tmp_path):
    rows = [
        f"photos/{name}/{index}.png,{name},plant {name} {index // 3}"
        for name in CLASSES
        for index in range(EACH)
    ]
    (tmp_path / "photos").symlink_to(photos)
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["path,label,group", *rows]))
    embed(Sums(), find(table), tmp_path / "a.npz")
    fields = {"batch_size": 1, "path": str(tmp_path / "a.npz")}
    of_features = dataset_spec(FeaturesFields(name="features", **fields)).load(None)
    fields["path"] = str(table)
    of_images = dataset_spec(ImagesFields(name="images", **fields)).load(None)
    for one, other in zip(of_features.splits.values(), of_images.splits.values(), strict=True):
        assert one.groups.tolist() == other.groups.tolist()
        assert one.names.tolist() == other.names.tolist()
        assert any(one.groups)


# Interruptions.


@pytest.fixture(scope="module")
def whole(photos, tmp_path_factory):
    """The bytes of the file that a start without interruption writes."""
    out = tmp_path_factory.mktemp("whole") / "a.npz"
    embed(Sums(), find(photos), out)
    return out.read_bytes()


def embed_killed(photos, out):
    """Is killed when two batches are on the disk."""
    batches = itertools.count(1)
    sync = os.fsync

    def fsync(file):
        sync(file)
        if next(batches) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = fsync
    embed(Sums(), find(photos), out)


@pytest.fixture(scope="module")
def left(photos, tmp_path_factory):
    """The bytes of the only file that a killed start leaves."""
    out = tmp_path_factory.mktemp("killed") / "a.npz"
    process = multiprocessing.get_context("spawn").Process(target=embed_killed, args=(photos, out))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert {one.name for one in out.parent.iterdir()} == {"a.npz.partial", ".a.npz.lock"}
    return out.with_name("a.npz.partial").read_bytes()


BATCH = 64 * 4 * 5
DAMAGES = {
    # What is done to the bytes of two batches of three; the batches that are computed then.
    "none": (lambda content: content, 2),
    "all lost": (lambda content: b"", 3),
    "torn head": (lambda content: content[:10], 3),
    "torn batch": (lambda content: content[:-1], 3),
    "more than a batch": (lambda content: content + b"abc", 2),
    "zeros, as of a power cut": (lambda content: content[:-BATCH] + bytes(BATCH), 2),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_killed_ends_with_the_same_file(photos, whole, left, tmp_path, damage):
    out = tmp_path / "a.npz"
    assert len(left) == left.index(b"\n") + 1 + 2 * BATCH
    change, computed = DAMAGES[damage]
    (tmp_path / "a.npz.partial").write_bytes(change(left))
    used = Sums()
    embed(used, find(photos), out)
    assert used.batches == computed
    assert out.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [out]
    embed(used, find(photos), out)
    assert used.batches == computed


def test_a_file_is_computed_again_if_it_or_an_image_changed(tmp_path):
    # Without compression, another image has as many bytes.
    pictures.write(tmp_path, [f"{name}/{index}.bmp" for name in CLASSES for index in range(9)])
    path = tmp_path / "a.npz"

    def is_computed():
        used = Sums()
        embed(used, find(tmp_path), path)
        return used.batches > 0

    assert [is_computed(), is_computed()] == [True, False]
    whole = path.read_bytes()
    path.write_bytes(whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:])
    assert is_computed()
    assert path.read_bytes() == whole
    pictures.picture("another").save(tmp_path / "ash" / "0.bmp")
    assert is_computed()


def test_what_belongs_to_something_else_is_refused(photos, left, tmp_path):
    out = tmp_path / "a.npz"
    (tmp_path / "a.npz.partial").write_bytes(left)
    other = Sums()
    other.digest = "others"
    for used, given in ((other, photos), (Sums(), photos / "ash")):
        with pytest.raises(UserError, match=r"a\.npz\.partial"):
            embed(used, find(given), out)
    assert (tmp_path / "a.npz.partial").read_bytes() == left
    assert other.batches == 0


def test_features_that_are_not_finite_are_refused(photos, tmp_path):
    class Broken(Sums):
        def compiled(self):
            return lambda images: np.full((len(images), 5), np.nan, np.float32)

    with pytest.raises(UserError, match=r"ash/0\.png"):
        embed(Broken(), find(photos), tmp_path / "a.npz")
    assert list(tmp_path.iterdir()) == []
