"""SGD equals the recurrence of the recipes, written out; the learning rate by step."""

import numpy as np
import optax
import pytest

from train.training.optimizer import cosine_decay, schedule, sgd, step_decay, with_warmup

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.mark.parametrize("nesterov", [True, False])
def test_sgd_is_the_written_out_recurrence(rng, nesterov):
    rate, momentum, decay = 0.1, 0.9, 0.01
    rates = step_decay(rate, decay_epochs=(2,), decay_factor=0.1, steps_per_epoch=2)
    optimizer = sgd(rates, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    params = {"weights": rng.normal(size=5).astype(np.float32)}
    state = optimizer.init(params)
    expected, velocity = params["weights"].astype(np.float64), np.zeros(5)
    for step in range(7):
        gradient = rng.normal(size=5).astype(np.float32)
        updates, state = optimizer.update({"weights": gradient}, state, params)
        params = {"weights": np.asarray(params["weights"] + updates["weights"])}
        decayed = gradient + decay * expected
        velocity = momentum * velocity + decayed
        direction = decayed + momentum * velocity if nesterov else velocity
        expected = expected - rate * (0.1 if step >= 4 else 1.0) * direction
        # Seven float32 updates of numbers of order one.
        np.testing.assert_allclose(params["weights"], expected, rtol=1e-5, atol=1e-6)


def test_step_decay_multiplies_at_the_start_of_each_epoch():
    rate = step_decay(0.5, decay_epochs=(1, 3), decay_factor=0.1, steps_per_epoch=4)
    rates = [float(rate(step)) for step in range(16)]
    expected = [0.5] * 4 + [0.05] * 8 + [0.005] * 4
    np.testing.assert_allclose(rates, expected, rtol=1e-6)  # Float32 products.


def test_step_decay_may_have_no_decay():
    rate = step_decay(0.5, decay_epochs=(), decay_factor=0.1, steps_per_epoch=4)
    assert float(rate(1000)) == 0.5


def test_a_long_gradient_is_shortened_before_the_decay_is_added():
    optimizer = sgd(
        optax.constant_schedule(1.0), momentum=0.0, nesterov=False, weight_decay=0.5, clip_norm=1.0
    )
    params = {"one": np.float32([2.0]), "other": np.float32([0.0, -4.0])}
    for length in (0.5, 1.0, 7.0):
        # The norm is that of all parameters together.
        gradients = {"one": np.float32([0.6 * length]), "other": np.float32([0.8 * length, 0.0])}
        updates, _ = optimizer.update(gradients, optimizer.init(params), params)
        kept = min(length, 1.0)
        # A division and a product in float32.
        np.testing.assert_allclose(updates["one"], [-0.6 * kept - 1.0], rtol=1e-6)
        np.testing.assert_allclose(updates["other"], [-0.8 * kept, 2.0], rtol=1e-6)


def test_cosine_decay_goes_down_to_zero():
    rates = [float(cosine_decay(0.5, num_steps=8)(step)) for step in range(9)]
    expected = [0.25 * (1 + np.cos(np.pi * step / 8)) for step in range(9)]
    np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=1e-7)  # A float32 cosine.


def test_warm_up_rises_to_the_schedule_and_never_starts_at_zero():
    decay = step_decay(0.5, decay_epochs=(1,), decay_factor=0.1, steps_per_epoch=2)
    for warmup_steps in (0, 1, 4):
        rates = [float(with_warmup(decay, warmup_steps=warmup_steps)(step)) for step in range(6)]
        expected = [
            (0.5 if step < 2 else 0.05) * min(1, (step + 1) / max(1, warmup_steps))
            for step in range(6)
        ]
        np.testing.assert_allclose(rates, expected, rtol=1e-6)  # Float32 products.


def test_the_schedule_is_the_one_of_the_configuration():
    settings = {
        "learning_rate": 0.5,
        "schedule": "step",
        "decay_epochs": (1,),
        "decay_factor": 0.1,
        "warmup_epochs": 0.5,
    }
    rates = [float(schedule(settings, num_epochs=2, steps_per_epoch=4)(step)) for step in range(8)]
    np.testing.assert_allclose(rates, [0.25, 0.5, 0.5, 0.5, *[0.05] * 4], rtol=1e-6)
    cosine = schedule({**settings, "schedule": "cosine"}, num_epochs=2, steps_per_epoch=4)
    assert float(cosine(8)) == pytest.approx(0, abs=1e-7)
    assert float(cosine(4)) == pytest.approx(0.25)
