"""Runs whose classes or parameters are split over devices equal runs of one device."""

import json

import jax
import numpy as np
import pytest

from configs import synthetic_latents
from configs.species_losses import LOSSES
from tests.parts.program import some_steps
from tests.parts.program.roundings import check_with_some_seed
from train.configuration.parsing import parse
from train.run import evaluation
from train.run.parts import assemble

pytestmark = pytest.mark.usefixtures("standard_promotion")

NUM_CLASSES, NUM_STEPS = 40, 3
OPTIONS = {
    "clipped": ("cross_entropy", {"optimizer.clip_norm": 0.1, "loss.label_smoothing": 0.1}),
    "weighted": ("focal", {"loss.class_weights": "class_balanced"}),
    "mixed": ("noised_top_k_hinge", {"dataset.mixup": 0.3, "optimizer.accumulation_steps": 2}),
    "averaged": ("top_k_hinge", {"optimizer.name": "lamb", "optimizer.average_decay": 0.9}),
    "frozen": ("ldam", {"model.freeze": True}),
    "estimated": ("role", {}),
    "coupled": ("average_k", {"eval.scores": "sigmoid"}),
}


def after_some_steps(loss, seed, parallel, class_devices, **fields):
    """The parameters, the averages, the metrics of each step, and the predictions."""
    config = synthetic_latents.get_config(loss)
    small = {
        "seed": seed,
        "dataset.num_classes": NUM_CLASSES,
        "dataset.num_genera": 8,
        "dataset.num_train": 8 * NUM_CLASSES,
        "dataset.num_validation": 80,
        "dataset.num_test": 80,
        "dataset.balanced_per_class": 2,
        "dataset.batch_size": 64,
        # As many units below the head as classes.
        "model.width": NUM_CLASSES,
        "parallel": parallel,
        "class_devices": class_devices,
    }
    config.update_from_flattened_dict({**small, **fields})
    parts = assemble(parse(json.loads(config.to_json())))
    state, metrics = some_steps.make(parts, NUM_STEPS)
    split = parts.data.dataset.validation
    found = evaluation.predict(parts, state.evaluated, split, name="validation")
    host = parts.devices.to_host(state)
    return host.params, host.averages, metrics, (found.loss, found.values)


def check(loss, *kinds, **fields):
    def with_seed(seed):
        expected = after_some_steps(loss, seed, "pmap", 1, **fields)
        for kind in kinds:
            # Sums over 40 classes and over the batch in another order.
            jax.tree.map(
                lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5),
                after_some_steps(loss, seed, *kind, **fields),
                expected,
            )

    check_with_some_seed(with_seed)


@pytest.mark.parametrize("loss", sorted(LOSSES.keys() - {"hierarchical_cross_entropy"}))
def test_any_loss_may_split_classes(loss):
    check(loss, ("mesh", 4))


@pytest.mark.parametrize("option", OPTIONS)
def test_options_in_each_way_of_sharing(option):
    loss, fields = OPTIONS[option]
    check(loss, ("mesh", 1), ("mesh", 8), ("fsdp", 2), **fields)
