"""Runs for long tails: class weights that start late, other heads, heads trained from scratch."""

import json

import jax
import numpy as np
import pytest

from configs import digits
from train.classifiers import trained
from train.configuration.parsing import parse
from train.run import experiment
from train.run.parts import assemble
from train.run.starting import first_state

pytestmark = pytest.mark.usefixtures("standard_promotion")


def make_config(changes, loss="cross_entropy"):
    """One layer on the digits, so that a step compiles fast."""
    config = digits.get_config(loss)
    fields = {"num_epochs": 2, "model.name": "linear", **changes}
    config.update_from_flattened_dict(fields)
    return json.loads(config.to_json())


def test_weights_start_late_above_a_cosine_head_of_a_learned_scale(tmp_path):
    config = make_config(
        {
            "model.head": "cosine",
            "model.scale": 10.0,
            "model.learn_scale": True,
            "loss.class_weights": "class_balanced",
            # Two epochs of 19 steps: from step 28 on.
            "loss.class_weights_from": 0.75,
        }
    )
    results = experiment.run(config, tmp_path / "run")
    assert results["class_weights_epoch"] == 2
    config["loss"]["class_weights_from"] = 0.99
    later = experiment.run(config, tmp_path / "later")
    assert later["parameters_digest"] != results["parameters_digest"]
    # As a finished run, which another one starts from.
    classifier = trained.load(tmp_path / "run")
    assert classifier.params["head"]["log_scale"] != 0
    assert classifier.scores()(np.zeros((2, 8, 8, 1), np.uint8)).shape == (2, 10)
    config["model"]["start_from"] = str(tmp_path / "run")
    found = first_state(assemble(parse(config)))
    assert found.params["head"]["log_scale"] == classifier.params["head"]["log_scale"]


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
