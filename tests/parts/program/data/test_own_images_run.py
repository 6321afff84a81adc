"""A run on somebody's own images, from files to sets of classes."""

import itertools
import json

import numpy as np
import pytest

from configs import features, images
from tests.parts.program.data import pictures
from train import experiment
from train.configuration.parsing import parse
from train.prediction import image_files, trained
from train.prediction.description import preparation
from train.training.losses import LOSSES

CLASSES = ("ash", "birch", "cedar", "dogwood", "elm", "fir")

pytestmark = pytest.mark.usefixtures("standard_promotion")


def small(recipe, path, **fields):
    """A recipe for own images that takes a few seconds."""
    config = recipe.get_config()
    config.dataset.path = str(path)
    config.dataset.batch_size = 8
    config.dataset.augmentation = "crop_flip"
    config.model.name = "mlp"
    config.num_epochs = 2
    config.update_from_flattened_dict(fields)
    return json.loads(config.to_json())


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    pictures.write_classes(root, CLASSES, 10)
    return root


def test_a_folder_becomes_a_classifier_that_needs_no_data(photos, tmp_path):
    workdir = tmp_path / "run"
    results = experiment.run(small(images, photos), workdir)
    assert results["num_classes"] == len(CLASSES)
    kept = json.loads((workdir / "data.json").read_text())
    # Found in the images: all have 12 x 10 pixels.
    assert kept["image_shape"] == [10, 12, 3]
    classifier = trained.load(workdir)
    assert classifier.classes.names == CLASSES
    assert classifier.classes.training_images == (6,) * len(CLASSES)
    reader = classifier.spec.image_reader
    pixels = reader.pixels(image_files.read(photos / "ash" / "0.png", reader), "a")
    np.testing.assert_array_equal(pixels, np.asarray(pictures.picture("ash/0.png")))
    assert classifier.scores()(pixels[None]).shape == (1, len(CLASSES))
    for wrong, error, message in (
        (pixels[None].astype(np.float32), TypeError, "images must be uint8, got dtype float32"),
        (pixels[None, :9], ValueError, r"got shape \(1, 9, 12, 3\)"),
    ):
        with pytest.raises(error, match=message):
            classifier.scores()(wrong)
    # What a finished run evaluates is what it was trained on.
    assert len(classifier.predict("validation").labels) == len(classifier.load_dataset().validation)


def test_greyscale_and_a_size_of_ones_own_for_one_epoch(tmp_path, capsys):
    pictures.write_classes(tmp_path / "photos", CLASSES, 10, mode="L")
    fields = {"dataset.image_size": 7, "num_epochs": 1}
    experiment.run(small(images, tmp_path / "photos", **fields), tmp_path / "run")
    line = "the warm-up takes 0.5 epochs, half of the run, in place of 1 (config.optimizer.warmup"
    assert line in capsys.readouterr().out
    kept = json.loads((tmp_path / "run" / "data.json").read_text())
    assert kept["image_shape"] == [7, 7, 1]
    spec = trained.load(tmp_path / "run").spec
    assert "in greyscale, " in preparation(spec, (7, 7, 1))


def test_every_loss_is_a_configuration(tmp_path):
    for recipe, loss in itertools.product((images, features), LOSSES):
        config = recipe.get_config(loss)
        config.dataset.path = str(tmp_path)
        assert config.loss.name == loss
        parse(json.loads(config.to_json()))
