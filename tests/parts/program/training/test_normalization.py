"""A run normalizes images as its weights expect, also when it resumes."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from configs import images
from tests.parts.program.data import pictures
from tests.parts.program.models.tiny import SMALL_RESNET
from train.classifiers import network, trained
from train.configuration.parsing import parse
from train.models import MODELS
from train.models.model_spec import NORMALIZATIONS
from train.package import program
from train.reports.rules import parse as rule_of
from train.run import experiment
from train.run.parts import assemble

CLIP, HALVES, IMAGENET = (NORMALIZATIONS[name] for name in ("clip", "halves", "imagenet"))
EVAL = {"ks": [1], "scores": "softmax", "temperature": False}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    pictures.write_classes(root, ("ash", "birch", "cedar"), 8, size=(8, 8))
    return root


def config_of(photos, **model):
    config = json.loads(images.get_config("cross_entropy").to_json())
    config["dataset"] |= {"path": str(photos), "batch_size": 8, "augmentation": "none"}
    config["model"] |= {"name": "linear", **model}
    config["optimizer"]["warmup_epochs"] = 0.0
    return config | {"num_epochs": 1, "select_by": "loss", "eval": EVAL}


@pytest.fixture(scope="module")
def run_by_clip(photos, tmp_path_factory, standard_promotion, run_seed):
    """The workdir of a finished run that normalizes as CLIP."""
    workdir = tmp_path_factory.mktemp("clip") / "run"
    experiment.run(config_of(photos, normalization="clip") | {"seed": run_seed}, workdir)
    return workdir


def of_spec(parts):
    return parts.data.spec.mean, parts.data.spec.std


def test_all_that_uses_a_run_normalizes_as_it_was_trained(run_by_clip):
    classifier = trained.load(run_by_clip)
    assert of_spec(classifier.parts) == CLIP
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)
    inputs = ((pixels / 255 - CLIP.mean) / CLIP.std).reshape(2, -1)
    head = classifier.params["head"]["Dense_0"]
    expected = jax.nn.softmax(inputs @ head["kernel"] + head["bias"])
    # Float32 rounding of sums of 192 terms.
    np.testing.assert_allclose(classifier.scores()(pixels), expected, rtol=1e-4)
    embedded = network.of_run(run_by_clip).compiled()(pixels)
    np.testing.assert_allclose(embedded, inputs, rtol=1e-4, atol=1e-5)
    described = program.describe(classifier, rule_of("top_k=1"))
    assert described["images"]["normalization"]["mean"] == list(CLIP.mean)


def test_the_weights_choose_unless_a_field_does(photos, run_by_clip, monkeypatch, capsys):
    monkeypatch.setitem(MODELS, "resnet50", dataclasses.replace(SMALL_RESNET, normalization=HALVES))
    file, run = {"name": "resnet50", "pretrained": "w.pth"}, {"start_from": str(run_by_clip)}
    for model, expected in (
        ({"name": "resnet50"}, IMAGENET),
        (file, HALVES),
        ({**file, "normalization": "dataset"}, IMAGENET),
        ({**file, "normalization": "clip"}, CLIP),
        (run, CLIP),
        ({**run, "normalization": "dataset"}, IMAGENET),
    ):
        parts = assemble(parse(config_of(photos, **model)))
        assert of_spec(parts) == expected, model
        capsys.readouterr()
        parts.data.show()
        told = "images are normalized by" in capsys.readouterr().out
        assert told == (expected != IMAGENET)
