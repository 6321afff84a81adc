"""Every optimizer against its recurrence or its peer; the learning rate by step."""

import dataclasses
from typing import get_args, get_type_hints

import jax
import numpy as np
import optax
import pytest

from train.configuration import OptimizerFields
from train.training import optimizer

pytestmark = pytest.mark.usefixtures("standard_promotion")

SETTINGS = OptimizerFields(learning_rate=0.1, weight_decay=0.01)
OPTIMIZERS = get_args(get_type_hints(OptimizerFields)["name"])


def build(*, distances=None, **changes):
    """The optimizer of two epochs of two steps, with its hyperparameters as constants."""
    settings = dataclasses.replace(SETTINGS, **changes)
    values = optimizer.hyperparameters(settings)
    made = optimizer.build(settings, values, num_epochs=4, steps_per_epoch=2, distances=distances)
    return made.transformation


def test_a_long_gradient_is_shortened_before_the_decay_is_added():
    sgd = build(learning_rate=1.0, momentum=0.0, nesterov=False, weight_decay=0.5, clip_norm=1.0)
    params = {"one": np.float32([2.0]), "other": np.float32([0.0, -4.0])}
    for length in (0.5, 1.0, 7.0):
        # The norm is over all parameters together.
        gradients = {"one": np.float32([0.6 * length]), "other": np.float32([0.8 * length, 0.0])}
        updates, _ = sgd.update(gradients, sgd.init(params), params)
        kept = min(length, 1.0)
        # A division and a product in float32.
        np.testing.assert_allclose(updates["one"], [-0.6 * kept - 1.0], rtol=1e-6)
        np.testing.assert_allclose(updates["other"], [-0.8 * kept, 2.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [0.5] * 8),
        # A run never comes to the last of these, to which 32 bits cannot count.
        ({"decay_epochs": (1, 10**12)}, [*[0.5] * 4, *[0.05] * 4]),
        # The warm-up never starts at 0, and does not shift the decays.
        ({"decay_epochs": (1,), "warmup_epochs": 0.5}, [0.25, *[0.5] * 3, *[0.05] * 4]),
        ({"decay_epochs": (1,), "warmup_epochs": 0.25}, [*[0.5] * 4, *[0.05] * 4]),
        # One that would take all of the run takes half of it.
        ({"warmup_epochs": 5.0}, [0.125, 0.25, 0.375, *[0.5] * 5]),
        ({"schedule": "cosine"}, 0.25 * (1 + np.cos(np.pi * np.arange(8) / 8))),
    ],
)
def test_the_schedule_is_the_one_of_the_configuration(fields, expected):
    settings = dataclasses.replace(SETTINGS, **fields)
    rate = optimizer.schedule(settings, 0.5, num_epochs=2, steps_per_epoch=4)
    # Float32 products, and a cosine.
    np.testing.assert_allclose([float(rate(step)) for step in range(8)], expected, rtol=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_hyperparameters_may_be_inputs_of_a_compiled_step(name, rng):
    settings = dataclasses.replace(
        SETTINGS, name=name, beta2=0.95, clip_norm=1.0, decay_epochs=(1,)
    )
    values = optimizer.hyperparameters(settings)
    params = {"weights": rng.normal(size=(3, 4)).astype(np.float32)}
    gradients = {"weights": rng.normal(size=(3, 4)).astype(np.float32)}

    def updates(values):
        made = optimizer.build(settings, values, num_epochs=2, steps_per_epoch=3)
        return made.transformation.update(gradients, made.transformation.init(params), params)[0][
            "weights"
        ]

    compiled = jax.jit(updates)
    np.testing.assert_allclose(compiled(values), updates(values), rtol=1e-5)
    doubled = {**values, "learning_rate": 2 * values["learning_rate"]}
    # Each is proportional to the rate, and none is compiled again for another rate.
    np.testing.assert_allclose(compiled(doubled), 2 * updates(values), rtol=1e-5)
    assert compiled._cache_size() == 1


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("change", [{"momentum": 0.5}, {"weight_decay": 0.2}])
def test_every_optimizer_uses_its_settings(name, change, rng):
    params = {"weights": rng.normal(size=(3, 4)).astype(np.float32)}
    gradients = [{"weights": rng.normal(size=(3, 4)).astype(np.float32)} for _ in range(2)]
    seconds = []
    for settings in ({}, change):
        made = build(name=name, **settings)
        state = made.init(params)
        for gradient in gradients:
            updates, state = made.update(gradient, state, params)
        seconds.append(updates["weights"])
    # A relative change that rounding does not make.
    assert not np.allclose(*seconds, rtol=1e-3)


def test_adamw_is_that_of_optax_with_the_names_of_the_configuration(rng):
    ours = build(name="adamw", momentum=0.8, beta2=0.95, weight_decay=0.1)
    peer = optax.adamw(0.1, b1=0.8, b2=0.95, weight_decay=0.1)
    params = {"weights": rng.normal(size=5).astype(np.float32)}
    states = [made.init(params) for made in (ours, peer)]
    for _ in range(3):
        gradients = {"weights": rng.normal(size=5).astype(np.float32)}
        updates = []
        for index, made in enumerate((ours, peer)):
            update, states[index] = made.update(gradients, states[index], params)
            updates.append(update["weights"])
        # The same operations on numbers that were rounded to float32 first.
        np.testing.assert_allclose(*updates, rtol=1e-5)


# Learning rates by layer, and what the weight decay is for.

DISTANCES = {
    "features": {
        "stem": {"kernel": 2, "bias": 2},
        "block": {"kernel": 1, "scale": 1},
    },
    "head": {"kernel": 0, "bias": 0},
}


def of_two_layers(rng):
    shapes = {"kernel": (3, 4), "bias": (4,), "scale": (4,)}
    return jax.tree_util.tree_map_with_path(
        lambda path, _distance: rng.normal(size=shapes[path[-1].key]).astype(np.float32), DISTANCES
    )


def check_same_steps(rng, ours, peer):
    """Three steps of two optimizers from the same parameters have the same updates."""
    start = of_two_layers(rng)
    gradients = [of_two_layers(rng) for _ in range(3)]
    of_each = []
    for made in (ours, peer):
        params, state, of_steps = start, made.init(start), []
        for gradient in gradients:
            updates, state = made.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
            of_steps.append(updates)
        of_each.append(of_steps)
    # A rate is multiplied before or after the rest, in float32, which changes what later steps see.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-8), *of_each)


@pytest.mark.parametrize(
    ("name", "settings", "rates"),
    [
        ("sgd", {"head_learning_rate": 0.3}, (0.3, 0.1, 0.1)),
        ("sgd", {"layer_decay": 0.5}, (0.1, 0.05, 0.025)),
        ("sgd", {"layer_decay": 1.0}, (0.1, 0.1, 0.1)),
        *(
            (name, {"head_learning_rate": 0.02, "layer_decay": 0.5}, (0.02, 0.05, 0.025))
            for name in OPTIMIZERS
        ),
    ],
)
def test_a_layer_learns_as_by_an_optimizer_of_its_own(rng, name, settings, rates):
    common = {"name": name, "decay_epochs": (1,)}
    ours = build(distances=DISTANCES, **common, **settings)
    of_each = {distance: build(learning_rate=rate, **common) for distance, rate in enumerate(rates)}
    check_same_steps(rng, ours, optax.partition(of_each, DISTANCES))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_biases_and_norms_may_keep_clear_of_the_weight_decay(rng, name):
    settings = {"name": name, "weight_decay": 0.3}
    ours = build(decay_biases_and_norms=False, **settings)
    peers = {
        True: build(**settings),
        False: build(**{**settings, "weight_decay": 0.0}),
    }
    decayed = jax.tree_util.tree_map_with_path(
        lambda path, _distance: path[-1].key == "kernel", DISTANCES
    )
    check_same_steps(rng, ours, optax.partition(peers, decayed))
