"""Soft memberships in the k largest scores: exactness at any scale, real k, ties and masks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.compilation import for_users
from tests.rows import rows
from topk_jax import operators

EPS = float(np.finfo(np.float32).eps)
# The parameter of each operator, relative to one that has units of the scores.
PARAMETERS = {"lapsum_top_k": ("alpha", 1), "sinkhorn_top_k": ("epsilon", 2)}
SIZE = 8
SCALES = [1e-6, 1e-3, 0.1, 1.0, 30.0, 1e3, 1e6]

that_sum_to_k = pytest.mark.parametrize("name", PARAMETERS)


def draw(rng):
    """Rows that are spread, close, far apart, tied, in clusters or far from zero."""
    spread = rng.normal(size=(6, SIZE))
    tied = rng.integers(0, 3, size=(6, SIZE))
    # Each cluster is as large as all above it, and log 2 below them: many steps for the search.
    clusters = -np.log(2.0) * np.floor(np.log2(np.arange(1, SIZE + 1)))
    rows = [
        spread,
        1e-3 * spread,
        1e4 * spread,
        tied,
        1e4 + tied,
        1e4 + spread,
        [clusters, -clusters, 40 * clusters, np.zeros(SIZE)],
    ]
    return np.concatenate(rows).astype(np.float32)


@functools.partial(for_users, static_argnums=(0, 2))
def memberships(name, scores, k, scale):
    parameter, units = PARAMETERS[name]
    return getattr(operators, name)(scores, k, **{parameter: units * scale})


def expected_memberships(name, scores, k, scale):
    parameter, units = PARAMETERS[name]
    return getattr(reference, name)(scores, k, **{parameter: units * float(np.float32(scale))})


@that_sum_to_k
@pytest.mark.parametrize("k", [1, 3, 7])
def test_memberships_at_any_scale(name, k, rng):
    scores = draw(rng)
    order = np.argsort(scores, axis=-1, kind="stable")
    for scale in SCALES:
        actual = np.asarray(memberships(name, scores, k, scale))
        assert (actual >= 0).all()
        assert (actual <= 1).all()
        # The sum of eight memberships, each right to an eps or two.
        np.testing.assert_allclose(actual.sum(axis=-1), k, rtol=0, atol=16 * EPS)
        expected = expected_memberships(name, scores, k, scale)
        # Each membership is an exponential of an exact difference of scores, over a rounded sum.
        np.testing.assert_allclose(actual, expected, rtol=0, atol=4 * EPS)
        in_order = np.take_along_axis(actual, order, axis=-1)
        assert (np.diff(in_order, axis=-1) >= 0).all()


@pytest.mark.parametrize("k", [1, 5000])
def test_lapsum_at_10000_classes(rng, k):
    scores = np.float32(rng.normal(size=(3, 10_000)))
    scores[1] = scores[1].round(1)
    scores[2] = 0.3
    for scale in (1e-4, 0.1, 10.0):
        actual = np.asarray(memberships("lapsum_top_k", scores, k, scale))
        # A sum of 10,000 tails in float32: a few eps of the share of each class.
        expected = expected_memberships("lapsum_top_k", scores, k, scale)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=8 * EPS)
        np.testing.assert_allclose(actual.sum(axis=-1, dtype=np.float64), k, rtol=8 * EPS)


@that_sum_to_k
def test_too_few_unmasked_classes_share_the_rest(name):
    row = np.full(SIZE, -np.inf, np.float32)
    row[[2, 5]] = 0.5, -3.0
    for scale in SCALES:
        expected = np.full(SIZE, 1 / 6)
        expected[[2, 5]] = 1
        np.testing.assert_allclose(memberships(name, row, 3, scale), expected, rtol=4 * EPS)
        # Both are certain if there are k classes.
        expected = np.zeros(SIZE)
        expected[[2, 5]] = 1
        np.testing.assert_array_equal(memberships(name, row, 2, scale), expected)


# One class or all of them in part, whole numbers, and nearly one.
REAL_K = [1e-3, 0.4, 1.0, 2.5, 3.0, 2.999999, 7.7, 8.0]


@functools.partial(for_users, static_argnums=2)
def lapsum_and_slope(scores, k, alpha):
    def of_row(row):
        function = functools.partial(operators.lapsum_top_k, row, alpha=alpha)
        return jax.jvp(function, (k,), (jnp.ones_like(k),))

    return jax.vmap(of_row)(scores)


def test_lapsum_of_a_real_k(rng):
    """Memberships that sum to it, and their slopes, the densities' shares, at any scale."""
    scores = draw(rng)
    for scale in rows([1e-3, 1.0], [0.1, 1e3]):
        for k in map(float, np.float32(REAL_K)):
            actual, slopes = map(np.asarray, lapsum_and_slope(scores, np.float32(k), scale))
            expected = expected_memberships("lapsum_top_k", scores, k, scale)
            np.testing.assert_allclose(actual, expected, rtol=0, atol=4 * EPS)
            densities = np.minimum(expected, 1 - expected)
            # Elsewhere the memberships are whole numbers, and so is k: a kink.
            smooth = densities.sum(axis=-1) > 1e-3
            shares = densities / np.maximum(densities.sum(axis=-1, keepdims=True), 1e-300)
            # A density is right to 4 eps, and so is their sum, of which it is a part.
            bound = 8 * EPS * SIZE / densities.sum(axis=-1)[smooth, None]
            assert (np.abs(slopes - shares)[smooth] <= bound).all()
            assert np.isfinite(slopes).all()


def test_lapsum_at_a_threshold_that_is_a_score():
    """Two scores tie at the kink of the density, at which the derivative of |x| is 0."""
    row = np.array([2.0, 0.0, 0.0, -2.0])
    jacobian = jax.jit(jax.jacrev(functools.partial(operators.lapsum_top_k, k=2, alpha=0.7)))
    expected = reference.lapsum_top_k_jacobian(row, 2, alpha=0.7)
    # A dozen roundings of numbers below 1.
    np.testing.assert_allclose(jacobian(np.float32(row)), expected, rtol=0, atol=8 * EPS)


def test_sinkhorns_iterations_converge_to_it(rng):
    row = rng.normal(size=SIZE).astype(np.float32)
    actual = memberships("sinkhorn_top_k", row, 3, 0.25)
    expected = reference.sinkhorn_top_k_by_iterations(row, 3, epsilon=0.5, num_iterations=2000)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=4 * EPS)


@pytest.mark.parametrize("name", [*PARAMETERS, "sigmoid_top_k"])
def test_slope_in_the_scale(name, rng):
    parameter = PARAMETERS.get(name, ("tau", 1))[0]
    with jax.enable_x64(True):
        row = jnp.asarray(rng.normal(size=SIZE))
        cotangent = rng.normal(size=SIZE)

        def total(scale):
            return getattr(operators, name)(row, 3, **{parameter: scale}) @ cotangent

        value_and_slope = jax.jit(jax.value_and_grad(total))
        step = 1e-5
        above, below = (value_and_slope(0.9 + change)[0] for change in (step, -step))
        # The square of the step times a third derivative of order 1, and 1e-15 over the step.
        np.testing.assert_allclose(
            value_and_slope(0.9)[1], (above - below) / (2 * step), rtol=0, atol=1e-8
        )


def sigmoid(scores, k, tau):
    return operators.sigmoid_top_k(jnp.asarray(scores, jnp.float32), k, tau=tau)


def test_sigmoid_keeps_the_middle_between_neighbouring_floats():
    step = 2.0**-10
    scores = np.float32([1e4, 1e4 + step, 1e4 + 2 * step, 0.0])
    # The sigmoids of 1.5, 0.5 and -0.5.
    expected = 1 / (1 + np.exp(-np.array([-0.5, 0.5, 1.5])))
    np.testing.assert_allclose(sigmoid(scores, 2, step)[:3], expected, rtol=2 * EPS)


def test_sigmoid_limits_and_masked_classes(rng):
    scores = rng.normal(size=(5, SIZE))
    largest = scores >= np.sort(scores, axis=-1)[:, -3:-2]
    np.testing.assert_array_equal(sigmoid(scores, 3, 1e-6), largest)
    np.testing.assert_allclose(sigmoid(scores, 3, 1e6), 0.5, rtol=1e-5)
    row = [0.5, -np.inf, -3.0, -np.inf]
    np.testing.assert_array_equal(sigmoid(row, 2, 0.7), [1, 0, 1, 0])
    np.testing.assert_array_equal(sigmoid(row, 3, 0.7), [1, 0.5, 1, 0.5])


def test_sigmoid_gives_half_the_threshold_to_each_of_two_ranks():
    row = np.array([1.0, 0.3, 0.3, 0.3, -1.0])
    for k in (1, 2, 3):
        jacobian = jax.jit(jax.jacrev(lambda scores, k=k: sigmoid(scores, k, 0.7)))
        expected = reference.sigmoid_top_k_jacobian(row, k, tau=0.7)
        # A few roundings of numbers below 1.
        np.testing.assert_allclose(jacobian(np.float32(row)), expected, rtol=0, atol=4 * EPS)
