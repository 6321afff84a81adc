"""Worked values, limits and extremes of the hinges, the smooth one among them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.compilation import for_users
from tests.rows import rows
from topk_jax import losses

# A dozen roundings of float32 (6e-8 each), relative to the loss or to 1.
ROUNDING = 2e-6

smooth = for_users(losses.smooth_top_k_hinge, static_argnames="k")


@functools.partial(for_users, static_argnames="k")
def smooth_with_gradient(logits, labels, *, k, tau):
    def total(logits):
        values = losses.smooth_top_k_hinge(logits, labels, k=k, tau=tau)
        return values.sum(), values

    gradient, values = jax.grad(total, has_aux=True)(logits)
    return values, gradient


def relative_error(ours, expected):
    ours, expected = np.asarray(ours, np.float64), np.asarray(expected)
    return (np.abs(ours - expected) / np.maximum(1.0, np.abs(expected))).max()


@pytest.mark.parametrize(
    ("loss", "k", "expected"),
    [
        (losses.top_k_error, 1, [0, 1, 1, 1]),
        (losses.top_k_error, 2, [0, 0, 1, 1]),
        (losses.top_k_error, 4, [0, 0, 0, 0]),
        (losses.top_k_hinge, 1, [0.5, 1.5, 3.0, 4.0]),
        (losses.top_k_hinge, 3, [0.0, 0.0, 0.0, 2.0]),
        (losses.convex_top_k_hinge, 1, [0.5, 1.5, 3.0, 4.0]),
        (losses.convex_top_k_hinge, 2, [0.25, 0.75, 2.75, 3.75]),
        (losses.convex_top_k_hinge, 4, [-1.375 + 0.375, 0, 1.375, 2.375]),
        (losses.calibrated_top_k_hinge, 1, [0.5, 1.0, 2.5, 3.5]),
        (losses.calibrated_top_k_hinge, 3, [0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_worked_values(loss, k, expected):
    logits = jnp.tile(jnp.array([3.0, 2.5, 1.0, 0.0]), (4, 1))
    expected = np.maximum(expected, 0.0)
    np.testing.assert_array_equal(loss(logits, jnp.arange(4), k=k), expected)


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


def test_tie_with_the_k_th_score_is_no_error():
    logits = jnp.array([1.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(losses.top_k_error(logits, jnp.array(2), k=1), 0.0)


def test_hinges_bound_the_error(rng):
    logits = jnp.asarray(rng.normal(size=(200, 6)), jnp.float32)
    labels = jnp.asarray(rng.integers(6, size=200), jnp.int32)
    compared = (
        losses.top_k_error,
        losses.top_k_hinge,
        losses.calibrated_top_k_hinge,
        losses.convex_top_k_hinge,
    )

    @functools.partial(jax.jit, static_argnames="k")
    def values(k):
        return [loss(logits, labels, k=k) for loss in compared]

    for k in (1, 3, 5):
        error, hinge, calibrated, convex = values(k)
        assert (calibrated >= error).all()
        assert (hinge >= error).all()
        # Two means of the same numbers, rounded differently.
        assert (convex >= hinge - 1e-6).all()


@pytest.mark.parametrize(("num_classes", "k"), [(2, 1), *((6, k) for k in range(1, 6))])
def test_smooth_hinge_by_subsets(rng, num_classes, k):
    logits = 2 * rng.normal(size=(4, num_classes)).astype(np.float32)
    labels = rng.integers(num_classes, size=4)
    for tau in (0.125, 1.0, 8.0):
        expected = reference.smooth_top_k_hinge_by_subsets(logits, labels, k=k, tau=tau)
        assert relative_error(smooth(logits, labels, k=k, tau=tau), expected) < ROUNDING


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
            values, gradient = smooth_with_gradient(logits, labels, k=k, tau=tau)
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
    values, gradient = smooth_with_gradient(logits, labels, k=k, tau=tau)
    assert relative_error(values, expected) < 4 * ROUNDING
    gradient = np.asarray(gradient, np.float64)
    # The derivatives of log sigma_K - log sigma_{K-1} are nonnegative and add up to 1.
    assert gradient[0, 7] < 0
    assert (np.delete(gradient, 7) >= 0).all()
    np.testing.assert_allclose(gradient.sum(), 0.0, atol=1e-5 / k)


@pytest.mark.parametrize("k", [1, 3])
def test_smooth_hinge_tends_to_its_hard_limit(rng, k):
    logits = rng.normal(size=(8, 6)).astype(np.float32)
    labels = rng.integers(6, size=8)
    others = np.stack([np.delete(row, label) for row, label in zip(logits, labels, strict=True)])
    kth = np.sort(others, axis=-1)[:, -k]
    limit = np.maximum(0.0, 1.0 + (kth - logits[np.arange(8), labels]) / k)
    for tau in (1e-1, 1e-2, 1e-3):
        # The log-sums exceed their maxima by at most tau log(number of sets), 10 for K = 3.
        gap = np.asarray(smooth(logits, labels, k=k, tau=np.float32(tau))) - limit
        assert np.abs(gap).max() < tau * np.log(2 * 20) + ROUNDING


def test_smooth_hinge_at_rank_and_temperature_1_is_cross_entropy_with_a_margin_of_1(rng):
    logits = jnp.asarray(3 * rng.normal(size=(8, 6)), jnp.float32)
    labels = jnp.asarray(rng.integers(6, size=8), jnp.int32)
    margin = logits - jax.nn.one_hot(labels, 6)
    expected = jax.jit(losses.cross_entropy)(margin, labels)
    assert relative_error(smooth(logits, labels, k=1, tau=1.0), expected) < ROUNDING
