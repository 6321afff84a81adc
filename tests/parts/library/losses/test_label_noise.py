"""Identities and limits of the losses for wrong labels."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import losses

# A dozen roundings of float32 (6e-8 each), relative to the loss or to 1.
ROUNDING = 2e-6


@pytest.fixture
def batch(rng):
    return (
        jnp.asarray(3 * rng.normal(size=(16, 10)), jnp.float32),
        jnp.asarray(rng.integers(10, size=16), jnp.int32),
    )


@functools.partial(jax.jit, static_argnums=0)
def value_and_gradient(loss, logits, labels, **parameters):
    def total(logits):
        values = loss(logits, labels, **parameters)
        return values.sum(), values

    (_, values), gradient = jax.value_and_grad(total, has_aux=True)(logits)
    return values, gradient


def test_generalized_cross_entropy_of_a_small_q_is_the_cross_entropy(batch):
    expected, gradient = value_and_gradient(losses.cross_entropy, *batch)
    for q in (1e-3, 1e-8, 1e-30):
        loss = losses.generalized_cross_entropy
        values, slopes = value_and_gradient(loss, *batch, q=q)
        # The loss is CE - q CE^2 / 2 + q^2 CE^3 / 6 - ..., and CE is below 20 here.
        series = expected - q * expected**2 / 2 + q**2 * expected**3 / 6
        np.testing.assert_allclose(values, series, rtol=ROUNDING + (20 * q) ** 3)
        # p_y^q is 1 - q CE or more.
        np.testing.assert_allclose(slopes, gradient, rtol=20 * q + ROUNDING, atol=ROUNDING)


def test_generalized_cross_entropy_with_q_of_1_is_half_the_absolute_error(batch):
    logits, labels = map(np.asarray, batch)
    odds = np.exp(logits.astype(np.float64))
    errors = np.abs(odds / odds.sum(axis=-1, keepdims=True) - np.eye(10)[labels]).sum(axis=-1)
    found, _ = value_and_gradient(losses.generalized_cross_entropy, *batch, q=1.0)
    np.testing.assert_allclose(found, errors / 2, rtol=ROUNDING, atol=ROUNDING)


def test_generalized_cross_entropy_is_bounded_and_keeps_small_gradients():
    # p_y is e^-40; with q = 1/2 the gradient is e^-20 (p - e_y).
    logits, labels = jnp.array([[40.0, 0.0]]), jnp.array([1])
    loss = losses.generalized_cross_entropy
    value, gradient = value_and_gradient(loss, logits, labels, q=0.5)
    np.testing.assert_allclose(value, [2.0], rtol=ROUNDING)
    np.testing.assert_allclose(gradient, [[np.exp(-20.0), -np.exp(-20.0)]], rtol=2e-5)
    # And the digits of a tiny loss: 1 - p_y is e^-30.
    value, _ = value_and_gradient(loss, jnp.array([[30.0, 0.0]]), jnp.array([0]), q=0.5)
    np.testing.assert_allclose(value, np.exp([-30.0]), rtol=ROUNDING)
    # Never above 1 / q.
    value, gradient = value_and_gradient(loss, jnp.array([[1e4, -1e4]]), labels, q=0.5)
    np.testing.assert_array_equal(value, [2.0])
    np.testing.assert_array_equal(gradient, [[0.0, 0.0]])


def test_symmetric_cross_entropy_is_a_weighted_sum(batch):
    """The terms are the cross-entropy and -A (1 - p_y), the generalized one with q = 1."""
    cross_entropy, _ = value_and_gradient(losses.cross_entropy, *batch)
    reverse, _ = value_and_gradient(losses.generalized_cross_entropy, *batch, q=1.0)
    symmetric = jax.jit(losses.symmetric_cross_entropy)
    for alpha, beta, log_zero in ((0.0, 1.0, -4.0), (0.5, 0.0, -4.0), (0.1, 2.0, -9.21)):
        found = symmetric(*batch, alpha=alpha, beta=beta, log_zero=log_zero)
        expected = alpha * cross_entropy - beta * log_zero * reverse
        np.testing.assert_allclose(found, expected, rtol=ROUNDING)
    default = symmetric(*batch, alpha=0.1, beta=1.0)
    np.testing.assert_allclose(default, 0.1 * cross_entropy + 4 * reverse, rtol=ROUNDING)


def test_symmetric_cross_entropy_keeps_the_digits_of_a_tiny_loss():
    # Both parts are e^-30: 1 - p_y would be 0.
    logits, labels = jnp.array([[30.0, 0.0]]), jnp.array([0])
    found = jax.jit(losses.symmetric_cross_entropy)(logits, labels, alpha=0.5, beta=0.25)
    np.testing.assert_allclose(found, 1.5 * np.exp([-30.0]), rtol=ROUNDING)


def test_symmetric_cross_entropy_keeps_the_digits_of_a_small_slope():
    # The slope of -A (1 - p_y) in the largest logit is 4 p_y (1 - p_y), with p_y at most 1/2.
    gaps = np.array([0.0, 5.0, 12.0, 17.0, 30.0, 80.0])
    logits = jnp.asarray(np.stack([gaps, np.zeros(6)], axis=1), jnp.float32)
    odds = np.exp(-gaps)
    expected = 4 * odds / (1 + odds) ** 2
    for label, sign in ((1, 1.0), (0, -1.0)):
        loss, labels = losses.symmetric_cross_entropy, jnp.full(6, label)
        _, slopes = value_and_gradient(loss, logits, labels, alpha=0.0, beta=1.0)
        # An exponent of 80 is rounded to 4e-6.
        np.testing.assert_allclose(slopes[:, 0], sign * expected, rtol=1e-5)
        np.testing.assert_allclose(slopes[:, 1], -sign * expected, rtol=1e-5)
