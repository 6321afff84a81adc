"""Published networks without a run: evaluated, served, and written for torchvision again."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy
from PIL import Image

from tests import reference
from tests.parts.program.data import small, small_prepared
from tests.parts.program.forked import start
from tests.parts.program.models import torch_writer as writer
from tests.parts.program.prediction import small_network
from train.classifiers import fitted, published
from train.classifiers.flags import ChosenClassifier
from train.data import photographs
from train.data.crops import ImageReader
from train.foundation.errors import UserError
from train.models.classifier import Classifier
from train.models.heads import LinearHead
from train.models.normalization import CLIP, IMAGENET
from train.prediction import exported_weights
from train.reports import rules
from train.training.losses import LOSSES

NUM_CLASSES = len(small.SPECIES)
# As in `small_photographs`.
READER = ImageReader.published(56, 64)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folders of prepared data sets, of weights and of what the commands write."""
    folder = tmp_path_factory.mktemp("published")
    small_prepared.plantnet(folder)
    _, arrays = small_network.weights(NUM_CLASSES)
    # As the authors of Pl@ntNet-300K write them.
    tensors = writer.ordered({name: writer.tensor(array) for name, array in arrays.items()})
    saved = writer.zip_bytes({"epoch": 29, "model": tensors, "optimizer": {"param_groups": []}})
    (folder / "best_acc.tar").write_bytes(saved)
    (folder / "names.txt").write_text("".join(f"{one} \N{HERB}\n" for one in small.SPECIES))
    (folder / "photos").mkdir()
    for name, size in (("a.jpg", (90, 70)), ("b.png", (64, 200))):
        pixels = np.random.default_rng(size[0]).integers(0, 256, (*size, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / name)
    return folder


@pytest.fixture
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


@pytest.mark.usefixtures("_small")
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
    rule = fitted.fitted(classifier, rules.parse("average_k=2"))
    # The middle between two scores, in float32.
    expected = reference.average_k_threshold(found.values, k=2)
    assert float(rule.rule.limits) == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    ("changes", "size", "normalization"),
    [({"image_size": 40}, 40, IMAGENET), ({"normalization": "clip"}, 224, CLIP)],
)
def test_names_of_classes_are_enough_to_predict(data, changes, size, normalization):
    classifier = published.load(of_names(data, **changes))
    assert classifier.classes.names == tuple(f"{one} \N{HERB}" for one in small.SPECIES)
    assert classifier.shape == (size, size, 3)
    pixels = classifier.reader.for_evaluation((data / "photos" / "a.jpg").read_bytes(), "a.jpg")
    scores = jax.jit(classifier.scores())(pixels[None])
    np.testing.assert_allclose(scores, by_hand([pixels], normalization), rtol=1e-4, atol=1e-6)
    with pytest.raises(UserError, match=r"names.txt has only the names of classes"):
        classifier.load_dataset()


@pytest.mark.usefixtures("_small")
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


@pytest.mark.usefixtures("_small")
def test_fitted_rules_of_classes_in_another_order_are_refused(data, tmp_path):
    names = (data / "names.txt").read_text().splitlines()
    (tmp_path / "reversed.txt").write_text("\n".join(reversed(names)))
    same, other = (
        published.load(of_names(data, **changes))
        for changes in ({}, {"classes": f"{tmp_path}/reversed.txt"})
    )
    path = tmp_path / "rules.json"
    fitted.write(path, same, {"top_k=2": fitted.fitted(same, rules.parse("top_k=2"))})
    assert list(fitted.read(path, same)) == ["top_k=2"]
    with pytest.raises(UserError, match=r"--calibration .* in another order"):
        fitted.read(path, other)


@pytest.mark.usefixtures("_small")
def test_its_weights_are_written_as_they_were_published(data):
    classifier = published.load(of_names(data))
    _, arrays = small_network.weights(NUM_CLASSES)
    found = safetensors.numpy.load(exported_weights.serialize(classifier))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    described = exported_weights.describe(classifier)
    assert described["names"] == "of torchvision"
    assert described["images"]["normalization"]["mean"] == list(IMAGENET.mean)
    assert described["images"]["shape"] == ["n", 224, 224, 3]
    assert described["weights"].endswith("best_acc.tar")
    assert described["classes"] == list(classifier.classes.names)


@pytest.mark.usefixtures("_small")
def test_weights_that_no_other_program_reads_are_not_written(data, monkeypatch):
    classifier = published.load(of_names(data))
    with monkeypatch.context() as patch:
        model = dataclasses.replace(classifier.config.model, name="small_cnn")
        config = dataclasses.replace(classifier.config, model=model)
        patch.setattr(classifier.assembly, "config", config)
        message = "--format=safetensors is for networks .*; this network is 'small_cnn'"
        with pytest.raises(UserError, match=message):
            exported_weights.serialize(classifier)
    monkeypatch.setattr(classifier.assembly, "loss", LOSSES["ldam"])
    with pytest.raises(UserError, match=r"--format=safetensors is for linear heads.* cosine"):
        exported_weights.serialize(classifier)


def test_the_commands_take_it(data, tmp_path):
    network = (f"--weights={data}/best_acc.tar", "--model=resnet50")
    plantnet = ("--dataset=plantnet300k", f"--data={data}/data")
    names, photos = f"--classes={data}/names.txt", f"--images={data}/photos"
    for number, species in enumerate([*small.SPECIES[:2], "another"]):
        (data / "labelled" / f"{species} \N{HERB}").mkdir(parents=True)
        Image.new("RGB", (60, 60), (number, 9, 99)).save(
            data / "labelled" / f"{species} \N{HERB}" / "a.png"
        )
    new_data = (f"--images={data}/labelled", "--top_k=1", f"--out={data}/new.json")
    evaluated = start(
        "tests.parts.program.prediction.small_published",
        *(*network, names, *new_data),
        environment={"COMMAND": "train.evaluate"},
        folder=str(tmp_path),
    )
    assert (evaluated.returncode, evaluated.stderr) == (0, "")
    report = json.loads((data / "new.json").read_text())
    assert report["sets"]["top_k=1"]["unknown"]["examples"] == 1
    starts = {
        "evaluate": (*plantnet, "--top_k=1"),
        "predict": (names, photos, "--top_k=2", f"--html={tmp_path}/page.html"),
        "export": (names, "--format=safetensors", f"--out={tmp_path}/weights"),
    }
    done = {
        command: start(
            "tests.parts.program.prediction.small_published",
            *network,
            *flags,
            environment={"COMMAND": f"train.{command}"},
            folder=str(tmp_path),
        )
        for command, flags in starts.items()
    }
    for command, ended in done.items():
        # Started in the folder.
        told = "page  page.html\n" if command == "predict" else ""
        assert (ended.returncode, ended.stderr) == (0, told), ended.stderr
    for line in map(json.loads, done["predict"].stdout.splitlines()):
        assert line["rule"] == "top_k=2"
        assert all(member["class"].endswith("\N{HERB}") for member in line["set"])
    # No file is written that was not requested.
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        *("page.html", "weights", "weights.json", "weights.md"),
    ]
