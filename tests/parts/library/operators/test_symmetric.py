"""The log symmetric polynomials, and the ratio of two: sizes and scales, masks, shapes of scores.

Sums with signs, underflow or a tilt could go wrong in the ratio.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.compilation import for_users
from tests.rows import rows
from topk_jax import operators
from topk_jax.operators._symmetric_ratio import log_ratio_of_sigmas

EPS = float(np.finfo(np.float32).eps)


@functools.partial(for_users, static_argnums=1)
def log_sigmas(log_values, k):
    return operators.log_symmetric_polynomials(log_values, k)


def test_polynomials_are_sums_over_subsets(rng):
    log_values = rng.normal(size=7) * 3
    expected = reference.log_symmetric_polynomials_by_subsets(log_values, 7)
    with jax.enable_x64(True):
        # Three levels of the tree, on numbers of order 10.
        np.testing.assert_allclose(log_sigmas(log_values, 7), expected, rtol=1e-14, atol=1e-14)


def test_equal_values_give_binomials():
    expected = [math.log(math.comb(64, degree)) for degree in range(65)]
    # Six levels of the tree round numbers up to 43.
    np.testing.assert_allclose(log_sigmas(jnp.zeros(64), 64), expected, rtol=0, atol=6 * 43 * EPS)


@pytest.mark.parametrize(
    ("size", "k", "scale"),
    [(1000, 40, 1.0), (1000, 40, 1e7), (1000, 999, 1.0), (100_000, 5, 1.0), (100_000, 5, 1e7)],
)
def test_sizes_and_scales(rng, size, k, scale):
    log_values = jnp.asarray(rng.normal(size=size) * scale, jnp.float32)
    expected = reference.log_symmetric_polynomials(log_values, k)
    # Each level of the tree rounds once or twice, relative to the magnitude of the logarithm or 1.
    tolerance = 2 * EPS * np.log2(size) * np.maximum(1, np.abs(expected))
    assert (np.abs(log_sigmas(log_values, k) - expected) <= tolerance).all()


def test_gradient_is_the_probability_of_the_class(rng):
    log_values = rng.normal(size=40) * 2
    expected = reference.log_symmetric_polynomials_gradient(log_values, 6)
    with jax.enable_x64(True):
        actual = jax.jit(jax.jacrev(lambda x: operators.log_symmetric_polynomials(x, 6)))(
            log_values
        )
    # Logarithms up to 30 are exponentiated: 1e-16 * 30 * six levels.
    np.testing.assert_allclose(actual, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("masked", [[0], [6], [1, 2, 5], [0, 1, 2, 3, 4, 5, 6]])
def test_masked_classes_are_left_out(rng, masked):
    log_values = jnp.asarray(rng.normal(size=7), jnp.float32).at[np.array(masked)].set(-jnp.inf)
    expected = reference.log_symmetric_polynomials(log_values, 4)
    actual = log_sigmas(log_values, 4)
    # Three levels, numbers of order 10; -inf has to be -inf.
    np.testing.assert_allclose(actual, expected, rtol=0, atol=30 * EPS)
    jacobian = jax.jit(jax.jacrev(lambda x: operators.log_symmetric_polynomials(x, 4)))(log_values)
    # As for the values, with weights of at most 1.
    np.testing.assert_allclose(
        jacobian, reference.log_symmetric_polynomials_gradient(log_values, 4), rtol=0, atol=16 * EPS
    )


def test_finite_floors_stay_finite():
    """Those who mask with a large negative number find it in the result, not an infinity."""
    actual = log_sigmas(jnp.array([1.0, -1e30, -1e33]), 3)
    np.testing.assert_allclose(actual, [0.0, 1.0, -1e30, -2e30], rtol=2 * EPS)


def test_nan_spoils_the_polynomial_of_degree_zero_too():
    for log_values, k in [([jnp.nan], 1), ([1.0, jnp.nan], 0), ([jnp.nan, 1.0, 2.0], 3)]:
        assert np.isnan(log_sigmas(jnp.array(log_values), k)).all()


def rows_of_log_values(rng, size, k):
    """Rows in descending order, with the k-th at 0."""
    ranks = np.arange(size)
    rows = [
        np.zeros(size),
        3 * rng.normal(size=size),
        1e4 * rng.normal(size=size),
        -0.3 * ranks,
        -2.0 * ranks,
        -1.5 * np.log1p(ranks),
        np.where(ranks < k, 0.0, -1e-3),
        np.where(ranks < 2 * k, 0.0, -3.0),
        np.where(ranks < k, 0.0, -1e30),
        np.where(ranks < k - 1, 30.0, -1e-2 * ranks),
        np.where(ranks < max(k, size // 2), 0.0, -np.inf),
    ]
    rows = -np.sort(-np.stack(rows), axis=-1)
    return (rows - rows[:, k - 1 : k]).astype(np.float32)


@functools.partial(for_users, static_argnames=("num_factors", "k"))
def value_and_slopes(log_values, *, num_factors, k):
    def total(log_values):
        factors, rest = log_values[:, :num_factors], log_values[:, num_factors:]
        values = log_ratio_of_sigmas(factors, rest if rest.shape[-1] else None, k)
        return values.sum(), values

    slopes, values = jax.grad(total, has_aux=True)(log_values)
    return values, slopes


@pytest.mark.parametrize(
    ("size", "num_factors", "k"),
    [
        (40, 40, 1),
        (40, 2, 1),
        (97, 97, 5),
        (97, 12, 5),
        (120, 32, 8),
        (40, 40, 17),
        (40, 40, 34),
        (40, 40, 39),
        *rows([], [(90, 90, 40), (2000, 200, 20)]),
    ],
)
def test_value_and_slopes_of_the_ratio(rng, size, num_factors, k):
    log_values = rows_of_log_values(rng, size, k)
    values, slopes = value_and_slopes(log_values, num_factors=num_factors, k=k)
    for row, value, slope in zip(log_values.astype(np.float64), values, slopes, strict=True):
        logs = reference.log_symmetric_polynomials(row, k)
        # Relative to the ratio, which is at most the number of classes: sums of
        # L terms, k products of them, and e^2 for the signs of the sums over the rest.
        assert abs(value - (logs[k] - logs[k - 1])) < 16 * EPS
        gradient = reference.log_symmetric_polynomials_gradient(row, k)
        # Slopes are at most 1; two slopes near 1 differ by a few roundings of 1.
        np.testing.assert_allclose(slope, gradient[k] - gradient[k - 1], rtol=0, atol=4 * EPS)


@pytest.mark.parametrize("num_factors", [20, 8])
def test_second_derivatives_of_the_ratio(rng, num_factors):
    with jax.enable_x64(True):
        log_values = jnp.sort(jnp.asarray(rng.normal(size=20)), descending=True)
        log_values -= log_values[2]

        def ratio(log_values):
            factors, rest = log_values[:num_factors], log_values[num_factors:]
            return log_ratio_of_sigmas(factors, rest if rest.size else None, 3)

        hessian = jax.jit(jax.hessian(ratio))(log_values)
        gradient = jax.jit(jax.grad(ratio))
        differences = [
            (gradient(log_values + step) - gradient(log_values - step)) / 2e-5
            for step in 1e-5 * np.eye(20)
        ]
    # The error of central differences is of the order of the square of the step, 1e-10.
    np.testing.assert_allclose(hessian, differences, rtol=0, atol=1e-9)
