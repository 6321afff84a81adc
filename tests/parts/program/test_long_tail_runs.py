"""Runs for long tails: class weights that start late, other heads, heads trained from scratch."""

import json
import shutil

import jax
import numpy as np
import pytest

from configs import digits
from tests.parts.program.power_cut import power_cut_at
from train import experiment
from train.assembly import assemble
from train.assembly.starting import make_first_state
from train.classifiers import trained
from train.configuration.parsing import parse

pytestmark = pytest.mark.usefixtures("standard_promotion")


def make_config(changes, loss="cross_entropy"):
    """One layer on the digits, so that a step compiles fast."""
    config = digits.get_config(loss)
    fields = {"num_epochs": 2, "model.name": "linear", **changes}
    config.update_from_flattened_dict(fields)
    return json.loads(config.to_json())


WEIGHTED = {
    "model.head": "cosine",
    "model.scale": 10.0,
    "model.learn_scale": True,
    "loss.class_weights": "class_balanced",
    # Two epochs of 19 steps: from step 28 on.
    "loss.class_weights_from": 0.75,
    "checkpoint.every_steps": 9,
}


@pytest.fixture(scope="module")
def unbroken(standard_promotion, tmp_path_factory):
    """The workdir of a run with weights, and its results."""
    workdir = tmp_path_factory.mktemp("weighted") / "run"
    return workdir, experiment.run(make_config(WEIGHTED), workdir)


def test_a_run_goes_on_around_the_first_step_of_its_weights(unbroken, tmp_path):
    config = make_config(WEIGHTED)
    # It resumes from the checkpoint of step 27, before the first step of the weights.
    with power_cut_at(31):
        experiment.run(config, tmp_path / "run")
    results = experiment.run(config, tmp_path / "run")
    assert results["parameters_digest"] == unbroken[1]["parameters_digest"]
    assert results["class_weights_epoch"] == 2
    config["loss"]["class_weights_from"] = 0.99
    later = experiment.run(config, tmp_path / "later")
    assert later["parameters_digest"] != unbroken[1]["parameters_digest"]
    # As a finished run, which another one starts from.
    classifier = trained.load(tmp_path / "run")
    assert classifier.params["head"]["log_scale"] != 0
    scores = classifier.scores()(np.zeros((2, 8, 8, 1), np.uint8))
    assert scores.shape == (2, 10)
    found = make_first_state(
        assemble(parse(make_config({**WEIGHTED, "model.start_from": str(tmp_path / "run")})))
    )
    assert found.params["head"]["log_scale"] == classifier.params["head"]["log_scale"]


def test_weights_stay_on_in_an_extended_run(unbroken, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(unbroken[0], workdir)
    longer = {**WEIGHTED, "num_epochs": 3}
    extended = experiment.run(make_config(longer), workdir, extend=True)
    # Three epochs: from step 28 on, as with two.
    longer["loss.class_weights_from"] = 28 / 57
    from_start = experiment.run(make_config(longer), tmp_path / "from_start")
    assert extended["parameters_digest"] == from_start["parameters_digest"]


def test_a_scaled_cosine_head_makes_cross_entropy_of_ldam_without_margins(rng):
    by_head = assemble(parse(make_config({"model.head": "cosine", "model.scale": 20.0})))
    without_margins = {"loss.max_margin": 0.0, "loss.scale": 20.0}
    by_loss = assemble(parse(make_config(without_margins, "ldam")))
    cosines_of_linear = assemble(
        parse(make_config({"model.head": "linear", "loss.scale": 1.0}, "ldam"))
    )
    images = rng.normal(size=(4, 8, 8, 1)).astype(np.float32)
    labels = np.arange(4, dtype=np.int32)
    params = by_head.initial_state().params
    assert jax.tree.structure(params) == jax.tree.structure(by_loss.initial_state().params)
    found, expected = (
        (one.objective.evaluation_loss(outputs, labels), one.objective.scores(outputs))
        for one in (by_head, by_loss)
        for outputs in (one.model.apply({"params": params}, images, train=False),)
    )
    # The scale multiplies cosines, or their differences: float32 rounding of logits up to 20.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)
    assert set(cosines_of_linear.initial_state().params["head"]) == {"Dense_0"}
