"""Runs that start from trained weights: from an earlier run, frozen, and as docs/fine_tuning.md."""

import copy
import dataclasses
import json
import re
import shlex
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

from configs import digits
from configs import images as recipe_of_images
from tests.parts.program.configurations import changed
from tests.parts.program.data import pictures
from tests.parts.program.forked import ROOT
from tests.parts.program.models.tiny import SMALL_RESNET, in_float32, random_variables
from tests.parts.program.power_cut import power_cut_at
from tests.parts.program.sealed import unsealed
from train import experiment
from train.assembly import assemble
from train.assembly.starting import make_first_state
from train.classifiers import trained
from train.classifiers.trained import TrainedClassifier
from train.configuration.parsing import parse
from train.data.classes import Classes
from train.foundation.errors import UserError
from train.models import HEADS, MODELS, load_alone
from train.models.classifier import Classifier
from train.models.weights.names import arrays_of
from train.prediction import exported_weights
from train.training import earlier_run

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.fixture
def config(run_seed):
    """A run as the finished one, which has two epochs of `noised_balanced`."""
    config = json.loads(digits.get_config("noised_balanced").to_json())
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
    assert found.scores()(np.zeros((1, 8, 8, 1), np.uint8)).shape == (1, 10)
    # The trained network is better than one epoch makes it: all but the head was there already.
    # Equal scores have a hinge of 1; it was 0.04 here.
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line["split"] == "validation")
    assert first["loss"] < 0.3
    # The features were normalized below the new head. A run that starts from it has the same
    # classifier.
    norm = as_bytes(found.batch_stats["norm"])
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 1), np.uint8)
    for freeze in (False, True):
        changes = {"model.start_from": str(workdir), "model.freeze": freeze}
        assembly = assemble(parse(changed(config, {"model.new_head": False, **changes})))
        state = make_first_state(assembly)
        assert (as_bytes(state.batch_stats.get("norm")) == norm) is freeze
        going_on = TrainedClassifier(None, {}, assembly, state.params, state.batch_stats)
        # Rounding of float32.
        np.testing.assert_allclose(going_on.scores()(images), found.scores()(images), atol=1e-4)


@pytest.fixture
def ready(config):
    """The first state of a run, and what it knows of its data set."""
    assembly = assemble(parse(config))
    return assembly.initial_state(), assembly.data.facts


def load(finished_run, state, facts):
    return earlier_run.load(
        str(finished_run), state.params, state.batch_stats, model_name="small_cnn", facts=facts
    )


def test_the_head_starts_anew_for_other_classes(finished_run, ready):
    state, facts = ready
    selected = trained.load(finished_run)
    names = facts.classes.names
    other_kind = copy.deepcopy(state.params)
    other_kind["head"] = {"class_vectors": np.zeros((128, 10), np.float32)}
    for params, classes in (
        # The same in another order.
        (state.params, names[::-1]),
        (state.params, names[:4]),
        (other_kind, names),
    ):
        others = dataclasses.replace(facts, classes=Classes(classes, (1,) * len(classes)))
        loaded = load(finished_run, dataclasses.replace(state, params=params), others)
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
    assembly = assemble(parse(changed(config, settings)))
    params = assembly.initial_state().params
    made = assembly._make_optimizer(assembly.hyperparameters["optimizer"]).transformation
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
    assembly = assemble(parse(changed(config, new_head)))
    train = assembly.data.dataset.train
    state = make_first_state(assembly)
    features = assembly.model.apply(
        {"params": state.params, "batch_stats": state.batch_stats},
        assembly.normalize(train.rows(np.arange(len(train)))),
        method=Classifier.features_in_evaluation,
    )
    norm = state.batch_stats["norm"]
    normalized = (np.asarray(features) - norm["mean"][None]) / norm["scale"][None]
    # From 1,024 of the 1,257 images.
    np.testing.assert_allclose(np.square(normalized).sum(axis=1).mean(), 100, rtol=0.05)
    taken_over = make_first_state(assemble(parse(changed(config, frozen)))).batch_stats["norm"]
    np.testing.assert_array_equal(taken_over["scale"], 1)
    np.testing.assert_array_equal(taken_over["mean"], 0)
    for changes in (
        {"model.normalize_features": False},
        {"model.head": "cosine", "model.scale": 20.0},
    ):
        state = make_first_state(assemble(parse(changed(config, {**new_head, **changes}))))
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
    assembly = assemble(parse(config))
    state = make_first_state(assembly)
    classifier = TrainedClassifier(None, {}, assembly, state.params, state.batch_stats)
    assert "norm" in state.batch_stats
    (tmp_path / "out.safetensors").write_bytes(exported_weights.serialize(classifier))
    published = assemble(parse(changed(config, {"model.freeze": False})))
    loaded = load_alone(
        published.model, "resnet50", str(tmp_path / "out.safetensors"), assembly.data.image_shape
    )
    assert loaded.head_is_read
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
        if file.is_file() and "state" in file.parts:
            file.write_bytes(file.read_bytes()[:10])


def of_another_copy(workdir):
    results = unsealed(workdir / "results.json")
    (workdir / "results.json").write_text(json.dumps({**results, "best_epoch": 9}))


@pytest.mark.parametrize("damage", [without_results, damaged, of_another_copy])
def test_an_earlier_run_that_cannot_be_read_is_refused(config, finished_run, tmp_path, damage):
    earlier = tmp_path / "earlier"
    shutil.copytree(finished_run, earlier)
    damage(earlier)
    with pytest.raises(UserError, match=rf"config\.model\.start_from.* {earlier}"):
        experiment.run(changed(config, {"model.start_from": str(earlier)}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_earlier_run_of_another_network_is_refused(config, finished_run, tmp_path):
    config = changed(config, {"model.start_from": str(finished_run), "model.name": "mlp"})
    with pytest.raises(UserError, match=r"config\.model\.start_from.*'mlp'.*'small_cnn'"):
        experiment.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# The page.

# Its commands of train.main; `tests/endurance/program` runs them.
PAGE = re.sub(
    "^## Many heads.*?(?=^## )",
    "",
    (ROOT / "docs" / "fine_tuning.md").read_text(),
    flags=re.DOTALL | re.MULTILINE,
)
COMMANDS = [
    shlex.split(command.replace("\\\n", ""))
    for command in re.findall(
        r"^    (python -m train\.main (?:.*\\\n)*.*)$", PAGE, flags=re.MULTILINE
    )
]
SMALL = (
    "--config.num_epochs=1",
    "--config.optimizer.warmup_epochs=0.5",
    "--config.dataset.batch_size=8",
    "--config.dataset.image_size=16",
)
