"""A data set, a network and a loss of a third-party package, used by their import paths."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import tensorflow_datasets as tfds
from flax import linen as nn
from PIL import Image

from configs import digits
from tests.parts.program.data.specs import dataset_spec
from train import experiment, prepare
from train.configuration import DatasetFields
from train.configuration.declaring import field
from train.data import DATASETS, DatasetFamily, PreparedSpec, find
from train.data.augmentation import random_flip
from train.data.dataset import unchanged
from train.foundation import fields
from train.foundation.errors import UserError
from train.models import ModelSpec
from train.prediction import trained
from train.training.objectives import LossSpec, Objective

SHADES = ("dark", "grey", "light")


class Shades(tfds.core.GeneratorBasedBuilder):
    """Images of 4 by 4 pixels, each of one of three shades and some noise."""

    VERSION = tfds.core.Version("1.0.0")
    # Defined here, and not in a folder of a package with its description.
    pkg_dir_path = None

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(4, 4, 1)),
                    "label": tfds.features.ClassLabel(names=list(SHADES)),
                }
            ),
        )

    def _split_generators(self, dl_manager):
        sizes = {"train": 96, "validation": 24, "test": 24}
        return {split: self._generate_examples(size) for split, size in sizes.items()}

    def _generate_examples(self, size):
        rng = np.random.default_rng(size)
        for index in range(size):
            label = index % len(SHADES)
            pixels = 100 * label + rng.integers(0, 20, (4, 4))
            yield index, {"image": Image.fromarray(pixels.astype(np.uint8)), "label": label}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShadesFields(DatasetFields):
    """The fields of `config.dataset`."""

    flip: bool = field("Whether training images are flipped.", default=True)


def spec(fields):
    return PreparedSpec(
        name=fields.name,
        # Only the data have it.
        num_classes=None,
        image_shape=(4, 4, 1),
        builder=Shades,
        augment=random_flip if fields.flip else unchanged,
        mean=(0.4,),
        std=(0.3,),
    )


SHADES_FAMILY = DatasetFamily(spec, Shades, fields=ShadesFields)


class Mean(nn.Module):
    """The mean of each channel."""

    axis_name: str | None
    dtype: np.dtype

    @nn.compact
    def __call__(self, images, *, train):
        return nn.Dense(8)(images.mean(axis=(1, 2)))


MEAN = ModelSpec(Mean)


def brier(*, weight):
    def loss(logits, labels):
        errors = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[-1])
        return weight * (errors * errors).sum(axis=-1)

    return Objective(lambda outputs, labels, _keys, _estimates: loss(outputs, labels), loss)


BRIER = LossSpec("Brier", brier, {"weight": fields.Number(above=0)})

DATASET, MODEL = f"{__name__}:SHADES_FAMILY", f"{__name__}:MEAN"


def write(folder):
    """Prepares the data set in a folder."""
    prepare.prepare(DATASET, data_dir=str(folder), manual_dir=None)


@pytest.fixture
def config(tmp_path, run_seed):
    write(tmp_path / "data")
    config = json.loads(digits.get_config("top_k_hinge").to_json())
    config["dataset"] = {
        "name": DATASET,
        "batch_size": 24,
        "data_dir": str(tmp_path / "data"),
        "flip": True,
    }
    config["model"]["name"] = MODEL
    config["seed"] = run_seed
    config["num_epochs"] = 2
    config["eval"]["ks"] = [1, 2]
    config["select_by"] = "top_1_accuracy"
    config["loss"]["k"] = 1
    return config


@pytest.mark.usefixtures("standard_promotion")
def test_a_run_trains_on_them_and_is_used_without_its_data(tmp_path, config):
    results = experiment.run(config, tmp_path / "run")
    assert results["num_classes"] == len(SHADES)
    assert results["num_parameters"] == (1 * 8 + 8) + (8 * 3 + 3)
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    classifier = trained.load(tmp_path / "run")
    assert classifier.classes.names == SHADES
    assert classifier.scores()(np.zeros((1, 4, 4, 1), np.uint8)).shape == (1, len(SHADES))


@pytest.mark.usefixtures("standard_promotion")
def test_a_run_trains_with_their_loss(tmp_path, config):
    config["loss"] = {"name": f"{__name__}:BRIER", "weight": 0.0}
    with pytest.raises(UserError, match=r"config\.loss\.weight must be .* greater than 0; got 0"):
        experiment.run(config, tmp_path / "run")
    config["loss"]["weight"] = 2.0
    results = experiment.run(config, tmp_path / "run")
    # Guessing one of three classes has a loss of 2 (4 + 1 + 1) / 9.
    assert results["test"]["loss"] < 1.3


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("loss", "k", 3, r"config\.loss\.k must be .* from 1 to 2 .*; got 3"),
        ("dataset", "flop", 1, r"config\.dataset\.flop is not a field .*'dataset\.flip'\?"),
    ],
)
def test_their_fields_are_checked(tmp_path, config, section, name, value, message):
    config[section][name] = value
    with pytest.raises(UserError, match=message):
        experiment.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("section", "path", "reason"),
    [
        ("dataset", "nowhere.at_all:BIRDS", r"DatasetFamily, .* \(No module named 'nowhere'\)"),
        ("dataset", MODEL, r"DatasetFamily, as package.module:NAME \(it is a ModelSpec\)"),
        ("loss", "..losses:BRIER", r"LossSpec, as package.module:NAME \(.*relative import"),
    ],
)
def test_a_wrong_import_path_is_told_in_a_line(tmp_path, config, section, path, reason):
    config[section]["name"] = path
    message = rf"^config\.{section}\.name must be the import path of a {reason}.*; got '{path}'$"
    with pytest.raises(UserError, match=message):
        experiment.run(config, tmp_path / "run")


def test_images_of_another_shape_than_is_said_are_refused(tmp_path, config):
    wrong = dataclasses.replace(dataset_spec(config["dataset"]), image_shape=(4, 4, 3))
    message = r"the shape \(4, 4, 1\), and \S+ as it is configured has 3 and \(4, 4, 3\); prepare"
    with pytest.raises(UserError, match=message):
        wrong.load(config["dataset"]["data_dir"])


def test_it_is_prepared_by_its_import_path(tmp_path, capsys):
    prepare.prepare(DATASET, data_dir=str(tmp_path), manual_dir=None)
    assert f"{DATASET}: 3 classes; images: 96 train, 24 v" in capsys.readouterr().out


def test_every_entry_of_the_registry_is_there():
    for family in map(find, DATASETS):
        assert isinstance(family, DatasetFamily)
