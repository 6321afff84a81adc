"""Keys, noise, limits and the expectation of the noised hinge."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import losses

ROUNDING = 2e-6


def noised(logits, labels, **options):
    return losses.noised_top_k_hinge(logits, labels, **({"k": 2, "num_samples": 3} | options))


compiled = jax.jit(noised)


@pytest.fixture
def batch(rng):
    return (
        jnp.asarray(rng.normal(size=(5, 8)), jnp.float32),
        jnp.asarray(rng.integers(8, size=5), jnp.int32),
    )


def test_no_noise_is_the_calibrated_hinge(batch, key):
    expected = losses.calibrated_top_k_hinge(*batch, k=2)
    np.testing.assert_allclose(compiled(*batch, epsilon=0.0, key=key), expected, atol=ROUNDING)
    for epsilon in (1e-1, 1e-2, 1e-3, 1e-4):
        gap = compiled(*batch, epsilon=epsilon, key=key) - expected
        # An order statistic moves by at most the largest noise: 120 normals stay below 5.
        assert np.abs(gap).max() < 5 * epsilon + ROUNDING


def test_key_for_each_example_does_not_depend_on_the_batch(batch, key):
    logits, labels = batch
    keys = jax.random.split(key, 5)
    together = compiled(logits, labels, epsilon=0.5, key=keys)
    alone = [compiled(logits[i], labels[i], epsilon=0.5, key=keys[i]) for i in range(5)]
    np.testing.assert_allclose(together, np.stack(alone), atol=ROUNDING)


def test_noise_is_not_lost_in_large_scores(key):
    """Every class is the (K+1)-th in its turn, though float32 has steps of 1e-3 at 1e4."""
    labels = jnp.zeros(200, jnp.int32)

    def total(logits):
        return noised(logits, labels, epsilon=1e-5, key=key).sum()

    gradient = jax.jit(jax.grad(total))(jnp.full((200, 8), 1e4))
    assert (np.asarray(gradient)[:, 1:].sum(axis=0) > 0).all()


@pytest.mark.parametrize("given", [{}, {"key": 0, "noise": jnp.ones((3, 5, 8))}])
def test_either_a_key_or_noise_is_given(batch, given):
    with pytest.raises(ValueError, match="key and noise"):
        noised(*batch, epsilon=0.5, **given)


def test_as_many_keys_as_examples(batch, key):
    with pytest.raises(ValueError, match="key"):
        noised(*batch, epsilon=0.5, key=jax.random.split(key, 4))


def test_gradient_converges_to_that_of_the_expectation():
    rng = np.random.default_rng(0)
    logits, epsilon, num_samples = rng.normal(size=8).astype(np.float32), 0.6, 20_000
    probabilities = reference.expected_top_k_value_gradient(logits, 3, epsilon=epsilon)
    mark = np.eye(8)[1]

    def loss(logits, key):
        # A margin that keeps the hinge active: then the gradient is the operator's less e_y.
        return noised(
            logits, jnp.array(1), epsilon=epsilon, num_samples=num_samples, margins=50.0, key=key
        )

    value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.asarray(logits), jax.random.key(7))
    # A frequency of M independent draws: 5 standard errors, each sqrt(p (1 - p) / M), and rounding.
    bound = 5 * np.sqrt(probabilities * (1 - probabilities) / num_samples) + ROUNDING
    assert (np.abs(gradient - (probabilities - mark)) < bound).all()
    expected = reference.expected_top_k_hinge(
        logits, np.array(1), k=2, epsilon=epsilon, margins=50.0
    )
    # An order statistic of independent normals of scale epsilon varies less than one of them; the
    # float32 mean of numbers below 5 and the margin of 50 add 1e-5.
    assert abs(value - expected) < 5 * epsilon / np.sqrt(num_samples) + 1e-5
