"""Runs that start from trained weights: from an earlier run, or frozen below a new head."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

from configs import digits
from configs import images as recipe_of_images
from tests.parts.program.configurations import changed
from tests.parts.program.data import pictures
from tests.parts.program.models.tiny import SMALL_RESNET, in_float32, random_variables
from tests.parts.program.power_cut import power_cut_at
from train.classifiers import trained
from train.classifiers.trained import TrainedClassifier
from train.configuration.parsing import parse
from train.data.classes import Classes
from train.foundation.errors import UserError
from train.models import HEADS, MODELS, load_alone
from train.models.classifier import Classifier
from train.models.weights.names import arrays_of
from train.package import weights
from train.run import experiment, transfer
from train.run.parts import assemble
from train.run.starting import first_state

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.fixture
def config(run_seed):
    """A run as the finished one, which has two epochs of `noised_top_k_hinge`."""
    config = json.loads(digits.get_config("noised_top_k_hinge").to_json())
    return changed(config, {"seed": run_seed, "num_epochs": 2})


def as_bytes(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf).tobytes(), tree)


# From an earlier run.


def test_a_run_starts_from_an_earlier_one_and_needs_it_no_more(
    config, finished_run, tmp_path, capsys
):
    earlier, workdir = tmp_path / "earlier", tmp_path / "run"
    shutil.copytree(finished_run, earlier)
    selected = trained.load(finished_run)
    # The head is trained from scratch on balanced classes, as by Kang et al. (2020).
    changes = {
        "model.start_from": str(earlier),
        "model.freeze": True,
        "model.new_head": True,
        "dataset.sampling": "class_balanced",
        "optimizer.average_decay": 0.5,
    }
    config = changed(config, changes)
    with power_cut_at(19 + 7):
        experiment.run(config, workdir)
    shutil.rmtree(earlier)
    experiment.run(config, workdir)
    assert "continuing after epoch 1 of 2" in capsys.readouterr().out
    results = json.loads((workdir / "results.json").read_text())
    assert results["config"]["model"]["start_from"] == str(earlier)
    found = trained.load(workdir)
    for name in ("params", "batch_stats"):
        kept, before = getattr(found, name), getattr(selected, name)
        assert as_bytes(kept.get("features")) == as_bytes(before.get("features"))
    assert as_bytes(found.params["head"]) != as_bytes(selected.params["head"])
    # The features were normalized below the new head. A run that starts from it has the same
    # classifier.
    norm = as_bytes(found.batch_stats["norm"])
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 1), np.uint8)
    for freeze in (False, True):
        changes = {"model.start_from": str(workdir), "model.freeze": freeze}
        parts = assemble(parse(changed(config, {"model.new_head": False, **changes})))
        state = first_state(parts)
        assert (as_bytes(state.batch_stats.get("norm")) == norm) is freeze
        going_on = TrainedClassifier(None, {}, parts, state.params, state.batch_stats)
        # Rounding of float32.
        np.testing.assert_allclose(going_on.scores()(images), found.scores()(images), atol=1e-4)


def test_the_head_starts_anew_for_other_classes(config, finished_run):
    parts, selected = assemble(parse(config)), trained.load(finished_run)
    state, facts = parts.initial_state(), parts.data.facts
    names = facts.classes.names
    model = dataclasses.replace(parts.config.model, start_from=str(finished_run))
    other_kind = {**state.params, "head": {"class_vectors": np.zeros((128, 10), np.float32)}}
    # The same in another order, fewer, and a head of another kind.
    for params, classes in (
        (state.params, names[::-1]),
        (state.params, names[:4]),
        (other_kind, names),
    ):
        others = dataclasses.replace(facts, classes=Classes(classes, (1,) * len(classes)))
        loaded = transfer.load(model, params, state.batch_stats, others)
        assert as_bytes(loaded.params["head"]) == as_bytes(params["head"])
        assert as_bytes(loaded.params["features"]) == as_bytes(selected.params["features"])


def test_the_rates_of_a_configuration_reach_its_layers(config):
    settings = {
        "optimizer.learning_rate": 0.1,
        "optimizer.warmup_epochs": 0.0,
        "optimizer.momentum": 0.0,
        "optimizer.nesterov": False,
        "optimizer.weight_decay": 0.5,
        "optimizer.head_learning_rate": 0.3,
        "optimizer.layer_decay": 0.5,
        "optimizer.decay_biases_and_norms": False,
    }
    parts = assemble(parse(changed(config, settings)))
    params = parts.initial_state().params
    made = parts.make_optimizer(parts.hyperparameters["optimizer"]).transformation
    ones = jax.tree.map(np.ones_like, params)
    updates, _ = made.update(ones, made.init(params), params)
    # Three layers below the head; only the kernels have the weight decay.
    for name, rate in (("0", 0.0125), ("1", 0.025), ("2", 0.05)):
        kernel = params["features"][f"Conv_{name}"]["kernel"]
        found = updates["features"][f"Conv_{name}"]["kernel"]
        np.testing.assert_allclose(found, -rate * (1 + 0.5 * kernel), rtol=1e-5)  # Float32.
        scale = updates["features"][f"BatchNorm_{name}"]["scale"]
        np.testing.assert_allclose(scale, -rate, rtol=1e-6)
    np.testing.assert_allclose(updates["head"]["Dense_0"]["bias"], -0.3, rtol=1e-6)


def test_features_are_normalized_below_a_new_linear_head(config, finished_run):
    frozen = {"model.start_from": str(finished_run), "model.freeze": True}
    new_head = {**frozen, "model.new_head": True}
    parts = assemble(parse(changed(config, new_head)))
    train = parts.data.dataset.train
    state = first_state(parts)
    features = parts.model.apply(
        {"params": state.params, "batch_stats": state.batch_stats},
        parts.normalize(train.rows(np.arange(len(train)))),
        method=Classifier.features_in_evaluation,
    )
    norm = state.batch_stats["norm"]
    normalized = (np.asarray(features) - norm["mean"][None]) / norm["scale"][None]
    # From 1,024 of the 1,257 images.
    np.testing.assert_allclose(np.square(normalized).sum(axis=1).mean(), 100, rtol=0.05)
    taken_over = first_state(assemble(parse(changed(config, frozen)))).batch_stats["norm"]
    np.testing.assert_array_equal(taken_over["scale"], 1)
    np.testing.assert_array_equal(taken_over["mean"], 0)
    for changes in (
        {"model.normalize_features": False},
        {"model.head": "cosine", "model.scale": 20.0},
    ):
        state = first_state(assemble(parse(changed(config, {**new_head, **changes}))))
        assert "norm" not in state.batch_stats


def test_weights_of_normalized_features_are_those_of_the_published_network(
    rng, tmp_path, monkeypatch
):
    monkeypatch.setitem(MODELS, "resnet50", SMALL_RESNET)
    pictures.write_classes(tmp_path / "photos", ("ash", "birch", "cedar"), 8, size=(16, 16))
    model = Classifier(SMALL_RESNET.build(axis_name=None), HEADS["linear"](1000))
    variables = in_float32(random_variables(rng, model))
    arrays = arrays_of(variables["params"], variables["batch_stats"], SMALL_RESNET.names)
    safetensors.numpy.save_file(arrays, tmp_path / "resnet50.pth")
    config = changed(
        json.loads(recipe_of_images.get_config().to_json()),
        {
            "dataset.path": str(tmp_path / "photos"),
            "dataset.batch_size": 8,
            "dataset.image_size": 16,
            "model.name": "resnet50",
            "model.pretrained": str(tmp_path / "resnet50.pth"),
            "model.freeze": True,
            "eval.ks": [1],
            "select_by": "top_1_accuracy",
            "loss.k": 1,
        },
    )
    parts = assemble(parse(config))
    state = first_state(parts)
    classifier = TrainedClassifier(None, {}, parts, state.params, state.batch_stats)
    assert "norm" in state.batch_stats
    (tmp_path / "out.safetensors").write_bytes(weights.serialize(classifier))
    published = assemble(parse(changed(config, {"model.freeze": False})))
    loaded = load_alone(
        published.model, "resnet50", str(tmp_path / "out.safetensors"), parts.data.image_shape
    )
    assert loaded.why_new_head is None
    as_published = TrainedClassifier(None, {}, published, loaded.params, loaded.batch_stats)
    images = rng.integers(0, 256, (4, 16, 16, 3), np.uint8)
    expected = classifier.scores()(images)
    # Rounding of float32.
    np.testing.assert_allclose(as_published.scores()(images), expected, atol=1e-4)


# What is refused, before anything is written.


def without_results(workdir):
    (workdir / "results.json").unlink()


def damaged(workdir):
    for file in (workdir / "checkpoints").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:10])


@pytest.mark.parametrize("damage", [without_results, damaged, None])
def test_an_earlier_run_that_does_not_fit_is_refused(config, finished_run, tmp_path, damage):
    earlier = shutil.copytree(finished_run, tmp_path / "earlier")
    network = "small_cnn" if damage else "mlp"
    if damage:
        damage(earlier)
    changes = {"model.start_from": str(earlier), "model.name": network}
    with pytest.raises(UserError, match=str(earlier)):
        experiment.run(changed(config, changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
