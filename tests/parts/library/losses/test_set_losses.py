"""Losses of sets: conformal training, sizes at an error."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tests import reference
from topk_jax import losses

# Sums over a dozen examples and classes, below a logarithm.
ROUNDING = 1e-5
SETTINGS = {"error": 0.2, "temperature": 0.5, "smoothing": 0.3}


@pytest.fixture
def batch(rng):
    logits = 3 * rng.normal(size=(14, 6))
    return logits, rng.integers(6, size=14)


@pytest.mark.parametrize(
    "parameters",
    [
        {"conformity": "logit", "target_size": 0.0, "error": 0.7},
        {"error": 0.01, "size_weight": 0.3},
        {"loss_matrix": np.arange(36).reshape(6, 6) / 36},
    ],
    ids=str,
)
def test_conformal_training_is_the_reference_with_its_gradient(batch, parameters):
    given = SETTINGS | parameters
    with jax.enable_x64(True):
        loss = jax.jit(functools.partial(losses.conformal_training, **given))
        value, gradient = jax.value_and_grad(loss)(*map(jnp.asarray, batch))
    wanted = functools.partial(reference.conformal_training, labels=batch[1], **given)
    np.testing.assert_allclose(value, wanted(batch[0]), rtol=1e-9)
    differences = reference.finite_difference_gradient(wanted, batch[0], 1e-6)
    # The step squared, and 1e-15 over the step, times a slope of some tens.
    np.testing.assert_allclose(gradient, differences, atol=1e-7)


@pytest.mark.parametrize("conformity", ["log_probability", "logit"])
@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        # Sets below the target have no cost, and so no slope.
        (losses.conformal_training, {**SETTINGS, "target_size": 4.0}),
        (losses.size_at_average_error, {"error": 0.2, "temperature": 0.5}),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_an_invalid_example_makes_the_whole_gradient_nan(batch, conformity, loss, settings):
    logits, labels = np.float32(batch[0]), batch[1]
    compiled = jax.jit(
        jax.value_and_grad(functools.partial(loss, **settings, conformity=conformity))
    )
    # Both halves of the batch.
    for broken, value, label in ((4, np.nan, -1), (5, np.inf, 6)):
        hurt, changed = logits.copy(), labels.copy()
        hurt[broken, 2], changed[broken] = value, label
        for result in (*compiled(hurt, labels), *compiled(logits, changed)):
            assert np.isnan(result).all()


def test_conformal_training_keeps_the_digits_of_large_scores(batch):
    logits, labels = np.round(batch[0] * 256).astype(np.float32) / 256, batch[1]
    loss = functools.partial(losses.conformal_training, **SETTINGS, conformity="logit")
    shifted = loss(jnp.asarray(logits + 1e4), jnp.asarray(labels))
    np.testing.assert_allclose(shifted, loss(logits, labels), rtol=ROUNDING)


def test_conformal_training_on_devices_has_the_loss_of_the_whole(rng):
    """Batch and classes split, with a matrix that each device has whole."""
    logits = jnp.asarray(rng.normal(size=(16, 8)), jnp.float32)
    labels = jnp.asarray(rng.integers(8, size=16))
    matrix = rng.random((8, 8)).astype(np.float32)
    loss = functools.partial(losses.conformal_training, **SETTINGS, loss_matrix=matrix)
    mapped = jax.shard_map(
        functools.partial(loss, axis_name="batch", class_axis_name="classes"),
        mesh=jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("batch", "classes")),
        in_specs=(PartitionSpec("batch", "classes"), PartitionSpec("batch")),
        out_specs=PartitionSpec(),
    )
    value, gradient = jax.jit(jax.value_and_grad(mapped))(logits, labels)
    wanted, slope = jax.value_and_grad(loss)(logits, labels)
    np.testing.assert_allclose(value, wanted, rtol=ROUNDING)
    np.testing.assert_allclose(gradient, slope, atol=ROUNDING)


def test_the_efficiency_gap_is_of_quantiles_of_the_even_places_and_has_no_best_temperature(batch):
    logits, labels = map(jnp.asarray, batch)
    gap = jax.jit(losses.efficiency_gap, static_argnames="error")
    # The ranks ceil(8 (1 - error)) of seven scores, at most 7.
    for error in (0.0, 0.1, 0.25, 0.5, 0.9):
        wanted = reference.efficiency_gap(*batch, error=error)
        # Squares of differences of numbers up to 1.
        np.testing.assert_allclose(gap(logits, labels, error=error), wanted, atol=1e-6)
    # The largest logits are further apart than 0.01, so that all scores are 1 up to exp(-100).
    assert gap(logits / 1e-4, labels, error=0.25) < 1e-10 < gap(logits, labels, error=0.25)


def test_sizes_of_labels_that_are_far_apart():
    """All thresholds between two labels miss one of them, to the last bit; that at 0 is right."""
    logits, labels = jnp.array([[7.0, 0.05], [-7.0, 0.05]]), jnp.array([0, 0])
    options = {"error": 0.5, "temperature": 0.1, "conformity": "logit"}
    size = losses.size_at_average_error(logits, labels, **options)
    np.testing.assert_allclose(size, 0.5 + 1 / (1 + np.exp(-0.5)), rtol=1e-6)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"logits": np.zeros((1, 6)), "labels": np.zeros(1, int)}, "logits"),
        ({"loss_matrix": -np.eye(6)}, "loss_matrix"),
    ],
)
def test_conformal_training_refuses(batch, changed, name):
    given = {"logits": batch[0], "labels": batch[1], **SETTINGS} | changed
    with pytest.raises(ValueError, match=name):
        losses.conformal_training(**given)
