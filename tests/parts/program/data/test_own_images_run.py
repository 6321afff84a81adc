"""A run on somebody's own images, from files to sets of classes."""

import json

import numpy as np
import pytest

from configs import features, images
from tests.parts.program.data import pictures
from train.classifiers import trained
from train.configuration.parsing import parse
from train.data import preparation
from train.run import experiment
from train.training.losses import LOSSES

CLASSES = ("ash", "birch", "cedar", "dogwood", "elm", "fir")


@pytest.mark.usefixtures("standard_promotion")
def test_a_folder_becomes_a_classifier_that_needs_no_data(tmp_path, capsys):
    photos, workdir = tmp_path / "photos", tmp_path / "run"
    pictures.write_classes(photos, CLASSES, 10, mode="L", size=(7, 7))
    config = images.get_config()
    config.dataset.path = str(photos)
    config.dataset.batch_size = 8
    config.dataset.augmentation = "crop_flip"
    config.model.name = "mlp"
    config.num_epochs = 1
    experiment.run(json.loads(config.to_json()), workdir)
    warm_up = "the warm-up takes 0.5 epochs, half of the run, in place of 1 (config.optimizer"
    assert warm_up in capsys.readouterr().out
    # What a finished run evaluates is what it was trained on.
    classifier = trained.load(workdir)
    assert len(classifier.split("validation")) == len(classifier.load_dataset().validation)
    photos.rename(tmp_path / "moved")
    # Found in the images.
    assert json.loads((workdir / "data.json").read_text())["image_shape"] == [7, 7, 1]
    classifier = trained.load(workdir)
    assert classifier.classes.names == CLASSES
    assert classifier.classes.training_images == (6,) * len(CLASSES)
    reader = classifier.spec.image_reader
    pixels = reader.for_evaluation((tmp_path / "moved" / "ash" / "0.png").read_bytes(), "a")
    drawn = pictures.picture("ash/0.png", mode="L", size=(7, 7))
    np.testing.assert_array_equal(pixels[..., 0], np.asarray(drawn))
    assert "made grey" in preparation.in_words(reader)
    assert classifier.scores()(pixels[None]).shape == (1, len(CLASSES))
    with pytest.raises(TypeError, match="images must be uint8, got dtype float32"):
        classifier.scores()(pixels[None].astype(np.float32))


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_a_configuration(tmp_path, loss):
    for recipe in (images, features):
        config = recipe.get_config(loss)
        config.dataset.path = str(tmp_path)
        assert config.loss.name == loss
        parse(json.loads(config.to_json()))
