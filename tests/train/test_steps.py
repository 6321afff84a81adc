"""Steps are pure, give each example its own randomness, and fit any number of devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from train import randomness, steps
from train.data.augmentation import normalize
from train.models import HEADS
from train.models.classifier import Classifier
from train.models.small_cnn import SmallCNN
from train.objectives import LOSSES
from train.state import initial_state, num_parameters, parameters_digest

AXIS = "devices"
LOSS = {
    "k": 3,
    "epsilon": 1.0,
    "num_samples": 4,
    "tau": 1.0,
    "gamma": 1.0,
    "max_margin": 0.2,
    "scale": 20.0,
    "alpha": 0.5,
    "beta": 0.01,
    "weight": 0.01,
    "label_learning_rate": 0.5,
}
CLASS_COUNTS = np.arange(1, 11)


def build(loss_name):
    # Narrow, to compile and run fast; otherwise the model of the digits.
    spec = LOSSES[loss_name]
    model = Classifier(SmallCNN(AXIS, widths=(4, 4, 8)), HEADS[spec.head](10))
    optimizer = optax.sgd(0.05, momentum=0.9)
    state = initial_state(model, optimizer, (8, 8, 1), randomness.initialization_key(0))
    objective = spec.objective(LOSS, CLASS_COUNTS, axis_name=AXIS)
    normalize_images = functools.partial(normalize, mean=(0.3,), std=(0.35,))
    train_step = steps.make_train_step(
        model.apply,
        objective,
        optimizer,
        optax.constant_schedule(0.05),
        augment=lambda key, image: image + jax.random.randint(key, (), 0, 3).astype(np.uint8),
        normalize=normalize_images,
        seed=0,
        axis_name=AXIS,
    )
    eval_step = steps.make_eval_step(model.apply, objective, normalize=normalize_images)
    return state, train_step, eval_step


def make_batch(rng, size):
    return {
        "images": rng.integers(0, 200, (size, 8, 8, 1)).astype(np.uint8),
        "labels": rng.integers(0, 10, size).astype(np.int32),
        "positions": np.arange(size, dtype=np.int32),
    }


def split(tree, devices):
    return jax.tree.map(lambda array: array.reshape(devices, -1, *array.shape[1:]), tree)


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss_name", ["noised_balanced", "average_k", "expected_positive_regularization"]
)
def test_eight_devices_equal_one(rng, loss_name):
    state, train_step, _ = build(loss_name)
    batch = make_batch(rng, 16)
    results = {}
    for devices in (1, 8):
        compiled = jax.pmap(train_step, axis_name=AXIS, devices=jax.devices()[:devices])
        copies = jax.tree.map(lambda leaf, n=devices: jnp.stack([leaf] * n), state)
        for _ in range(3):
            copies, metrics = compiled(copies, split(batch, devices))
        results[devices] = jax.tree.map(lambda leaf: np.asarray(leaf[0]), (copies, metrics))
    # Sums over the batch in another order, through three steps: float32 rounding grown a little.
    # One gradient coordinate of the noised loss moves by 1/M if a rounding swaps two near-equal
    # perturbed scores, which these seeds do not show.
    jax.tree.map(
        lambda one, eight: np.testing.assert_allclose(one, eight, rtol=1e-3, atol=2e-5),
        results[1],
        results[8],
    )


@pytest.mark.slow
def test_a_step_learns_and_counts(rng):
    state, train_step, _ = build("cross_entropy")
    batch = split(make_batch(rng, 16), 1)
    compiled = jax.pmap(train_step, axis_name=AXIS, devices=jax.devices()[:1])
    copies = jax.tree.map(lambda leaf: leaf[None], state)
    losses = []
    for _ in range(30):
        copies, metrics = compiled(copies, batch)
        losses.append(float(metrics["loss"][0]))
    assert int(copies.step[0]) == 30
    assert losses[-1] < 0.5 * losses[0]
    assert set(metrics) == {
        *("loss", "accuracy", "learning_rate", "nonzero_gradients"),
        *("gradient_norm", "update_norm", "parameter_norm"),
    }


@pytest.mark.slow
def test_evaluation_does_not_depend_on_the_batch(rng):
    state, _, eval_step = build("noised_balanced")
    batch = make_batch(rng, 8)
    compiled = jax.jit(eval_step)
    whole = compiled(state.params, state.batch_stats, batch)
    for part in (slice(0, 4), slice(4, 8)):
        half = {name: array[part] for name, array in batch.items()}
        outputs = compiled(state.params, state.batch_stats, half)
        for name in ("loss", "scores"):
            # The same network on another batch size: rounding of the convolutions.
            np.testing.assert_allclose(outputs[name], whole[name][part], rtol=1e-4, atol=1e-6)
    assert whole["scores"].shape == (8, 10)
    np.testing.assert_allclose(whole["scores"].sum(axis=-1), 1, rtol=1e-6)


def test_keys_differ_by_seed_stream_step_and_position():
    positions = jnp.arange(3, dtype=jnp.int32)
    draws = [
        np.asarray(jax.random.key_data(keys))
        for seed in (0, 1)
        for step in (0, 1)
        for keys in (
            randomness.augmentation_keys(seed, jnp.int32(step), positions),
            randomness.loss_keys(seed, jnp.int32(step), positions),
        )
    ]
    everything = np.concatenate(draws)
    assert len(np.unique(everything, axis=0)) == len(everything)


def test_parameters_are_counted_and_digested():
    state, _, _ = build("cross_entropy")
    convolutions = 9 * (1 * 4 + 4 * 4 + 4 * 8)
    batch_norms = 2 * (4 + 4 + 8)
    assert num_parameters(state.params) == convolutions + batch_norms + 8 * 10 + 10
    digest = parameters_digest(state.params)
    assert digest == parameters_digest(jax.device_get(state.params))
    changed = jax.tree.map(lambda leaf: leaf + 1e-3, state.params)
    assert digest != parameters_digest(changed)
