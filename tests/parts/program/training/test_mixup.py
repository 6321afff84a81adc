"""What examples are mixed with, by which shares, and the gradients of the mixed loss."""

import functools

import jax
import numpy as np
import optax
import pytest
import scipy.stats

from tests import reference
from train.devices.parameter_axis import ParameterAxis
from train.training import mixup, randomness, steps
from train.training.losses import LOSSES
from train.training.optimizer import Optimizer
from train.training.state import TrainState

AXIS = "devices"
SEED, STEP, ALPHA = 3, 5, np.float32(0.4)


@jax.jit
def mixed(inputs, labels, alpha):
    """The mixed inputs and each example's own share."""
    positions = np.arange(len(inputs), dtype=np.int32)
    keys = randomness.mixup_keys(SEED, STEP, positions)
    found, of_truth = mixup.mix(keys, alpha, inputs, {"labels": labels})
    return found, of_truth(lambda of: (of["labels"] == labels).astype(np.float32))


def swapped(array):
    """The other one of each pair of neighbours."""
    return array[np.arange(len(array)) ^ 1]


def test_neighbours_are_mixed(rng):
    inputs, labels = rng.normal(size=(12, 4, 3)).astype(np.float32), np.arange(12)
    found, shares = mixed(inputs, labels, ALPHA)
    own = np.asarray(shares, np.float64)[:, None, None]
    expected = own * inputs + (1 - own) * swapped(inputs)
    # Two products and a sum in float32, of numbers below 4: some roundings of 2.4e-7.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert len(set(shares.tolist())) == 12


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_shares_follow_their_distribution(alpha):
    count = 20_000
    _, shares = mixed(np.zeros((count, 1), np.float32), np.arange(count), np.float32(alpha))
    # Not up to 1: with alpha 0.2, float32 rounds 2 % of the shares to 1.
    places = np.linspace(0, 0.999, 1000)
    found = np.searchsorted(np.sort(shares), places, side="right") / count
    expected = scipy.stats.beta(alpha, alpha).cdf(places)
    # Dvoretzky, Kiefer and Wolfowitz: the largest difference of the two distribution functions is
    # above this with probability 1e-6.
    assert np.abs(found - expected).max() < np.sqrt(np.log(2 / 1e-6) / (2 * count))


def test_a_tiny_alpha_mixes_nothing():
    _, shares = mixed(np.zeros((100, 1), np.float32), np.arange(100), np.float32(1e-45))
    assert set(shares.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("loss", "parameters", "accumulation_steps"),
    [
        ("cross_entropy", {"label_smoothing": 0.1}, 1),
        ("focal", {"gamma": 2.0}, 2),
        ("top_k_hinge", {"k": 2}, 1),
    ],
)
def test_gradients_of_a_mixed_batch(loss, parameters, accumulation_steps, rng):
    features = rng.normal(size=(8, 6)).astype(np.float32)
    kernel = rng.normal(size=(6, 5)).astype(np.float32)
    labels = rng.integers(5, size=8, dtype=np.int32)
    spec = LOSSES[loss]
    values = spec.hyperparameters(parameters, np.ones(5, int))
    step = steps.make_train_step(
        lambda variables, inputs, **_settings: (
            inputs @ variables["params"]["kernel"],
            {"batch_stats": {}},
        ),
        functools.partial(spec.objective, parameters, axis_name=AXIS),
        # The parameters move by minus the gradient.
        lambda _values: Optimizer(optax.sgd(1.0), optax.constant_schedule(1.0)),
        augment=lambda _key, row: row,
        normalize=lambda rows: rows,
        shared=ParameterAxis(AXIS),
        accumulation_steps=accumulation_steps,
    )
    state = TrainState(
        step=np.int32(STEP),
        params={"kernel": kernel},
        batch_stats={},
        opt_state=optax.sgd(1.0).init(None),
    )
    hyperparameters = {
        "seed": np.uint32(SEED),
        "loss": values,
        "optimizer": {},
        "mixup_alpha": ALPHA,
    }
    positions = np.arange(8, dtype=np.int32)
    batch = {"images": features, "labels": labels, "positions": positions, "examples": positions}
    devices = 2
    after, metrics = jax.jit(jax.vmap(step, in_axes=(None, None, 0), axis_name=AXIS))(
        state,
        hyperparameters,
        {name: array.reshape(devices, 4, *array.shape[1:]) for name, array in batch.items()},
    )
    _, shares = mixed(features, positions, ALPHA)
    own = np.asarray(shares, np.float64)
    inputs = own[:, None] * features + (1 - own[:, None]) * swapped(features)
    logits, others = inputs @ kernel, swapped(labels)
    value, gradient = getattr(reference, loss), getattr(reference, f"{loss}_gradient")
    by_logits = own[:, None] * gradient(logits, labels, **parameters)
    by_logits += (1 - own[:, None]) * gradient(logits, others, **parameters)
    losses = own * value(logits, labels, **parameters)
    losses += (1 - own) * value(logits, others, **parameters)
    guesses = logits.argmax(axis=-1)
    hits = own * (guesses == labels) + (1 - own) * (guesses == others)
    for device in range(devices):
        found = kernel.astype(np.float64) - after.params["kernel"][device]
        # Sums of some dozens of roundings of 6e-8, relative to kernels of at most 3.
        np.testing.assert_allclose(found, inputs.T @ by_logits / 8, rtol=0, atol=2e-6)
        np.testing.assert_allclose(metrics["loss"][device], losses.mean(), rtol=2e-6)
        np.testing.assert_allclose(metrics["accuracy"][device], hits.mean(), rtol=0, atol=1e-6)
