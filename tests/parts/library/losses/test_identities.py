"""Identities, worked values, limits and extremes of the losses of labels and of targets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import reference
from tests.compilation import for_users
from tests.rows import rows
from topk_jax import losses

EPS = float(np.finfo(np.float32).eps)
# A dozen roundings of float32 (6e-8 each), relative to the loss or to 1.
ROUNDING = 2e-6


@functools.partial(for_users, static_argnums=0, static_argnames="k")
def value_and_gradient(loss, logits, labels, **parameters):
    def total(logits):
        values = loss(logits, labels, **parameters)
        return values.sum(), values

    gradient, values = jax.grad(total, has_aux=True)(logits)
    return values, gradient


entmax_loss = functools.partial(value_and_gradient, losses.entmax_loss)
lapsum_loss = functools.partial(value_and_gradient, losses.lapsum_top_k_loss)
smooth_hinge = functools.partial(value_and_gradient, losses.smooth_top_k_hinge)


@pytest.fixture
def batch(rng):
    return (
        jnp.asarray(3 * rng.normal(size=(16, 7)), jnp.float32),
        jnp.asarray(rng.integers(7, size=16), jnp.int32),
    )


def compare(ours, expected, tolerance=ROUNDING):
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def relative_error(ours, expected):
    ours, expected = np.asarray(ours, np.float64), np.asarray(expected)
    return (np.abs(ours - expected) / np.maximum(1.0, np.abs(expected))).max()


# Hinges


@pytest.mark.parametrize("score_of_label", [-np.inf, -1e9, -50.0])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_the_convex_hinge_of_a_label_far_below_has_the_slopes_of_the_largest(score_of_label, k):
    logits = np.float32([1.0, 3.0, score_of_label, 2.0, 0.0, 2.5, 4.0])
    slopes = jax.grad(losses.convex_top_k_hinge)(jnp.array(logits), jnp.array(2), k=k)
    expected = np.zeros(7, np.float32)
    expected[np.argsort(-logits)[:k]] = np.float32(1) / k
    # The score of a masked label has no slope.
    expected[2] -= np.isfinite(score_of_label)
    np.testing.assert_allclose(slopes, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "k",
    rows([1, 5, 99], [50, 95]),
)
def test_smooth_hinge_from_cold_to_hot_and_from_small_to_large(rng, k):
    """The error stays at rounding, even if scores / (K tau) are 1e7."""
    base = rng.normal(size=(3, 100))
    # Logarithms of the polynomials, up to 70 at K = 50 and 20 elsewhere, are rounded to 6e-8 of
    # that at each of the levels of the tree.
    tolerance = 2e-5 if k == 50 else 5e-6
    for tau in map(np.float32, (1e-3, 1.0, 1e3)):
        for scale in (1e-6, 1.0, 1e4):
            logits = (scale * base).astype(np.float32)
            order = np.argsort(-logits[0])
            labels = np.array([order[0], order[k], order[-1]])
            logits[1:] = logits[0]
            exact = {"k": k, "tau": np.float64(tau)}
            expected = reference.smooth_top_k_hinge(logits, labels, **exact)
            values, gradient = smooth_hinge(logits, labels, k=k, tau=tau)
            assert relative_error(values, expected) < tolerance
            expected = reference.smooth_top_k_hinge_gradient(logits, labels, **exact)
            np.testing.assert_allclose(gradient, expected, rtol=0, atol=tolerance / k)


@pytest.mark.parametrize(("tau", "scale"), [(1e-3, 1.0), (1e-3, 1e4), (1.0, 1.0), (1e3, 1e4)])
def test_smooth_hinge_of_100000_classes(rng, tau, scale):
    k, num_classes, tau = 5, 100_000, np.float32(tau)
    logits = (scale * rng.normal(size=(1, num_classes))).astype(np.float32)
    labels = np.array([7])
    expected = reference.smooth_top_k_hinge(logits, labels, k=k, tau=np.float64(tau))
    # Log-sums over 1e5 classes, of up to 60 (log sigma_5): 1e-7 of that, over a loss of about 10.
    values, gradient = smooth_hinge(logits, labels, k=k, tau=tau)
    assert relative_error(values, expected) < 4 * ROUNDING
    gradient = np.asarray(gradient, np.float64)
    # The derivatives of log sigma_K - log sigma_{K-1} are nonnegative and add up to 1.
    assert gradient[0, 7] < 0
    assert (np.delete(gradient, 7) >= 0).all()
    np.testing.assert_allclose(gradient.sum(), 0.0, atol=1e-5 / k)


def test_smooth_hinge_of_ties_and_masked_classes_among_many(rng):
    """Ties also at the end of what is selected."""
    logits = np.round(4 * rng.normal(size=(5, 1081))).astype(np.float32) / 2
    logits[3, ::2] = -np.inf
    labels = np.array([0, 5, 47, 11, 23])
    values, gradient = smooth_hinge(logits, labels, k=4, tau=0.5)
    expected = reference.smooth_top_k_hinge(logits, labels, k=4, tau=0.5)
    assert relative_error(values, expected) < 4 * ROUNDING
    expected = reference.smooth_top_k_hinge_gradient(logits, labels, k=4, tau=0.5)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=4 * ROUNDING)


# Entmax


@pytest.mark.parametrize("alpha", [1.0, 1.0 + 1e-6, 1.2, 1.5, 1.9, 2.0])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_values_and_gradients_at_any_alpha_and_scale(batch, alpha, scale):
    logits, labels = scale * batch[0], batch[1]
    # The reference divides by alpha - 1, twice.
    alpha = np.float32(alpha)
    close_to_1 = 0 < alpha - 1 < 1e-5
    settings = {"alpha": 1.0 if close_to_1 else float(alpha)}
    expected = reference.entmax_loss(logits, labels, **settings)
    gradient = reference.entmax_loss_gradient(logits, labels, **settings)
    # The derivative of the loss in alpha is at most log(7)^2 / 2.
    tolerance = 4e-6 if close_to_1 else ROUNDING
    compare(entmax_loss(logits, labels, alpha=alpha), (expected, gradient), tolerance)


def test_sparsemax_loss_is_that_of_optax(batch):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        expected = jax.jit(optax.losses.multiclass_sparsemax_loss)(*batch)
    compare([losses.sparsemax_loss(*batch)], [expected])


@pytest.mark.parametrize("alpha", [1.25, 1.5, 1.75, 2.0])
@pytest.mark.parametrize("doubt", [0.3, 1e-2, 1e-4])
def test_small_losses_keep_their_digits(alpha, doubt):
    """Two classes; in closed form with p = 1 - e, up to a margin that is inverted exactly."""
    exponent = alpha - 1
    # The gap of the scores at which the other class has the probability `doubt`.
    gap = ((1 - doubt) ** exponent - doubt**exponent) / exponent
    logits = np.array([gap, 0.0], np.float32)
    expected = reference.entmax_loss(logits, 0, alpha=alpha)
    ours = losses.entmax_loss(logits, jnp.int32(0), alpha=alpha)
    # The rounding of the gap, by how much a small loss depends on it: p_other / loss.
    slope = doubt / expected
    np.testing.assert_allclose(ours, expected, rtol=ROUNDING * (1 + slope * gap))
    assert ours > 0


def test_slope_in_alpha(batch):
    with jax.enable_x64(True):
        logits, labels = jnp.asarray(batch[0] / 3, jnp.float64), batch[1]
        loss = jax.jit(functools.partial(losses.entmax_loss, logits, labels))
        slope = jax.jit(jax.jacfwd(lambda alpha: loss(alpha=alpha)))
        step = 1e-5
        for alpha in (1.0 + step, 1.01, 1.5, 1.97, 2.0 - step):
            differences = (loss(alpha=alpha + step) - loss(alpha=alpha - step)) / (2 * step)
            # Third derivatives of order 10, and 1e-15 over the step.
            np.testing.assert_allclose(slope(alpha), differences, atol=1e-8)


# The sparse top-k loss


@pytest.mark.parametrize("target", [0, 1])
def test_no_targets_and_all_targets_cost_nothing(batch, target):
    logits, _ = batch
    for scores in (logits, 1e4 * logits, logits.at[:, 2].set(-jnp.inf)):
        targets = jnp.full(scores.shape, target)
        values, gradient = value_and_gradient(losses.sparse_top_loss, scores, targets)
        np.testing.assert_array_equal(values, 0)
        np.testing.assert_array_equal(gradient, 0)


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


# Soft memberships


def test_lapsum_loss_at_any_scale(rng):
    logits = np.float32(rng.normal(size=(12, 8)) * np.repeat([1e-2, 1.0, 50.0, 1e4], 3)[:, None])
    logits[::3] = logits[::3].round(1)
    labels = rng.integers(8, size=12)
    for alpha in np.float32([1e-4, 0.03, 1.0, 30.0, 1e4]):
        values, gradient = lapsum_loss(logits, labels, k=3, alpha=alpha)
        expected = reference.lapsum_top_k_loss(logits, labels, k=3, alpha=alpha)
        # The memberships underflow from a loss of 88 on; a loss of 1e8 keeps its digits.
        np.testing.assert_allclose(values, expected, rtol=ROUNDING, atol=ROUNDING)
        expected = reference.lapsum_top_k_loss_gradient(logits, labels, k=3, alpha=alpha)
        # Weights are exponentials of distances with a few roundings each.
        np.testing.assert_allclose(gradient * alpha, expected * alpha, rtol=0, atol=10 * ROUNDING)


def test_lapsum_loss_far_below_pulls_at_the_scores_beside_the_threshold():
    """Both sides of the threshold have half of the weights, though all of them underflow."""
    logits = jnp.array([[1e4, 3e3, 1.0, 1.0, -2e4]])
    values, gradient = lapsum_loss(logits, jnp.array([4]), k=2, alpha=1e-2)
    # Between 3e3 and the two scores of 1, half of the distance each, and log 2 of the tie.
    middle = (3e3 + 1.0 + 1e-2 * np.log(2.0)) / 2
    np.testing.assert_allclose(values, [(middle + 2e4) / 1e-2 + np.log(2.0)], rtol=2 * EPS)
    np.testing.assert_allclose(gradient * 1e-2, [[0, 0.5, 0.25, 0.25, -1]], rtol=2 * EPS)


# Wrong labels


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
