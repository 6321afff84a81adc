"""Runs with mixup, smoothed labels and class-balanced sampling: how they go on, and older ones."""

import itertools
import json

import numpy as np
import pytest

from configs import digits
from train import experiment
from train.assembly import assemble
from train.workdir.reporting import Reporter

pytestmark = pytest.mark.usefixtures("standard_promotion")

STEPS_PER_EPOCH = 19


@pytest.fixture(scope="module")
def config(finished_run):
    config = digits.get_config("cross_entropy")
    config.num_epochs = 2
    config.model.name = "linear"
    config.dataset.data_dir = str(finished_run.parent / "data")
    config.dataset.mixup = 0.4
    config.dataset.sampling = "class_balanced"
    config.loss.label_smoothing = 0.1
    return json.loads(config.to_json())


def test_the_fields_reach_the_step_and_the_batches(config):
    assembly = assemble(config)
    assert assembly.hyperparameters["mixup_alpha"] == np.float32(0.4)
    assert assembly.hyperparameters["loss"] == {"label_smoothing": np.float32(0.1)}
    batches = itertools.islice(assembly.training_batches(0), STEPS_PER_EPOCH)
    counts = np.bincount(np.concatenate([batch["labels"] for batch in batches]))
    # 1,216 draws of ten classes.
    assert sorted(counts) == [121] * 4 + [122] * 6
    # Losses with margins see the examples that there are.
    assert np.ptp(assembly.class_counts) > 1


@pytest.mark.slow
def test_a_run_that_was_broken_off_ends_like_one_that_was_not(config, tmp_path, monkeypatch):
    class PowerCutError(Exception):
        pass

    original = Reporter.training_step

    def break_off(self, step, metrics):
        if step == STEPS_PER_EPOCH + 7:
            raise PowerCutError
        original(self, step, metrics)

    expected = experiment.run(config, tmp_path / "unbroken")
    with monkeypatch.context() as patch:
        patch.setattr(Reporter, "training_step", break_off)
        with pytest.raises(PowerCutError):
            experiment.run(config, tmp_path / "run")
    found = experiment.run(config, tmp_path / "run")
    for name in ("parameters_digest", "best_epoch", "validation", "test"):
        assert json.dumps(found[name]) == json.dumps(expected[name])
    # Ten classes at random would give 0.1.
    assert found["test"]["top_1_accuracy"] > 0.7
