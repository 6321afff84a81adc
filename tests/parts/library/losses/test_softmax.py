"""Identities and worked values of the softmax's losses, and the class margins."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import reference
from topk_jax import losses

# A dozen roundings of float32 (6e-8 each), relative to the loss or to 1.
ROUNDING = 2e-6

# Compiled once for each shape.
cross_entropy = jax.jit(losses.cross_entropy)
focal = jax.jit(losses.focal)
ldam = jax.jit(losses.ldam)


@pytest.fixture
def batch(rng):
    return (
        jnp.asarray(3 * rng.normal(size=(16, 10)), jnp.float32),
        jnp.asarray(rng.integers(10, size=16), jnp.int32),
    )


def test_cross_entropy_is_that_of_optax(batch):
    expected = optax.losses.softmax_cross_entropy_with_integer_labels(*batch)
    np.testing.assert_allclose(cross_entropy(*batch), expected, rtol=0, atol=ROUNDING)


def test_a_smoothed_label_is_that_of_optax(batch):
    logits, labels = batch
    targets = optax.losses.smooth_labels(jax.nn.one_hot(labels, 10), 0.2)
    expected = optax.losses.softmax_cross_entropy(logits, targets)
    for smoothing in (0.2, jnp.float32(0.2)):
        ours = cross_entropy(logits, labels, label_smoothing=smoothing)
        np.testing.assert_allclose(ours, expected, rtol=ROUNDING)


def test_cross_entropy_keeps_the_digits_of_a_tiny_loss():
    # log(1 + e^-30) is 9e-14: log sum e^s - s_y would be 0, or 1e-3 at scores of 1e4.
    logits = jnp.array([[30.0, 0.0], [1e4, 1e4 - 30.0]])
    labels = jnp.zeros(2, jnp.int32)
    np.testing.assert_allclose(cross_entropy(logits, labels), np.exp(-30.0), rtol=ROUNDING)
    gradient = jax.jit(jax.grad(lambda logits: cross_entropy(logits, labels).sum()))(logits)
    expected = np.exp(-30.0) * np.array([[-1.0, 1.0], [-1.0, 1.0]])
    np.testing.assert_allclose(gradient, expected, rtol=ROUNDING)


def test_one_class_costs_nothing():
    logits, labels = jnp.array([[2.5]]), jnp.array([0])
    for loss in (
        cross_entropy(logits, labels),
        focal(logits, labels, gamma=1.0),
        ldam(logits, labels, margins=0.5),
    ):
        np.testing.assert_array_equal(loss, [0.0])


def test_focal_is_smooth_where_the_true_class_is_certain():
    """The power's slopes are infinite there, but the loss, its gradient and its hessian are 0."""

    def loss(logits, gamma):
        return focal(logits, jnp.array(0), gamma=gamma)

    @jax.jit
    def derivatives(logits, gamma):
        return loss(logits, gamma), jax.grad(loss)(logits, gamma), jax.hessian(loss)(logits, gamma)

    for gamma in (0.0, 0.5, 1.0, 1.5, 2.0):
        # e^-200 underflows to 0 in float32, and so does everything made of it.
        for derivative in derivatives(jnp.array([200.0, 0.0, 0.0]), gamma):
            np.testing.assert_array_equal(derivative, np.zeros_like(derivative))


def test_class_margins_against_reference(rng):
    counts = rng.integers(1, 5000, size=100)
    expected = reference.class_margins(counts, max_margin=0.3)
    for given in (counts, counts.tolist(), jnp.asarray(counts), jnp.asarray(counts, jnp.float32)):
        margins = losses.class_margins(given, max_margin=0.3)
        assert margins.dtype == jnp.float32
        # A quotient, a power and a product.
        np.testing.assert_allclose(margins, expected, rtol=5e-7)
    traced = jax.jit(losses.class_margins)(jnp.asarray(counts), max_margin=0.3)
    np.testing.assert_allclose(traced, expected, rtol=5e-7)
    with jax.enable_x64(True):
        np.testing.assert_allclose(losses.class_margins(counts, max_margin=0.3), expected, 1e-14)
