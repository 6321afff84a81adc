"""A data set, a network and a loss of a third-party package, used by their import paths."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import linen as nn

from configs import digits
from tests.parts.program.data import prepared_pictures
from train import prepare
from train.classifiers import trained
from train.configuration import DatasetFields
from train.configuration.declaring import field
from train.data import DatasetFamily, PreparedSpec
from train.data.augmentation import random_flip
from train.data.dataset import unchanged
from train.foundation import kinds
from train.foundation.errors import UserError
from train.models.model_spec import ModelSpec
from train.run import experiment
from train.training.objectives import LossSpec, Objective

NAMES = ("dark", "grey", "light")
SHADES = prepared_pictures.builder(
    "shades",
    {"train": [0, 1, 2] * 32, "validation": [0, 1, 2] * 8, "test": [0, 1, 2] * 8},
    shape=(4, 4, 1),
    classes=NAMES,
    shade=lambda index, label: 100 * label + index % 20,
)


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
        builder=SHADES,
        augment=random_flip if fields.flip else unchanged,
        mean=(0.4,),
        std=(0.3,),
    )


SHADES_FAMILY = DatasetFamily(spec, SHADES, fields=ShadesFields)


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


BRIER = LossSpec("Brier", brier, {"weight": kinds.number(gt=0)})
DATASET, MODEL, LOSS = (f"{__name__}:{name}" for name in ("SHADES_FAMILY", "MEAN", "BRIER"))


@pytest.fixture
def config(tmp_path, run_seed):
    prepare.prepare(DATASET, data_dir=str(tmp_path / "data"), manual_dir=None)
    config = json.loads(digits.get_config("cross_entropy").to_json())
    where = {"name": DATASET, "batch_size": 24, "data_dir": str(tmp_path / "data"), "flip": True}
    config |= {"dataset": where, "seed": run_seed, "num_epochs": 2, "select_by": "top_1_accuracy"}
    config["model"]["name"] = MODEL
    config["loss"] = {"name": LOSS, "weight": 2.0}
    config["eval"]["ks"] = [1, 2]
    return config


@pytest.mark.usefixtures("standard_promotion")
def test_a_run_trains_on_them_and_is_used_without_its_data(tmp_path, config):
    results = experiment.run(config, tmp_path / "run")
    assert results["num_classes"] == len(NAMES)
    assert results["num_parameters"] == (1 * 8 + 8) + (8 * 3 + 3)
    # Guessing one of three classes has a loss of 2 (4 + 1 + 1) / 9.
    assert results["test"]["loss"] < 1.3
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    classifier = trained.load(tmp_path / "run")
    assert classifier.classes.names == NAMES
    assert classifier.scores()(np.zeros((1, 4, 4, 1), np.uint8)).shape == (1, len(NAMES))


# The field, its value, and what the line tells.
MISTAKES = {
    "loss.weight": (0.0, r"weight must be .* above 0; got 0"),
    "dataset.flop": (1, r"flop is not a field .*'dataset\.flip'\?"),
    "dataset.name": (
        "nowhere.at_all:BIRDS",
        r"name must be .* a DatasetFamily, .* \(No module named 'nowhere'\)",
    ),
    "model.name": (
        LOSS,
        r"name must be .* a ModelSpec, as package.module:NAME \(it is a LossSpec\)",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told_in_a_line(tmp_path, config, name):
    value, message = MISTAKES[name]
    section, key = name.split(".")
    config[section][key] = value
    with pytest.raises(UserError, match=rf"^config\.{section}\.{message}"):
        experiment.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
