"""Class weights: their numbers, their first step, and the losses that they multiply."""

import jax
import numpy as np
import pytest

from train.configuration import LossFields
from train.foundation.errors import UserError
from train.training import class_weights

COUNTS = np.array([400, 30, 5])
LABELS = np.array([2, 0, 1, 2], np.int32)
LOSSES = np.array([1.0, 2.0, 3.0, 0.5], np.float32)


def hyperparameters(first=0.0, *, counts=COUNTS, sampling="uniform", num_epochs=10, **run):
    settings = LossFields(
        name="focal",
        class_weights="class_balanced",
        class_weights_beta=0.99,
        class_weights_from=first,
    )
    run = {"num_epochs": num_epochs, "steps_per_epoch": 1, **run}
    return class_weights.hyperparameters(settings, counts, sampling=sampling, **run)


# One over the effective number of examples of Cui et al. (2019), to a factor.
EXPECTED = (1 - 0.99) / (1 - 0.99**COUNTS)


@pytest.mark.parametrize(
    ("sampling", "draws"), [("uniform", COUNTS), ("class_balanced", [1, 1, 1])]
)
def test_the_mean_weight_of_the_drawn_examples_is_one(sampling, draws):
    weights = hyperparameters(sampling=sampling)["class_weights"]["weights"]
    expected = EXPECTED / np.average(EXPECTED, weights=draws)
    # The weights of the library are float32.
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    assert weights.dtype == np.float32


def test_weights_apply_from_their_first_step_without_another_program():
    weigh = jax.jit(class_weights.weigh)
    # In floating point, 0.29 of 100 is less than 29.
    for first, num_epochs, expected in ((0.0, 10, 0), (0.8, 10, 8), (0.29, 100, 29), (0.5, 9, 4)):
        values = hyperparameters(first, num_epochs=num_epochs)
        assert values["class_weights"]["first_step"] == expected
        weights = values["class_weights"]["weights"]
        for step in (expected - 1, expected, expected + 1):
            found = weigh(LOSSES, LABELS, values, np.int32(step))
            factors = weights[LABELS] if step >= expected else 1
            # One product of float32.
            np.testing.assert_allclose(found, LOSSES * factors, rtol=1e-6)
    assert weigh._cache_size() == 1


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_weights_apply_to_a_step_however_few_there_are(steps):
    values = hyperparameters(0.9, num_epochs=1, steps_per_epoch=steps)
    assert values["class_weights"]["first_step"] == steps - 1


def test_without_weights_losses_stay_as_they_are():
    settings = LossFields(name="focal", class_weights="none")
    run = {"num_epochs": 1, "steps_per_epoch": 1}
    values = class_weights.hyperparameters(settings, COUNTS, sampling="uniform", **run)
    assert values == {}
    assert class_weights.weigh(LOSSES, LABELS, values, np.int32(0)) is LOSSES


def test_every_class_needs_training_images():
    with pytest.raises(UserError, match=r"class_weights must be 'none' if .* as class 1 here"):
        hyperparameters(counts=np.array([4, 0, 3]))
