"""Runs with mixup, smoothed labels and class-balanced sampling, on photographs of a long tail."""

import itertools
import json

import numpy as np
import pytest

from configs import images
from tests.parts.program.data import pictures
from train.configuration.parsing import parse
from train.foundation.errors import UserError
from train.run import experiment
from train.run.parts import assemble

pytestmark = pytest.mark.usefixtures("standard_promotion")

STEPS_PER_EPOCH = 3


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for name, count in (("ash", 52), ("birch", 13), ("cedar", 6)):
        pictures.write_classes(root, [name], count)
    config = images.get_config("cross_entropy")
    config.num_epochs = 2
    config.model.name = "linear"
    config.select_by = "loss"
    config.eval.ks = (1, 2)
    config.dataset.update(path=str(root), batch_size=16, augmentation="crop_flip")
    config.dataset.update(mixup=0.4, sampling="class_balanced")
    config.loss.label_smoothing = 0.1
    return json.loads(config.to_json())


def test_the_fields_reach_the_step_and_the_batches(config):
    parts = assemble(parse(config))
    assert parts.data.steps_per_epoch == STEPS_PER_EPOCH
    assert parts.hyperparameters["mixup_alpha"] == np.float32(0.4)
    assert parts.hyperparameters["loss"] == {"label_smoothing": np.float32(0.1)}
    batches = itertools.islice(parts.data.training_batches(0), STEPS_PER_EPOCH)
    labels = np.concatenate([batch["labels"] for batch in batches])
    assert np.bincount(labels).tolist() == [16, 16, 16]
    # Losses with margins see the images that there are.
    assert parts.data.class_counts[0] > 2 * parts.data.class_counts[1]


def test_pairs_that_devices_would_part_are_refused(config, tmp_path):
    config = {**config, "dataset": {**config["dataset"], "batch_size": 8}}
    message = r"batch_size must be a multiple of 8 \(devices\) times 2 \(.*mixup\); got 8"
    with pytest.raises(UserError, match=message):
        experiment.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
