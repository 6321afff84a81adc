"""Extremes of the losses of soft memberships in the k largest scores."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from tests import reference
from tests.compilation import for_users
from topk_jax import losses, operators

EPS = float(np.finfo(np.float32).eps)
ROUNDING = 2e-6


@functools.partial(for_users, static_argnames="k")
def value_and_gradient(logits, labels, *, k, alpha):
    def total(logits):
        values = losses.lapsum_top_k_loss(logits, labels, k=k, alpha=alpha)
        return values.sum(), values

    (_, values), gradient = jax.value_and_grad(total, has_aux=True)(logits)
    return values, gradient


def test_lapsum_loss_at_any_scale(rng):
    logits = np.float32(rng.normal(size=(12, 8)) * np.repeat([1e-2, 1.0, 50.0, 1e4], 3)[:, None])
    logits[::3] = logits[::3].round(1)
    labels = rng.integers(8, size=12)
    for alpha in np.float32([1e-4, 0.03, 1.0, 30.0, 1e4]):
        values, gradient = value_and_gradient(logits, labels, k=3, alpha=alpha)
        expected = reference.lapsum_top_k_loss(logits, labels, k=3, alpha=alpha)
        # The memberships underflow from a loss of 88 on; a loss of 1e8 keeps its digits.
        np.testing.assert_allclose(values, expected, rtol=ROUNDING, atol=ROUNDING)
        expected = reference.lapsum_top_k_loss_gradient(logits, labels, k=3, alpha=alpha)
        # Weights are exponentials of distances with a few roundings each.
        np.testing.assert_allclose(gradient * alpha, expected * alpha, rtol=0, atol=10 * ROUNDING)


def test_lapsum_loss_far_below_pulls_at_the_scores_beside_the_threshold():
    """Both sides of the threshold have half of the weights, though all of them underflow."""
    logits = jnp.array([[1e4, 3e3, 1.0, 1.0, -2e4]])
    values, gradient = value_and_gradient(logits, jnp.array([4]), k=2, alpha=1e-2)
    # Between 3e3 and the two scores of 1, half of the distance each, and log 2 of the tie.
    middle = (3e3 + 1.0 + 1e-2 * np.log(2.0)) / 2
    np.testing.assert_allclose(values, [(middle + 2e4) / 1e-2 + np.log(2.0)], rtol=2 * EPS)
    np.testing.assert_allclose(gradient * 1e-2, [[0, 0.5, 0.25, 0.25, -1]], rtol=2 * EPS)


def test_lapsum_loss_is_the_logarithm_of_the_membership(rng):
    logits = jnp.asarray(rng.normal(size=(6, 8)), jnp.float32)
    labels = np.arange(6)
    lapsum_top_k = jax.jit(operators.lapsum_top_k, static_argnums=1)
    memberships = lapsum_top_k(logits, 3, alpha=0.5)[labels, labels]
    values, _ = value_and_gradient(logits, labels, k=3, alpha=0.5)
    np.testing.assert_allclose(values, -np.log(memberships), rtol=0, atol=ROUNDING)
    # All L classes are among the top L.
    values, gradient = value_and_gradient(logits, labels, k=8, alpha=0.5)
    np.testing.assert_array_equal(values, np.zeros(6))
    np.testing.assert_array_equal(gradient, np.zeros((6, 8)))


def test_sigmoid_loss_grows_linearly():
    logits = jnp.array([1e4, 1.0, 0.0, -1e4])
    loss = functools.partial(losses.sigmoid_top_k_loss, labels=jnp.array(3), k=2, tau=0.1)
    value, gradient = jax.jit(jax.value_and_grad(loss))(logits)
    np.testing.assert_allclose(value, (1e4 + 0.5) / 0.1, rtol=2 * EPS)
    np.testing.assert_allclose(gradient, [0, 5, 5, -10], rtol=2 * EPS)
