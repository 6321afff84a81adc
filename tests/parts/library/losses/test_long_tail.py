"""Identities, optima and worked values of the losses that know the class counts; the weights."""

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


def test_logit_adjustment_is_the_cross_entropy_of_optax_on_shifted_logits(batch):
    logits, labels = batch
    optax_loss = jax.jit(optax.losses.softmax_cross_entropy_with_integer_labels)
    for tau in (0.5, 1.0):
        shifted = np.asarray(logits) + tau * np.log(COUNTS / COUNTS.sum())
        expected = optax_loss(jnp.asarray(shifted, jnp.float32), labels)
        # Logarithms of up to 7 are rounded to 5e-7.
        assert_close(adjusted(*batch, class_counts=COUNTS, tau=tau), expected)


def test_without_strength_or_imbalance_it_is_the_cross_entropy(batch):
    expected = cross_entropy(*batch)
    assert_close(adjusted(*batch, class_counts=COUNTS, tau=0.0), expected)
    assert_close(adjusted(*batch, class_counts=np.full(L, 7), tau=1.0), expected)
    assert_close(scaled(*batch, class_counts=COUNTS, gamma=0.0, tau=0.0), expected)
    assert_close(
        scaled(*batch, class_counts=COUNTS, gamma=0.0, tau=1.5),
        adjusted(*batch, class_counts=COUNTS, tau=1.5),
    )


def test_counts_are_frequencies(batch):
    """Counts of another total and of another type, and counts that are not traced."""
    expected = adjusted(*batch, class_counts=COUNTS, tau=1.0)
    assert_close(adjusted(*batch, class_counts=np.float32(8 * COUNTS), tau=1.0), expected)
    for counts in (COUNTS.tolist(), COUNTS * 10**16):
        found = losses.logit_adjusted_cross_entropy(*batch, class_counts=counts)
        assert_close(found, expected)


def test_the_minimum_is_the_best_classifier_over_classes(rng):
    """For known p(y | x), the expected loss is smallest at s = log p - tau log pi.

    There the scores rank the classes by p(y | x) / pi_y^tau: the balanced Bayes classifier for
    tau = 1.
    """
    with jax.enable_x64(True):
        # Some p(y | x) with the class frequencies as their mean.
        posterior = rng.dirichlet(np.ones(L), size=50)
        prior = posterior.mean(axis=0)

        @jax.jit
        @jax.value_and_grad
        def expected_loss(scores, tau):
            every = jnp.broadcast_to(scores[:, None], (50, L, L))
            every_label = jnp.broadcast_to(jnp.arange(L), (50, L))
            values = losses.logit_adjusted_cross_entropy(
                every, every_label, class_counts=prior, tau=tau
            )
            return (posterior * values).sum()

        for tau in (1.0, 0.4):
            best = np.log(posterior) - tau * np.log(prior)
            value, gradient = expected_loss(jnp.asarray(best), tau)
            # Sums of L numbers of float64 below 1.
            np.testing.assert_allclose(gradient, 0, atol=1e-14)
            # The loss is convex, so this is its minimum: the entropy of the labels.
            entropy = -(posterior * np.log(posterior)).sum()
            np.testing.assert_allclose(value, entropy, rtol=1e-13)
            np.testing.assert_array_equal(
                best.argmax(axis=-1), (posterior / prior**tau).argmax(axis=-1)
            )
            found = sets.adjust_logits(np.log(posterior), class_counts=prior, tau=tau)
            np.testing.assert_allclose(found, best, rtol=1e-13, atol=1e-13)


def test_vector_scaling_by_hand():
    # Delta is 1, 1/2 and 1/4; the scaled logits are log 2, log 3 and 0, the priors 1, 1/4, 1/16.
    logits = np.broadcast_to(np.float32([np.log(2), 2 * np.log(3), 0.0]), (3, 3))
    for tau, total in ((0.0, 2 + 3 + 1), (1.0, 2 + 3 / 4 + 1 / 16)):
        parts = np.array([2.0, 3.0 / 4**tau, 1.0 / 16**tau])
        found = scaled(logits, np.arange(3), class_counts=np.array([16, 4, 1]), gamma=0.5, tau=tau)
        assert_close(found, np.log(total / parts))


def test_rare_classes_need_larger_logits_than_frequent_ones():
    """If two classes score the same, the loss of the rarer one is larger."""
    batch = jnp.ones((16, L)), jnp.arange(16) % L
    for values in (
        adjusted(*batch, class_counts=COUNTS, tau=1.0)[:L],
        scaled(*batch, class_counts=COUNTS, gamma=0.3, tau=0.0)[:L],
    ):
        assert values[0] < values[1] < values[2] == values[3] < values[4] < values[5]


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


def test_weights_of_traced_arguments():
    # If beta is traced, float32 rounds 1 - beta itself: 63/64 is exact.
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
    np.testing.assert_allclose(weights.mean(), 1, rtol=1e-6)


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
