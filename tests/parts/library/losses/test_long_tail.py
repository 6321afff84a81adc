"""Identities, optima and worked values of the losses that know the class counts; the weights."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import losses, sets

# A dozen roundings of float32 (6e-8 each), relative to the loss or to 1.
ROUNDING = 2e-6
COUNTS = np.array([500, 120, 40, 40, 7, 1])
L = len(COUNTS)


# Compiled once for all tests with a batch of 16 examples.
cross_entropy = jax.jit(losses.cross_entropy)
adjusted = jax.jit(losses.logit_adjusted_cross_entropy)
scaled = jax.jit(losses.vector_scaling)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=ROUNDING, atol=ROUNDING)


@pytest.fixture
def batch(rng):
    return (
        jnp.asarray(3 * rng.normal(size=(16, L)), jnp.float32),
        jnp.asarray(rng.integers(L, size=16), jnp.int32),
    )


def test_logit_adjustment_has_the_best_classifier_over_classes(rng):
    """Its minimum, and the adjusted posterior, are the likelihoods of all classes alike."""
    likelihoods = rng.dirichlet(np.ones(8), size=L).T
    joint = likelihoods * COUNTS / COUNTS.sum()
    labels = np.broadcast_to(np.arange(L), joint.shape)

    def mean_loss(scores):
        each = jnp.broadcast_to(scores[:, None], (*joint.shape, L))
        return (joint * adjusted(each, labels, class_counts=COUNTS, tau=1.0)).sum()

    best = jnp.asarray(np.log(likelihoods), jnp.float32)
    np.testing.assert_allclose(jax.grad(mean_loss)(best), 0, atol=1e-6)
    posterior = jnp.asarray(np.log(joint / joint.sum(axis=1, keepdims=True)), jnp.float32)
    apart = np.asarray(sets.adjust_logits(posterior, class_counts=COUNTS) - best)
    np.testing.assert_allclose(np.ptp(apart, axis=1), 0, atol=1e-5)


def test_equal_factors_keep_the_digits_of_close_scores():
    """At scores of 1e4 a float32 product has steps of 1e-3; the gap of 1/256 is exact."""
    logits = jnp.array([1e4, 1e4 + 1 / 256, -1e4], jnp.float32)
    found = scaled(logits, 0, class_counts=np.array([3, 3, 9]), gamma=0.7, tau=1.0)
    gap = (3 / 9) ** 0.7 / 256
    np.testing.assert_allclose(found, np.log1p(np.exp(gap)), rtol=ROUNDING)


def test_masks_of_rare_classes_stay_masks():
    """The factors of the rare classes are 1e-9, 1e-31 and, in float32, 0."""
    masked_class_0 = np.float32([-np.inf, 1.0, 2.0, -1.0])
    counts = np.array([1, 10**9, 10**9, 10**9])

    @jax.jit
    @jax.vmap
    def of_every_gamma(gamma):
        def loss(logits, label):
            return losses.vector_scaling(logits, label, class_counts=counts, gamma=gamma, tau=0.0)

        return jax.vmap(jax.value_and_grad(loss), (None, 0))(masked_class_0, jnp.array([1, 0]))

    values, gradients = of_every_gamma(jnp.array([1.0, 3.5, 10.0]))
    # The other classes have equal counts and factors of 1.
    odds = np.exp([1.0, 2.0, -1.0])
    assert_close(values[:, 0], np.full(3, np.log(odds.sum() / odds[0])))
    expected = odds / odds.sum()
    assert_close(gradients[:, 0], np.tile([0.0, *(expected - [1, 0, 0])], (3, 1)))
    # The loss of a masked label is infinite; a floor of -1e30 stands for its score.
    assert (np.asarray(values[:, 1]) >= 1e30).all()
    assert_close(gradients[:, 1], np.tile([0.0, 1 / 3, 1 / 3, 1 / 3], (3, 1)))


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.9999, 1 - 1e-7, 1 - 2**-52])
def test_weights_against_exact_arithmetic(beta):
    counts = [1, 2, 5, 40, 300]
    expected = reference.class_balanced_weights(counts, beta=beta)
    weights = losses.class_balanced_weights(counts, beta=beta)
    assert weights.dtype == jnp.float32
    # Half a dozen roundings of float32.
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    with jax.enable_x64(True):
        weights = losses.class_balanced_weights(counts, beta=beta)
        # The same in float64.
        np.testing.assert_allclose(weights, expected, rtol=2e-15)


def test_weights_between_none_and_inverse_frequencies():
    np.testing.assert_array_equal(losses.class_balanced_weights(COUNTS, beta=0.0), np.ones(L))
    inverse = [Fraction(1, int(count)) for count in COUNTS]
    expected = [float(one * L / sum(inverse)) for one in inverse]
    weights = losses.class_balanced_weights(COUNTS, beta=1 - 1e-12)
    # n (1 - beta) is below 1e-9.
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    np.testing.assert_allclose(weights.mean(), 1, rtol=1e-6)
