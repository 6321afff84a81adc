"""Identities, edges and extremes of the sparse top-k loss."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import losses, operators

ROUNDING = 2e-6


@pytest.fixture
def logits(rng):
    return jnp.asarray(rng.normal(size=(12, 7)), jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def value_and_gradient(loss, logits, labels):
    values = loss(logits, labels)
    return values, jax.grad(lambda logits: loss(logits, labels).sum())(logits)


def test_gradient_is_the_projection_less_the_targets(logits, rng):
    targets = jnp.asarray(rng.random((12, 7)) < 0.4)
    gradient = value_and_gradient(losses.sparse_top_loss, logits, targets)[1]
    projection = jax.jit(operators.sparse_top)(logits, targets.sum(axis=-1))
    np.testing.assert_allclose(gradient, projection - targets.astype(jnp.float32), atol=ROUNDING)


@pytest.mark.parametrize("target", [0, 1])
def test_no_targets_and_all_targets_cost_nothing(logits, target):
    for scores in (logits, 1e4 * logits, logits.at[:, 2].set(-jnp.inf)):
        targets = jnp.full(scores.shape, target)
        values, gradient = value_and_gradient(losses.sparse_top_loss, scores, targets)
        np.testing.assert_array_equal(values, np.zeros(12))
        np.testing.assert_array_equal(gradient, np.zeros((12, 7)))


def test_zero_from_a_margin_of_1_on():
    logits = jnp.array([2.0, 1.5, 0.5, 0.0])
    targets = jnp.array([1, 1, 0, 0])
    loss = jax.jit(losses.sparse_top_loss)
    np.testing.assert_array_equal(loss(logits, targets), 0.0)
    assert loss(logits.at[1].add(-0.25), targets) > 0


def test_hessian_is_the_jacobian_of_the_projection():
    logits = jnp.array([1.2, 0.9, 0.5, 0.3, -2.0])
    targets = jnp.array([1, 0, 1, 0, 0])
    hessian = jax.jit(jax.hessian(losses.sparse_top_loss))(logits, targets)
    expected = reference.sparse_top_jacobian(np.asarray(logits), 2)
    np.testing.assert_allclose(hessian, expected, atol=ROUNDING)


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_wide_and_narrow_scores_of_10000_classes(rng, scale):
    logits = (scale * rng.normal(size=(2, 10_000))).astype(np.float32)
    targets = np.zeros((2, 10_000), np.int32)
    targets[0, :3] = targets[1, :500] = 1
    values, gradient = value_and_gradient(losses.sparse_top_loss, logits, targets)
    # Every term of the loss is nonnegative: up to 500 roundings, relative to their sum.
    np.testing.assert_allclose(values, reference.sparse_top_loss(logits, targets), rtol=1e-5)
    expected = reference.sparse_top_loss_gradient(logits, targets)
    # The threshold has the roundoff of the scores near it.
    np.testing.assert_allclose(gradient, expected, atol=1e-6 * max(1.0, 4 * scale))


def test_certain_target_does_not_blur_an_uncertain_one():
    logits = jnp.array([1e4, 1.2, 0.9, 0.3])
    targets = jnp.array([1, 1, 0, 0])
    expected = reference.sparse_top_loss(np.asarray(logits), np.asarray(targets))
    # Relative to the loss of 0.1, not to the score of 1e4.
    loss = jax.jit(losses.sparse_top_loss)
    np.testing.assert_allclose(loss(logits, targets), expected, rtol=ROUNDING)
