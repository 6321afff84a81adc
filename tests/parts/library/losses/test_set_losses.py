"""Losses of sets: conformal training, sizes at an error, thresholds of examples."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tests import reference
from tests.rows import rows
from topk_jax import losses, operators

# Sums over a dozen examples and classes, below a logarithm.
ROUNDING = 1e-5
SETTINGS = {"error": 0.2, "temperature": 0.5, "smoothing": 0.3}


@pytest.fixture
def batch(rng):
    logits = 3 * rng.normal(size=(14, 6))
    return logits, rng.integers(6, size=14)


@pytest.mark.parametrize(
    "parameters",
    rows(
        [
            {"quantile": "expected"},
            {"quantile": "soft_sort", "conformity": "logit", "target_size": 0.0},
            {"quantile": "neural_sort"},
            {"quantile": "bitonic"},
            {"quantile": "perturbed", "num_samples": 5},
            {"quantile": "soft_sort", "error": 0.01, "size_weight": 0.3},
            {"loss_matrix": np.arange(36).reshape(6, 6) / 36},
        ],
        # It takes as long to compile as the other network.
        [{"quantile": "odd_even", "error": 0.7}],
    ),
    ids=str,
)
def test_conformal_training_is_the_reference_with_its_gradient(batch, rng, parameters):
    given = SETTINGS | parameters
    if "num_samples" in parameters:
        given["noise"] = rng.normal(size=(5, 7))
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
        (losses.size_over_errors, {"temperature": 0.5}),
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


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"logits": np.zeros((1, 6)), "labels": np.zeros(1, int)}, "logits"),
        ({"quantile": "perturbed"}, "num_samples"),
        ({"num_samples": 3}, "num_samples"),
        ({"loss_matrix": -np.eye(6)}, "loss_matrix"),
    ],
)
def test_conformal_training_refuses(batch, changed, name):
    given = {"logits": batch[0], "labels": batch[1], **SETTINGS} | changed
    with pytest.raises(ValueError, match=name):
        losses.conformal_training(**given)


def test_scale_gaps_is_the_reference_and_keeps_masks(rng):
    scores, weights = rng.normal(size=(5, 4, 3)), np.array([0.0, 0.5, 2.0])
    with jax.enable_x64(True):
        found = operators.scale_gaps(jnp.asarray(scores), jnp.asarray(weights), axis=1)
    np.testing.assert_allclose(found, reference.scale_gaps(scores, weights, axis=1), atol=1e-14)
    masked = operators.scale_gaps(jnp.array([1.0, -jnp.inf, 0.0]), jnp.array([2.0, 1e9]))
    np.testing.assert_array_equal(masked, [1.0, -np.inf, -1.0])
    lowest = float(jnp.finfo(jnp.float32).min)
    masked = operators.scale_gaps(jnp.array([1.0, 0.0, lowest, -1e30]), jnp.ones(3))
    np.testing.assert_array_equal(masked, np.float32([1.0, 0.0, lowest, -1e30]))
