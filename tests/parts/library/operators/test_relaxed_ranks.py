"""Relaxed ranks: values, derivatives, limits, ties, masks and NaN."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.compilation import for_users
from topk_jax import losses, operators

# One of each method and each swap.
RELAXATIONS = {
    "soft_sort": {"method": "soft_sort", "tau": 0.7},
    "cauchy": {"method": "odd_even", "tau": 0.3, "swap": "cauchy"},
    "logistic": {"method": "odd_even", "tau": 0.5, "swap": "logistic"},
}
SIZE, K = 5, 3

every_relaxation = pytest.mark.parametrize("name", RELAXATIONS)


@functools.partial(for_users, static_argnums=(0, 1))
def ranks_and_gradient(name, k, scores, cotangent, tau=None):
    """Relaxed ranks, and the cotangent [k, L] pulled back to the scores."""
    relaxation = RELAXATIONS[name] | ({} if tau is None else {"tau": tau})
    ranks, vjp = jax.vjp(lambda s: operators.relaxed_ranks(s, k, **relaxation), scores)
    return ranks, vjp(jnp.broadcast_to(cotangent, ranks.shape))[0]


def weights(k=K, size=SIZE):
    # Not the same for any two entries.
    return jnp.asarray(np.cos(np.arange(k * size).reshape(k, size)), jnp.float32)


def draw(rng, shape=(8, SIZE)):
    return jnp.asarray(2 * rng.normal(size=shape), jnp.float32)


def assert_reference(name, ranks, gradient, scores):
    """Probabilities and derivatives, of order 1 / tau, after some layers of float32."""
    expected = reference.relaxed_ranks(scores, K, **RELAXATIONS[name])
    np.testing.assert_allclose(ranks, expected, rtol=0, atol=2e-6)
    cotangent = np.asarray(weights(), np.float64)
    for row, slope in zip(np.asarray(scores), np.asarray(gradient), strict=True):
        jacobian = reference.relaxed_ranks_jacobian(row, K, **RELAXATIONS[name])
        np.testing.assert_allclose(
            slope, (cotangent[..., None] * jacobian).sum(axis=(0, 1)), rtol=1e-5, atol=2e-5
        )


@every_relaxation
def test_values_and_gradients_are_the_reference(name, rng):
    scores = draw(rng)
    assert_reference(name, *ranks_and_gradient(name, K, scores, weights()), scores)


@every_relaxation
def test_edges(name, rng):
    """Equal scores, masked classes, a NaN, large scores and common shifts, in one compilation."""
    clean = draw(rng).at[0].set(0.0)
    ranks, gradient = ranks_and_gradient(name, K, clean, weights())
    assert_reference(name, ranks, gradient, clean)
    # Exact in float32, so that the shift loses no digit.
    rounded = jnp.round(256 * clean) / 256
    expected = ranks_and_gradient(name, K, rounded, weights())
    for one, other in zip(
        ranks_and_gradient(name, K, rounded + 1e4, weights()), expected, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5)
    hurt = clean.at[1, 2].set(jnp.nan).at[2].multiply(1e4).at[3, 1:3].set(-jnp.inf)
    hurt = hurt.at[4, 1:].set(-jnp.inf).at[5].set(-jnp.inf)
    hurt_ranks, hurt_gradient = ranks_and_gradient(name, K, hurt, weights())
    assert np.isnan(hurt_ranks[1]).all()
    assert np.isnan(hurt_gradient[1]).all()
    np.testing.assert_array_equal(hurt_ranks[6:], ranks[6:])
    np.testing.assert_array_equal(hurt_gradient[6:], gradient[6:])
    assert np.isfinite(np.delete(hurt_ranks, 1, axis=0)).all()
    assert np.isfinite(np.delete(hurt_gradient, 1, axis=0)).all()
    np.testing.assert_array_equal(hurt_gradient[3, 1:3], 0)
    # Three classes are left for three ranks.
    np.testing.assert_array_equal(hurt_ranks[3][:, 1:3], 0)
    assert_reference(name, hurt_ranks[2:4], hurt_gradient[2:4], hurt[2:4])


def test_equal_scores_far_below_the_largest_stay_equal():
    """In float32 a rounded mixture of two scores of 1e4 would differ from both by 1e-3."""
    scores = jnp.zeros((8, SIZE)).at[:, 0].set(1e4)
    ranks, gradient = ranks_and_gradient("cauchy", K, scores, weights())
    assert_reference("cauchy", ranks, gradient, scores)


@every_relaxation
def test_the_loss_does_not_saturate(name):
    logits = jnp.array([[0.0, 1.0, 2.0, 3.0, 900.0], [0.0, 1.0, 2.0, 3.0, 4.0]])
    relaxation = RELAXATIONS[name] | {"tau": 0.5}

    @jax.jit
    def value_and_gradient(logits):
        def total(logits):
            return losses.relaxed_top_k_cross_entropy(
                logits,
                jnp.array([0, 4]),
                top_k_weights=[1.0],
                softmax_top_1=False,
                **relaxation,
            ).sum()

        return jax.value_and_grad(total)(logits)

    value, gradient = value_and_gradient(logits)
    assert np.isfinite(value)
    if name == "cauchy":
        ranks = reference.relaxed_ranks(np.asarray(logits), 1, **relaxation)[:, 0]
        # The tails have all their digits. A lane at 900 is rounded to 3e-5, of a loss of 15.
        np.testing.assert_allclose(value, -np.log(ranks[0, 0] * ranks[1, 4]), rtol=5e-6)
    # A logistic tail is exponential; the others have a logarithmic loss, whose slope is small.
    assert gradient[0, 0] < (0 if name == "cauchy" else -0.5)


def test_sizes_without_weight_have_finite_slopes():
    logits = jnp.array([1.0, 0.0, 2.0, -1.0, 0.5])

    @jax.jit
    @jax.grad
    def slopes(top_k_weights):
        return losses.relaxed_top_k_cross_entropy(
            logits, jnp.array(0), top_k_weights=top_k_weights, **RELAXATIONS["soft_sort"]
        )

    assert np.isfinite(slopes(jnp.array([0.0, 1.0, 0.0]))).all()


def test_the_tail_of_a_cauchy_swap_has_all_its_digits():
    gaps = np.array([1.3, 97.0, 911.0, 1.7e4], np.float32)
    scores = jnp.stack([jnp.zeros(4), gaps], axis=-1)
    chances = operators.relaxed_ranks(scores, 1, method="odd_even", tau=0.5)[:, 0, 0]
    # An exponential of a logarithm of up to 12.
    expected = np.arctan2(1.0, gaps.astype(np.float64) / 0.5) / np.pi
    np.testing.assert_allclose(chances, expected, rtol=2e-6)
