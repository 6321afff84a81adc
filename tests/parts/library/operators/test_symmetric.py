"""The log symmetric polynomials: identities, extreme sizes and scales, masks."""

import functools
import math

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.compilation import for_users
from topk_jax import operators

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
