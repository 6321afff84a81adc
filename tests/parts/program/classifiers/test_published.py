"""Published networks without a run: evaluated, served, and written for torchvision again."""

import dataclasses
import hashlib

import jax
import numpy as np
import pytest
import safetensors.numpy
from PIL import Image

from tests import reference
from tests.parts.program.data import small, small_prepared
from tests.parts.program.prediction import small_network
from tests.promises import torch_files
from train.classifiers import fitted, published
from train.classifiers.flags import ChosenClassifier
from train.data import photographs
from train.data.crops import ImageReader
from train.foundation import files
from train.foundation.errors import UserError
from train.models.classifier import Classifier
from train.models.heads import LinearHead
from train.models.model_spec import CLIP, IMAGENET
from train.package import weights
from train.reports import rules

NUM_CLASSES = len(small.SPECIES)
# As in `small_photographs`.
READER = ImageReader.published(56, 64)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folders of prepared data sets, of weights and of what the commands write."""
    folder = tmp_path_factory.mktemp("published")
    small_prepared.plantnet(folder)
    _, arrays = small_network.weights(NUM_CLASSES)
    (folder / "best_acc.tar").write_bytes(torch_files.zip_file(torch_files.checkpoint(arrays)))
    (folder / "names.txt").write_text("".join(f"{one} \N{HERB}\n" for one in small.SPECIES))
    pixels = np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "a.jpg")
    return folder


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    small_network.shrink(monkeypatch.setitem)
    small.shrink(monkeypatch.setattr)
    monkeypatch.setattr(photographs, "READER", READER)


def on_plantnet(folder, **changes):
    given = {"weights": str(folder / "best_acc.tar"), "dataset": "plantnet300k"}
    return ChosenClassifier(**(given | {"data": str(folder / "data")} | changes))


def of_names(data, **changes):
    given = {"weights": str(data / "best_acc.tar"), "classes": str(data / "names.txt")}
    return ChosenClassifier(**(given | changes))


def by_hand(pixels, normalization=IMAGENET):
    """The probabilities of the small network for uint8 images."""
    variables, _ = small_network.weights(NUM_CLASSES)
    mean, std = (np.array(one, np.float32) for one in normalization)
    inputs = (np.stack(pixels).astype(np.float32) / np.float32(255) - mean) / std
    model = Classifier(small_network.SMALL(axis_name=None), LinearHead(NUM_CLASSES))
    return jax.nn.softmax(model.apply(variables, inputs, train=False))


def test_it_is_evaluated_and_calibrated_on_a_data_set(data):
    classifier = published.load(on_plantnet(data))
    assert classifier.config.model.name == "resnet50"
    dataset = classifier.load_dataset()
    assert classifier.classes.names == dataset.class_names
    found = dataset.validation
    pixels = [found.reader.for_evaluation(found.encoded(index), "a") for index in range(len(found))]
    assert pixels[0].shape == (56, 56, 3)
    found = classifier.split("validation")
    # Convolutions in float32, compiled with others around them.
    np.testing.assert_allclose(found.values, by_hand(pixels), rtol=1e-4, atol=1e-6)
    rule = fitted.find(classifier, rules.parse("average_k=2"))
    # The middle between two scores, in float32.
    expected = reference.average_k_threshold(found.values, k=2)
    assert float(rule.rule.limits) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "size", "normalization"),
    [({"image_size": 40}, 40, IMAGENET), ({"normalization": "clip"}, 224, CLIP)],
)
def test_names_of_classes_are_enough_to_predict(data, changes, size, normalization):
    classifier = published.load(of_names(data, **changes))
    assert classifier.classes.names == tuple(f"{one} \N{HERB}" for one in small.SPECIES)
    assert classifier.shape == (size, size, 3)
    pixels = classifier.reader.for_evaluation((data / "a.jpg").read_bytes(), "a.jpg")
    scores = jax.jit(classifier.scores())(pixels[None])
    np.testing.assert_allclose(scores, by_hand([pixels], normalization), rtol=1e-4, atol=1e-6)
    with pytest.raises(UserError, match=r"names.txt has only the names of classes"):
        classifier.load_dataset()


def test_a_file_that_does_not_fit_is_one_line(data, tmp_path):
    (tmp_path / "few.txt").write_text("one\ntwo\n")
    (tmp_path / "blank.txt").write_text("one\n\ntwo\n")
    _, arrays = small_network.weights(NUM_CLASSES)
    headless = {name: array for name, array in arrays.items() if not name.startswith("fc.")}
    safetensors.numpy.save_file(headless, tmp_path / "headless")
    path = str(tmp_path)
    mistakes = [
        (of_names(data, classes=f"{path}/few.txt"), "few.txt"),
        (of_names(data, classes=f"{path}/blank.txt"), "--classes"),
        (of_names(data, weights=f"{path}/headless"), "headless"),
        (of_names(data, model="resnet18"), "--model"),
        (of_names(data, normalization="half"), "--normalization"),
        (of_names(data, image_size=5000), "--image_size"),
        (on_plantnet(data, dataset="folder"), "--dataset"),
        (on_plantnet(data, data=path), "train.prepare"),
    ]
    for chosen, message in mistakes:
        with pytest.raises(UserError, match=message) as raised:
            published.load(chosen)
        assert "\n" not in str(raised.value)
        assert "config." not in str(raised.value)


def test_weights_of_an_export_take_the_images_of_their_description(data, tmp_path):
    classifier = published.load(of_names(data, image_size=40))
    path = tmp_path / "own.safetensors"
    path.write_bytes(content := weights.serialize(classifier))
    described = {**weights.describe(classifier), "digest": hashlib.sha256(content).hexdigest()}
    beside = files.to_json(files.with_checksum(described))
    path.with_name("own.safetensors.json").write_bytes(beside)
    assert published.load(of_names(data, weights=str(path), image_size=40)).shape == (40, 40, 3)
    for changes in ({}, {"image_size": 40, "normalization": "clip"}):
        with pytest.raises(UserError, match="--image_size and --normalization must be those of"):
            published.load(of_names(data, weights=str(path), **changes))
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match="is not the file that"):
        published.load(of_names(data, weights=str(path), image_size=40))


def test_weights_that_no_other_program_reads_are_not_written(data, monkeypatch):
    classifier = published.load(of_names(data))
    with monkeypatch.context() as patch:
        model = dataclasses.replace(classifier.config.model, name="small_cnn")
        config = dataclasses.replace(classifier.config, model=model)
        patch.setattr(classifier.parts, "config", config)
        with pytest.raises(UserError, match="small_cnn"):
            weights.serialize(classifier)
    monkeypatch.setattr(classifier.parts, "head", "cosine")
    with pytest.raises(UserError, match="cosine"):
        weights.serialize(classifier)
