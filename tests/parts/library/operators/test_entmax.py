"""Entmax at its ends and between, its derivative in alpha, and what is exact about it."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.compilation import for_users
from topk_jax import operators

EPS = float(np.finfo(np.float32).eps)
SIZE = 8

entmax = for_users(functools.partial(operators.entmax, axis=-1))
slope_in_alpha = for_users(
    jax.jacfwd(lambda scores, alpha: operators.entmax(scores, alpha=alpha), 1)
)
scores_of_any_scale = st.builds(
    lambda row, scale, offset: np.float32(np.float32(row) * np.float32(scale) + np.float32(offset)),
    st.lists(st.integers(-40, 40).map(lambda whole: whole / 8), min_size=SIZE, max_size=SIZE),
    st.sampled_from([1e-6, 0.03, 1.0, 7.0, 1e4]),
    st.sampled_from([0.0, 1.0, 300.0, -1e4]),
)
alphas = st.sampled_from([1.0, 1.015625, 1.25, 1.5, 1.875, 2.0])
properties = hypothesis.settings(max_examples=200, deadline=None, derandomize=True, database=None)


@properties
@hypothesis.given(scores_of_any_scale, alphas)
def test_probabilities_are_the_reference(scores, alpha):
    probabilities = np.asarray(entmax(scores, alpha=alpha))
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(), 1, rtol=4 * EPS)
    # The reference in float64 is exact for scores up to 1e4. Powers and shares: some eps of 1.
    expected = reference.entmax(scores, alpha=alpha)
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=8 * EPS)
    order = np.argsort(scores, kind="stable")
    assert (np.diff(probabilities[order]) >= 0).all()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_ends_are_the_softmax_and_the_sparsemax(rng, scale):
    scores = jnp.asarray(scale * rng.normal(size=(4, 1081)), jnp.float32)
    for alpha, expected in (
        (1.0, jax.nn.softmax(scores)),
        (2.0, operators.sparse_top(scores, 1)),
    ):
        probabilities = entmax(scores, alpha=alpha)
        np.testing.assert_allclose(probabilities, expected, rtol=0, atol=4 * EPS)
    # An alpha of 1 plus its own rounding error moves a probability by half that, log^2 times.
    near = entmax(scores, alpha=np.float32(1 + EPS))
    np.testing.assert_allclose(near, jax.nn.softmax(scores), rtol=0, atol=8 * EPS)


def test_digits_do_not_depend_on_the_number_of_classes(rng):
    for alpha in (1.0, 1.25, 1.5, 2.0):
        for spread, first in ((0.0, 0.0), (0.0, 0.5), (1e-5, 0.5), (1.0, 0.0)):
            scores = (1e4 + spread * rng.normal(size=100_000)).astype(np.float32)
            scores[0] += np.float32(first)
            expected = reference.entmax(scores, alpha=alpha)
            probabilities = entmax(scores, alpha=alpha)
            # Relative to the largest: a sum of 1e5 numbers is rounded in 17 levels.
            np.testing.assert_allclose(
                probabilities, expected, rtol=0, atol=20 * EPS * expected.max()
            )


def test_sum_is_1_where_many_classes_are_barely_above_the_threshold(rng):
    """Each of these is rounded by a thousandth of itself, and the search has to know how."""
    scores = (1e-5 * rng.normal(size=100_000)).astype(np.float32)
    for alpha in (1.5, 2.0):
        scores[0] = 0.4995 / (alpha - 1)
        probabilities = np.asarray(entmax(scores, alpha=alpha), np.float64)
        np.testing.assert_allclose(probabilities.sum(), 1, rtol=8 * EPS)


def test_slow_case_of_newtons_method():
    """Scores that leave the support one after the other, as far apart as steps can be."""
    scores = -np.cumsum(2.0 ** -np.arange(64)[::-1]).astype(np.float32)
    for alpha in (1.015625, 1.5, 2.0):
        expected = reference.entmax(scores, alpha=alpha)
        np.testing.assert_allclose(entmax(scores, alpha=alpha), expected, rtol=0, atol=8 * EPS)


def test_slope_in_alpha(rng):
    with jax.enable_x64(True):
        scores = jnp.asarray(rng.normal(size=(5, 6)))
        step = 1e-6
        for alpha in (1.0 + 2 * step, 1.001, 1.3, 1.5, 1.9, 2.0 - 2 * step):
            above, below = (entmax(scores, alpha=alpha + sign * step) for sign in (1, -1))
            slope = slope_in_alpha(scores, alpha)
            # Third derivatives of order 100, and 1e-15 over the step.
            np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=0, atol=1e-8)
        # At alpha = 1: p / 2 times the mean of log(p)^2 less log(p)^2 (Correia et al.).
        softmax = jax.nn.softmax(scores)
        squares = jnp.log(softmax) ** 2
        mean = (softmax * squares).sum(axis=-1, keepdims=True)
        expected = softmax / 2 * (mean - squares)
        np.testing.assert_allclose(slope_in_alpha(scores, 1.0), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_slopes_are_finite_where_classes_are_masked(alpha):
    scores = jnp.array([[1.0, -jnp.inf, 0.5], [1e4, -1e4, -jnp.inf], [-jnp.inf] * 3])
    slope = slope_in_alpha(scores, alpha)
    np.testing.assert_allclose(slope.sum(axis=-1), 0, atol=4 * EPS)
    np.testing.assert_array_equal(slope[0, 1], 0)
    np.testing.assert_array_equal(slope[1, 2], 0)
