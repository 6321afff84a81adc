"""Rows of the same name in tests/parts that take long."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.compilation import for_users
from tests.parts.library.operators.test_symmetric import EPS, log_sigmas, value_and_slopes
from topk_jax import operators


@functools.partial(for_users, static_argnums=1)
def gradient_of_highest(log_values, k):
    return jax.grad(lambda x: operators.log_symmetric_polynomials(x, k)[k])(log_values)


@pytest.mark.parametrize("size", [16_384, 32_768, 40_001])
def test_thousands_of_products_of_a_few_coefficients(rng, size):
    """Levels of 8,000 nodes and more with two and three coefficients, as XLA once got wrong."""
    log_values = jnp.asarray(rng.normal(size=size), jnp.float32)
    expected = reference.log_symmetric_polynomials(log_values, 2)
    # As in `test_sizes_and_scales`.
    tolerance = 2 * EPS * np.log2(size) * np.maximum(1, np.abs(expected))
    assert (np.abs(log_sigmas(log_values, 2) - expected) <= tolerance).all()
    # Identity: the classes of a pair are l and another one, so that sigma_1 is the sum of all.
    values = np.exp(np.asarray(log_values, np.float64))
    pairs = values * (values.sum() - values) / math.exp(expected[2])
    # Softmax weights at each level, right to some eps.
    np.testing.assert_allclose(gradient_of_highest(log_values, 2), pairs, rtol=100 * EPS)


def test_more_factors_than_a_product_of_floats_holds(rng):
    """Sets of 1,200 from 3,000 equal classes: their number overflows, and 2^-3000 underflows."""
    k, size = 1200, 3000
    values, slopes = value_and_slopes(jnp.zeros((1, size)), num_factors=size, k=k)
    # The ratio of neighbouring binomials. Twelve levels of sums of up to 1,200 positive terms.
    assert abs(values[0] - np.log((size - k + 1) / k)) < 100 * EPS
    np.testing.assert_allclose(slopes, 1 / size, rtol=100 * EPS)
