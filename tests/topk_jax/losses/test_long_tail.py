"""Identities, optima and worked values of the losses that know the class counts; the weights."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import reference
from topk_jax import losses, sets

# A dozen roundings of float32 (6e-8 each), relative to the loss or to 1.
ROUNDING = 2e-6
COUNTS = np.array([500, 120, 40, 40, 7, 1])
L = len(COUNTS)


@pytest.fixture
def batch(rng):
    return (
        jnp.asarray(3 * rng.normal(size=(16, L)), jnp.float32),
        jnp.asarray(rng.integers(L, size=16), jnp.int32),
    )


def test_logit_adjustment_is_the_cross_entropy_of_optax_on_shifted_logits(batch):
    logits, labels = batch
    for tau in (0.5, 1.0):
        shifted = logits + tau * jnp.log(jnp.asarray(COUNTS / COUNTS.sum(), jnp.float32))[None]
        expected = optax.losses.softmax_cross_entropy_with_integer_labels(shifted, labels)
        found = losses.logit_adjusted_cross_entropy(logits, labels, class_counts=COUNTS, tau=tau)
        # Logarithms of up to 7 are rounded to 5e-7.
        np.testing.assert_allclose(found, expected, rtol=ROUNDING, atol=ROUNDING)


def test_without_strength_or_imbalance_it_is_the_cross_entropy(batch):
    expected = losses.cross_entropy(*batch)
    adjusted = functools.partial(losses.logit_adjusted_cross_entropy, *batch)
    np.testing.assert_array_equal(adjusted(class_counts=COUNTS, tau=0.0), expected)
    np.testing.assert_array_equal(adjusted(class_counts=np.full(L, 7)), expected)
    scaled = functools.partial(losses.vector_scaling, *batch, gamma=0.0)
    np.testing.assert_array_equal(scaled(class_counts=COUNTS, tau=0.0), expected)
    np.testing.assert_array_equal(
        scaled(class_counts=COUNTS, tau=1.5), adjusted(class_counts=COUNTS, tau=1.5)
    )


def test_counts_are_frequencies(batch):
    """Counts of another total, of another type and traced ones: the same losses."""
    expected = losses.logit_adjusted_cross_entropy(*batch, class_counts=COUNTS)
    for counts in (COUNTS.tolist(), 8.0 * COUNTS, jnp.asarray(COUNTS), COUNTS * 10**16):
        found = losses.logit_adjusted_cross_entropy(*batch, class_counts=counts)
        np.testing.assert_allclose(found, expected, rtol=ROUNDING, atol=ROUNDING)
    traced = jax.jit(losses.logit_adjusted_cross_entropy)(
        *batch, class_counts=jnp.asarray(COUNTS), tau=1.0
    )
    np.testing.assert_allclose(traced, expected, rtol=ROUNDING, atol=ROUNDING)


def test_the_minimum_is_the_best_classifier_over_classes(rng):
    """For known p(y | x), the expected loss is smallest at s = log p - tau log pi.

    There the scores rank the classes by p(y | x) / pi_y^tau: the balanced Bayes classifier for
    tau = 1.
    """
    with jax.enable_x64(True):
        # Some p(y | x) with the class frequencies as their mean.
        posterior = rng.dirichlet(np.ones(L), size=200)
        prior = posterior.mean(axis=0)
        for tau in (1.0, 0.4):

            def expected_loss(scores, tau=tau):
                every_label = jnp.broadcast_to(jnp.arange(L), (200, L))
                every = jnp.broadcast_to(scores[:, None], (200, L, L))
                values = losses.logit_adjusted_cross_entropy(
                    every, every_label, class_counts=prior, tau=tau
                )
                return (posterior * values).sum()

            best = np.log(posterior) - tau * np.log(prior)
            value, gradient = jax.jit(jax.value_and_grad(expected_loss))(jnp.asarray(best))
            # Sums of L numbers of float64 below 1.
            np.testing.assert_allclose(gradient, 0, atol=1e-14)
            # The loss is convex, so this is its minimum: the entropy of the labels.
            entropy = -(posterior * np.log(posterior)).sum()
            np.testing.assert_allclose(value, entropy, rtol=1e-13)
            np.testing.assert_array_equal(
                best.argmax(axis=-1), (posterior / prior**tau).argmax(axis=-1)
            )
            adjusted = sets.adjust_logits(jnp.log(posterior), class_counts=prior, tau=tau)
            np.testing.assert_allclose(adjusted, best, rtol=1e-13, atol=1e-13)


def test_vector_scaling_by_hand():
    # Delta is 1, 1/2 and 1/4; the scaled logits are log 2, log 3 and 0, the priors 1, 1/4, 1/16.
    counts = [16, 4, 1]
    logits = jnp.array([np.log(2), 2 * np.log(3), 0.0], jnp.float32)
    for tau, total in ((0.0, 2 + 3 + 1), (1.0, 2 + 3 / 4 + 1 / 16)):
        for label, part in enumerate((2.0, 3.0 / 4**tau, 1.0 / 16**tau)):
            found = losses.vector_scaling(logits, label, class_counts=counts, gamma=0.5, tau=tau)
            np.testing.assert_allclose(found, np.log(total / part), rtol=ROUNDING)


def test_rare_classes_need_larger_logits_than_frequent_ones(batch):
    """Of two classes that score the same, the loss of the rarer one is larger."""
    logits = jnp.ones((1, L))
    for loss in (
        functools.partial(losses.logit_adjusted_cross_entropy, tau=1.0),
        functools.partial(losses.vector_scaling, gamma=0.3, tau=0.0),
    ):
        values = [float(loss(logits, jnp.array([c]), class_counts=COUNTS)[0]) for c in range(L)]
        assert values == sorted(values)
        assert values[0] < values[1] < values[2] == values[3] < values[4] < values[5]


def test_equal_factors_keep_the_digits_of_close_scores():
    """At scores of 1e4 a float32 product has steps of 1e-3; the gap of 1/256 is exact."""
    logits = jnp.array([1e4, 1e4 + 1 / 256, -1e4], jnp.float32)
    found = losses.vector_scaling(logits, 0, class_counts=[3, 3, 9], gamma=0.7, tau=1.0)
    gap = (3 / 9) ** 0.7 / 256
    np.testing.assert_allclose(found, np.log1p(np.exp(gap)), rtol=ROUNDING)


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


def test_weights_of_traced_arguments():
    # float32 rounds 1 - beta itself where beta is traced: 63/64 is exact.
    for beta in (0.0, 63 / 64):
        found = jax.jit(losses.class_balanced_weights)(jnp.asarray(COUNTS), beta=jnp.float32(beta))
        expected = reference.class_balanced_weights(COUNTS.tolist(), beta=beta)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_weights_between_none_and_inverse_frequencies():
    np.testing.assert_array_equal(losses.class_balanced_weights(COUNTS, beta=0.0), np.ones(L))
    inverse = [Fraction(1, int(count)) for count in COUNTS]
    expected = [float(one * L / sum(inverse)) for one in inverse]
    weights = losses.class_balanced_weights(COUNTS, beta=1 - 1e-12)
    # n (1 - beta) is below 1e-9.
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    for beta in (0.3, 0.99):
        assert losses.class_balanced_weights(COUNTS, beta=beta).mean() == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("counts", "beta", "error", "message"),
    [
        ([3, 0, 2], 0.5, ValueError, "class_counts must be positive .*got 0 for class 1"),
        ([[3, 2]], 0.5, ValueError, r"class_counts must have one value .*got shape \(1, 2\)"),
        ("12", 0.5, TypeError, "class_counts must be a real number or array, got str"),
        ([3, 2], 1.0, ValueError, "beta must be at least 0 and less than 1, got 1"),
        ([3, 2], -0.5, ValueError, "beta must be at least 0 and less than 1, got -0.5"),
        ([3, 2], jnp.ones(2), ValueError, r"beta must be a scalar, got shape \(2,\)"),
        ([3, 2], "0.5", TypeError, "beta must be a real number"),
    ],
)
def test_weights_refuse(counts, beta, error, message):
    with pytest.raises(error, match=message):
        losses.class_balanced_weights(counts, beta=beta)
