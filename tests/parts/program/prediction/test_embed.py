"""Features of networks: what they are, which rows they are of, and what interruptions leave."""

import dataclasses
import io
import json
import os
import re
import shlex
import shutil
import sys
import tracemalloc
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from flax import linen as nn
from PIL import Image

import train.data
from tests.parts.program.data.own import observations, pictures
from tests.parts.program.forked import ROOT, error_lines, start
from tests.parts.program.prediction import small_network
from train.configuration.datasets import FeaturesFields
from train.data import dataset_spec, photographs
from train.data.fast_images import FastPicture
from train.data.images import UnreadableImageError
from train.data.own import feature_files
from train.data.own.encoded_images import EncodedImages
from train.data.own.found_images import FoundImages
from train.data.own.listing import Listing
from train.foundation import stored_rows
from train.foundation.errors import UserError
from train.foundation.spelling import flags_for_fields
from train.foundation.stored_rows import StoredRows
from train.models import MODELS, NORMALIZATIONS, ModelSpec
from train.models.weights.names import PublishedNames
from train.prediction import row_sets, trained
from train.prediction.embedding import found, network
from train.prediction.embedding.embedding import embed
from train.sharing.part_files import PartFile

CLASSES = ("ash", "birch", "cedar", "dogwood", "elm", "fir")
EACH = 25
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}


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

    def __init__(self, num_features=5):
        self.num_features = num_features
        self.batches = 0

    spec = dataset_spec(found.configuration("folder", Path("photos"))).of_shape(image_shape)
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


def test_features_of_pretrained_weights_are_those_below_the_head(
    photos, weights, tmp_path, monkeypatch
):
    small_network.shrink(monkeypatch.setitem)
    used = network.of_weights(weights, image_size=16)
    embed(used, found.in_folder(photos), tmp_path / "a.npz", skip_unreadable=False)
    content = arrays(tmp_path / "a.npz")
    assert content["features"].shape == (len(CLASSES) * EACH, small_network.NUM_FEATURES)
    assert content["features"].dtype == np.float32
    rows = [3, 70, 149]
    pixels = [
        used.reader.for_evaluation((photos / content["names"][row]).read_bytes(), "a picture")
        for row in rows
    ]
    assert pixels[0].shape == (16, 16, 3)
    inputs = (np.stack(pixels) / 255 - photographs.IMAGENET_MEAN) / photographs.IMAGENET_STD
    variables, _ = small_network.weights()
    below = {name: variables[name]["features"] for name in variables}
    model = small_network.SMALL(axis_name=None)
    expected = model.apply(below, jnp.asarray(inputs, jnp.float32), train=False)
    # Float32 rounding of sums of some hundred terms; other batches add them up in another order.
    np.testing.assert_allclose(content["features"][rows], expected, rtol=1e-4, atol=1e-4)


def test_fast_decoding_gives_other_features_by_its_own_pixels(weights, monkeypatch):
    small_network.shrink(monkeypatch.setitem)
    exact, fast = (
        network.of_weights(weights, image_size=16, decoding=one) for one in ("exact", "fast")
    )
    # What was started with one decoding is not resumed with the other.
    assert exact.digest != fast.digest
    file = io.BytesIO()
    Image.effect_mandelbrot((90, 70), (-3, -2.5, 2, 2.5), 100).save(file, "JPEG")
    found, expected = (one.reader.for_evaluation(file.getvalue(), "a") for one in (fast, exact))
    assert fast.reader.kind is FastPicture
    assert abs(found.astype(int) - expected).max() <= 1
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    monkeypatch.delattr(train.data, "fast_images")
    monkeypatch.delitem(sys.modules, "train.data.fast_images")
    with pytest.raises(UserError, match=r"decoding='fast' needs the package simplejpeg.*: pip"):
        network.of_weights(weights, image_size=16, decoding="fast")


def test_transparency_and_truncated_files_are_as_the_flags_say(weights, monkeypatch):
    small_network.shrink(monkeypatch.setitem)
    usual, chosen = (
        network.of_weights(weights, image_size=16, **flags)
        for flags in ({}, {"transparency": "white", "read_truncated": True})
    )
    # What was started with one is not resumed with the other.
    assert usual.digest != chosen.digest
    file = io.BytesIO()
    Image.new("RGBA", (16, 16)).save(file, "PNG")
    assert (usual.reader.for_evaluation(file.getvalue(), "a") == 0).all()
    assert (chosen.reader.for_evaluation(file.getvalue(), "a") == 255).all()
    file = io.BytesIO()
    Image.effect_mandelbrot((90, 70), (-3, -2.5, 2, 2.5), 100).save(file, "JPEG")
    assert chosen.reader.for_evaluation(file.getvalue()[:-20], "a").shape == (16, 16, 3)
    with pytest.raises(UnreadableImageError, match="truncated"):
        usual.reader.for_evaluation(file.getvalue()[:-20], "a")


def test_truncated_files_are_embedded_if_the_network_reads_them(tmp_path):
    class Patient(Sums):
        chosen = found.configuration("folder", Path("photos"), read_truncated=True)
        reader = dataset_spec(chosen).of_shape(Sums.image_shape).image_reader

    root = tmp_path / "photos"
    pictures.write_classes(root, CLASSES, 5)
    pictures.picture("a").save(root / "ash" / "0.jpg", "JPEG", quality=95)
    whole = (root / "ash" / "0.jpg").read_bytes()
    (root / "ash" / "0.jpg").write_bytes(whole[:-20])
    flags = flags_for_fields({"config.dataset.read_truncated": "--read_truncated"})
    message = r"cannot decode ash/0\.jpg .*truncated .*\(--read_truncated reads what is the"
    with flags, pytest.raises(UserError, match=message):
        embed(Sums(), found.in_folder(root), tmp_path / "a.npz", skip_unreadable=False)
    embed(Patient(), found.in_folder(root), tmp_path / "a.npz", skip_unreadable=False)
    assert len(arrays(tmp_path / "a.npz")["features"]) == 5 * len(CLASSES) + 1


def test_weights_choose_their_network_and_its_images(weights, monkeypatch):
    small_network.shrink(monkeypatch.setitem)
    clip = NORMALIZATIONS["clip"]
    of_patches = {"image_size": 20, "multiple_of": 10, "normalization": clip}
    twin = dataclasses.replace(MODELS["resnet50"], **of_patches)
    assert network.of_weights(weights).image_shape == (224, 224, 3)
    monkeypatch.setitem(MODELS, "twin", twin)
    used = network.of_weights(weights, "twin")
    assert used.name == "twin"
    assert used.image_shape == (20, 20, 3)
    assert (used.spec.mean, used.spec.std) == clip
    assert network.of_weights(weights, "twin", 30).image_shape == (30, 30, 3)
    images = np.zeros((1, 20, 20, 3), np.uint8)
    by_imagenet = network.of_weights(weights, "resnet50", 20)
    assert not np.allclose(used.compiled()(images), by_imagenet.compiled()(images))
    flags = {"config.model.pretrained": "--weights", "config.model.name": "--model"}
    for arguments, message in (
        ((), r"^--weights: .* fits each of resnet50, twin; --model=NAME chooses one$"),
        (("twn",), r"^--model must be one of .* \(did you mean 'twin'\?\); got 'twn'$"),
        (("mlp",), r"^--weights is for networks with published weights, .*; --model is 'mlp'$"),
        (
            ("resnet34",),
            r"^--weights: .* does not fit --model=resnet34, it holds resnet50 or twin: it lacks",
        ),
        (
            ("twin", 25),
            r"^twin takes images whose height and width are at least 10 and divisible by 10; "
            r"--image_size gives images of shape \(25, 25, 3\)$",
        ),
    ):
        with pytest.raises(UserError, match=message), flags_for_fields(flags):
            network.of_weights(weights, *arguments)


class Brightness(nn.Module):
    """A network without statistics of batch norm."""

    axis_name: str | None
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, images, *, train):
        return nn.Dense(2, name="mix")(images.mean(axis=(1, 2)))


def test_a_network_without_batch_norm(tmp_path, monkeypatch):
    spec = ModelSpec(Brightness, names=PublishedNames({}, head="fc"), num_parameters=8)
    monkeypatch.setitem(MODELS, "brightness", spec)
    path = tmp_path / "w.safetensors"
    arrays = {"mix.weight": np.ones((2, 3), np.float32), "mix.bias": np.ones(2, np.float32)}
    safetensors.numpy.save_file(arrays, path)
    used = network.of_weights(path, image_size=8)
    assert used.name == "brightness"
    pixels = np.full((1, 8, 8, 3), 255, np.uint8)
    expected = 1 + ((1 - np.array(photographs.IMAGENET_MEAN)) / photographs.IMAGENET_STD).sum()
    # Float32 rounding of three terms.
    np.testing.assert_allclose(used.compiled()(pixels), [[expected] * 2], rtol=1e-5)
    assert used.num_features == 2


@pytest.mark.usefixtures("standard_promotion")
def test_features_of_a_run_are_those_below_its_head(photos, finished_run, tmp_path):
    used = network.of_run(finished_run)
    embed(used, found.in_folder(photos), tmp_path / "a.npz", skip_unreadable=False)
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
    scores = classifier.assembly.objective.scores(jnp.asarray(logits))
    # Float32 rounding of a few sums.
    np.testing.assert_allclose(classifier.scores()(np.stack(pixels)), scores, rtol=1e-4, atol=1e-6)


def test_rows_have_the_labels_and_splits_of_a_run_on_the_images(photos, tmp_path, monkeypatch):
    out = tmp_path / "a.npz"
    embed(Sums(), found.in_folder(photos), out, skip_unreadable=False)
    content = arrays(out)
    dataset = dataset_spec(found.configuration("folder", photos)).load(None)
    assert tuple(content["class_names"]) == dataset.class_names == CLASSES
    names = np.array([f"{name}/{index}.png" for name in CLASSES for index in range(EACH)])
    assert sorted(content["names"]) == sorted(names)
    for word, split in (
        ("train", dataset.train),
        ("val", dataset.validation),
        ("test", dataset.test),
    ):
        (rows,) = np.nonzero(content["split"] == word)
        np.testing.assert_array_equal(rows, split.images.indices)
        np.testing.assert_array_equal(content["labels"][rows], split.labels)
    fields = FeaturesFields(name="features", batch_size=1, path=str(out))
    of_features = dataset_spec(fields).load(None)
    np.testing.assert_array_equal(of_features.test.images.indices, dataset.test.images.indices)
    assert of_features.class_names == CLASSES
    # They stay in their file: the arrays are not compressed.
    monkeypatch.setattr(stored_rows, "MOST_IN_MEMORY", 0)
    features = feature_files.read_features(feature_files.find(out, "--features"))
    assert isinstance(features, StoredRows)


def test_groups_of_a_table_stay_in_one_split(photos, tmp_path):
    rows = [
        f"photos/{name}/{index}.png,{name},plant {name} {index // 3}"
        for name in CLASSES
        for index in range(EACH)
    ]
    (tmp_path / "photos").symlink_to(photos)
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["path,label,group", *rows]))
    embed(Sums(), found.in_table(table), tmp_path / "a.npz", skip_unreadable=False)
    content = arrays(tmp_path / "a.npz")
    split_of = {}
    for name, split in zip(content["names"], content["split"], strict=True):
        plant = (name.split("/")[-2], int(Path(name).stem) // 3)
        assert split_of.setdefault(plant, split) == split
    assert set(split_of.values()) == {"train", "val", "test"}
    # So the groups of the features are those of the images.
    assert content["group"][0] == f"plant {CLASSES[0]} 0"
    of_features = dataset_spec(
        FeaturesFields(name="features", batch_size=1, path=str(tmp_path / "a.npz"))
    ).load(None)
    of_images = dataset_spec(found.configuration("table", table)).load(None)
    for one, other in (
        (of_features.train, of_images.train),
        (of_features.test, of_images.test),
    ):
        assert one.groups.tolist() == other.groups.tolist()
        assert one.names.tolist() == other.names.tolist()


def test_likely_groups_are_told_with_the_flag(tmp_path, caplog):
    observations.write(tmp_path / "photos", observations.names())
    with flags_for_fields({"config.dataset.group": "--group"}):
        found.in_folder(tmp_path / "photos")
        (line,) = caplog.messages
        assert line.endswith(rf"; --group='{observations.PATTERN}' keeps each in one split")
        found.in_folder(tmp_path / "photos", group=observations.PATTERN)
    assert caplog.messages == [line]


def test_groups_of_a_folder_are_in_the_file(photos, tmp_path):
    settings = {"group": r"([^/]*/\d)\d*[.]"}
    embed(Sums(), found.in_folder(photos, **settings), tmp_path / "a.npz", skip_unreadable=False)
    content = arrays(tmp_path / "a.npz")
    expected = [
        f"{name.partition('/')[0]}/{name.partition('/')[2][0]}" for name in content["names"]
    ]
    assert content["group"].tolist() == expected
    # Without groups, it is another file, and nothing is likely in names such as these.
    embed(Sums(), found.in_folder(photos), tmp_path / "a.npz", skip_unreadable=False)
    assert "group" not in arrays(tmp_path / "a.npz")


def test_a_folder_without_classes_gives_rows_to_predict_for(photos, tmp_path):
    images = found.in_folder(photos / "ash")
    embed(Sums(), images, tmp_path / "a.npz", skip_unreadable=False)
    assert set(arrays(tmp_path / "a.npz")) == {"features", "names", "embedded_by"}
    rows = row_sets.read(str(tmp_path / "a.npz"))
    assert rows.names == sorted(f"{index}.png" for index in range(EACH))


# Interruptions.


@pytest.fixture(scope="module")
def whole(photos, tmp_path_factory):
    """The bytes of the file that a start without interruption writes."""
    out = tmp_path_factory.mktemp("whole") / "a.npz"
    embed(Sums(), found.in_folder(photos), out, skip_unreadable=False)
    return out.read_bytes()


class StoppedError(Exception):
    pass


def stop_after(batches, photos, out, monkeypatch, *, skip_unreadable=False):
    original = PartFile.add

    def add(self, result):
        if self.done == batches:
            raise StoppedError
        original(self, result)

    with monkeypatch.context() as patch:
        patch.setattr(PartFile, "add", add)
        with pytest.raises(StoppedError):
            embed(Sums(), found.in_folder(photos), out, skip_unreadable=skip_unreadable)


# The length and the checksum of a batch have twelve bytes.
BATCH = 64 * (1 + 4 * 5) + 12


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES = {
    # What is done to the bytes of two batches of three; the batches that are computed then.
    "none": (lambda content: content, 1),
    "all lost": (lambda content: b"", 3),
    "torn head": (lambda content: content[:10], 3),
    "torn batch": (lambda content: content[:-1], 2),
    "more than a batch": (lambda content: content + b"abc", 1),
    "zeros, as of a power cut": (lambda content: content[:-BATCH] + bytes(BATCH), 2),
    "a bit": (lambda content: flipped(content, len(content) - 2 * BATCH + 100), 3),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_stopped_ends_with_the_same_file(photos, whole, tmp_path, monkeypatch, damage):
    out = tmp_path / "a.npz"
    stop_after(2, photos, out, monkeypatch)
    assert not out.exists()
    partial = tmp_path / "a.npz.partial"
    content = partial.read_bytes()
    assert len(content) == content.index(b"\n") + 1 + 2 * BATCH
    change, computed = DAMAGES[damage]
    partial.write_bytes(change(partial.read_bytes()))
    used = Sums()
    embed(used, found.in_folder(photos), out, skip_unreadable=False)
    assert used.batches == computed
    assert out.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [out]
    embed(used, found.in_folder(photos), out, skip_unreadable=False)
    assert used.batches == computed


def test_images_that_changed_are_computed_again(photos, whole, tmp_path):
    root, path = tmp_path / "photos", tmp_path / "a.npz"
    shutil.copytree(photos, root)
    for expected in (True, False, True):
        used = Sums()
        embed(used, found.in_folder(root), path, skip_unreadable=False)
        assert (used.batches > 0) == expected
        # Another image of the same size, as of a format without compression.
        if not expected:
            image = next(root.rglob("*.png"))
            later = image.stat().st_mtime + 60
            os.utime(image, (later, later))


def test_a_damaged_file_is_computed_again(photos, whole, tmp_path, capsys, caplog):
    def computed():
        used = Sums()
        embed(used, found.in_folder(photos), path, skip_unreadable=False)
        return used.batches

    path = tmp_path / "a.npz"
    path.write_bytes(whole)
    assert computed() == 0
    assert "has these features already" in capsys.readouterr().out
    path.write_bytes(whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:])
    assert computed() > 0
    assert caplog.messages == [f"{path} is damaged: its features are computed again"]
    assert path.read_bytes() == whole


def test_what_belongs_to_something_else_is_refused(photos, tmp_path, monkeypatch):
    out = tmp_path / "a.npz"
    stop_after(1, photos, out, monkeypatch)
    before = (tmp_path / "a.npz.partial").read_bytes()
    other = Sums()
    other.digest = "others"
    with pytest.raises(UserError, match=r"a\.npz\.partial has results of another network"):
        embed(other, found.in_folder(photos), out, skip_unreadable=False)
    with pytest.raises(UserError, match=r"a\.npz\.partial has results of another network"):
        embed(Sums(), found.in_folder(photos / "ash"), out, skip_unreadable=False)
    assert (tmp_path / "a.npz.partial").read_bytes() == before
    assert other.batches == 0


def test_a_killed_command_goes_on(photos, weights, tmp_path):
    arguments = (f"--weights={weights}", f"--images={photos}", "--image_size=16")
    module = "tests.parts.program.prediction.small_embed"
    for out, environment, code in (
        ("a.npz", {"KILL_AFTER": "2"}, -9),
        ("a.npz", {}, 0),
        ("b.npz", {}, 0),
    ):
        done = start(
            module,
            *arguments,
            f"--out={tmp_path / out}",
            environment=ENVIRONMENT | environment,
        )
        assert (done.returncode, done.stderr) == (code, "")
        if code == 0:
            assert ("continuing after 128 of 150 images" in done.stdout) == (out == "a.npz")
            assert "6 classes; rows: 102 train, 24 validation, 24 test" in done.stdout
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


# Images that cannot be read, and memory.


def test_unreadable_images_are_refused_or_left_out_and_named(photos, tmp_path, capsys, caplog):
    root = tmp_path / "photos"
    pictures.write_classes(root, CLASSES, 15)
    for name in ("ash/3.png", "cedar/14.png"):
        (root / name).write_bytes(b"no image")
    out = tmp_path / "a.npz"
    message = r"2 images of .* cannot be read: ash/3\.png, cedar/14\.png; --skip_unreadable leaves"
    with pytest.raises(UserError, match=message):
        embed(Sums(), found.in_folder(root), out, skip_unreadable=False)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    embed(Sums(), found.in_folder(root), out, skip_unreadable=True)
    printed = capsys.readouterr().out
    assert "88 rows of 5" in printed
    assert "left out     unreadable: ash/3.png, cedar/14.png\n" in printed
    assert "ash/3.png" in caplog.text
    message = r"a\.npz has features of 88 of the 90 images: .* were left out before; --skip_unrea"
    with pytest.raises(UserError, match=message):
        embed(Sums(), found.in_folder(root), out, skip_unreadable=False)
    content = arrays(out)
    assert not {"ash/3.png", "cedar/14.png"} & set(content["names"])
    assert len(content["features"]) == len(content["labels"]) == len(content["split"]) == 88
    # The other rows have their own features: the same as in a start with only these images.
    for name in ("ash/3.png", "cedar/14.png"):
        (root / name).unlink()
    embed(Sums(), found.in_folder(root), tmp_path / "b.npz", skip_unreadable=False)
    others = arrays(tmp_path / "b.npz")
    for name in ("names", "labels"):
        np.testing.assert_array_equal(content[name], others[name])
    # Rounding may depend on the place of an image in its batch.
    np.testing.assert_allclose(content["features"], others["features"], rtol=1e-4, atol=0.1)


def test_what_was_left_out_before_an_interruption_stays_out(tmp_path, monkeypatch):
    root, out = tmp_path / "photos", tmp_path / "a.npz"
    pictures.write_classes(root, CLASSES, EACH)
    (root / "ash" / "3.png").write_bytes(b"no image")
    stop_after(1, root, out, monkeypatch, skip_unreadable=True)
    with pytest.raises(UserError, match=r"ash/3\.png cannot be read, and was left out before; --"):
        embed(Sums(), found.in_folder(root), out, skip_unreadable=False)
    embed(Sums(), found.in_folder(root), out, skip_unreadable=True)
    embed(Sums(), found.in_folder(root), tmp_path / "b.npz", skip_unreadable=True)
    assert out.read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_nothing_is_left_where_no_image_can_be_read(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"none of the 1 images in .*photos can be read"):
        embed(
            Sums(), found.in_folder(tmp_path / "photos"), tmp_path / "a.npz", skip_unreadable=True
        )
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_features_that_are_not_finite_are_refused(photos, tmp_path):
    class Broken(Sums):
        def compiled(self):
            return lambda images: np.full((len(images), 5), np.nan, np.float32)

    with pytest.raises(UserError, match=r"the network gives ash/0\.png features that are not fin"):
        embed(Broken(), found.in_folder(photos), tmp_path / "a.npz", skip_unreadable=False)
    assert list(tmp_path.iterdir()) == []


def test_few_features_are_in_memory(photos, tmp_path):
    class Many(EncodedImages):
        def read(self, index):
            return encoded

        def __len__(self):
            return number

        def name(self, index):
            return "a"

    encoded = (photos / "ash" / "0.png").read_bytes()

    class Wide(Sums):
        def compiled(self):
            return lambda images: np.ones((len(images), width), np.float32)

    number, width = 1_280, 8_192
    listing = Listing(
        paths=tuple(f"{index}.png" for index in range(number)),
        sizes=np.full(number, len(encoded)),
        labels=np.arange(number) % 2,
        roles=np.zeros(number, np.int8),
        class_names=("a", "b"),
    )
    images = FoundImages(listing, Many(), photos, "here")
    tracemalloc.start()
    try:
        embed(Wide(width), images, tmp_path / "a.npz", skip_unreadable=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "a.npz").stat().st_size > 4 * number * width
    # All features have 42 MB; a batch has 2 MB, and is copied some times before it is written.
    assert peak < 20e6


# Mistakes.

# The folder of the test stands for @, a finished run for %, the photographs for &.
MISTAKES = {
    "out": ("--workdir=% --images=& --out=@/w.npz", "--out must be an .npz file, or a new one; "),
    "weights": ("--weights=@/w --images=& --out=@/a.npz", "error: --weights: "),
    "no weights": ("--weights=@/gone --images=& --out=@/a.npz", "--weights must be a file of weig"),
    "images": ("--workdir=% --images=@/gone --out=@/a.npz", "--images must be a folder with imag"),
    "table": ("--workdir=% --table=@/gone --out=@/a.npz", "--table must be a table of images; "),
    "fraction": (
        "--workdir=% --images=& --out=@/a.npz --test_fraction=0.9",
        "--validation_fraction and --test_fraction must leave examples for training",
    ),
}


def test_a_mistake_is_one_line_and_exit_code_two(photos, finished_run, tmp_path):
    for name in ("w", "w.npz"):
        (tmp_path / name).write_bytes(b"no weights")
    places = {"@": tmp_path, "%": finished_run, "&": photos}
    for name, (text, message) in MISTAKES.items():
        arguments = "".join(str(places.get(letter, letter)) for letter in text).split()
        done = start("train.embed", *arguments, environment=ENVIRONMENT)
        assert done.returncode == 2, (name, done.stderr)
        (line,) = error_lines(done.stderr)
        assert line.startswith("error: "), name
        assert message in line, name
        assert done.stdout == "", name
    assert {path.name for path in tmp_path.iterdir()} == {"w", "w.npz"}


def test_weights_of_no_known_network_are_told(tmp_path):
    safetensors.numpy.save_file({"layer1.0.conv1.weight": np.zeros(3)}, tmp_path / "w")
    with pytest.raises(UserError, match=r"/w holds no network known here"):
        network.of_weights(tmp_path / "w")


def test_every_file_of_a_folder_is_embedded_or_named(tmp_path, capsys):
    root = tmp_path / "photos"
    pictures.write(root, ["a.png"])
    for name in ("b.heic", "c.DNG", "no ending", "notes.txt", ".hidden.png"):
        (root / name).touch()
    embed(Sums(), found.in_folder(root), tmp_path / "a.npz", skip_unreadable=True)
    assert arrays(tmp_path / "a.npz")["names"].tolist() == ["a.png"]
    assert "unreadable: b.heic, c.DNG, no ending\n" in capsys.readouterr().out


# The page.


def test_the_commands_of_the_page_run_in_their_order(photos, weights, tmp_path):
    page = (ROOT / "docs" / "fine_tuning.md").read_text()
    section = page.split("## Many heads")[1].split("\n## ")[0]
    commands = [shlex.split(command) for command in re.findall("^    (python .*)$", section, re.M)]
    assert len(commands) == section.count("python -m") == 5
    # Sets of features that were computed first, as a sentence of the page says.
    of_features = (
        "python -m train.embed --weights=resnet50.pth --images=new --out=new.npz",
        "python -m train.predict --workdir=runs/head --features=new.npz --coverage=0.95 "
        "--out=sets.jsonl",
    )
    commands += map(shlex.split, of_features)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "photos").symlink_to(photos)
    (tmp_path / "resnet50.pth").symlink_to(weights)
    pictures.write(tmp_path / "new", ["7.png", "a bird.png"])
    for _, _, module, *arguments in commands:
        if module in ("train.evaluate", "train.export"):
            # test_joined.py starts them.
            continue
        small = {
            "train.embed": ["--image_size=16"],
            "train.main": ["--config.num_epochs=2", "--config.dataset.batch_size=50"],
        }.get(module, [])
        is_small = module in ("train.embed", "train.predict")
        done = start(
            "tests.parts.program.prediction.small_command" if is_small else module,
            *(*arguments, *small),
            environment=ENVIRONMENT | {"COMMAND": module},
            folder=str(tmp_path),
        )
        assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in (tmp_path / "sets.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == ["7.png", "a bird.png"]
    of_images = (tmp_path / "images.jsonl").read_text().splitlines()
    for line, of_image in zip(lines, map(json.loads, of_images), strict=True):
        assert of_image["path"] == f"new/{line['name']}"
        assert [one["class"] for one in of_image["set"]] == [one["class"] for one in line["set"]]
    results = json.loads((tmp_path / "runs" / "head" / "results.json").read_text())
    assert results["num_parameters"] == (small_network.NUM_FEATURES + 1) * len(CLASSES)
