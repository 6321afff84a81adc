"""Rows of the same name in tests/parts that take long."""

import jax.numpy as jnp
import numpy as np

from tests.parts.library.operators.test_symmetric import EPS, value_and_slopes


def test_more_factors_than_a_product_of_floats_holds(rng):
    """Sets of 1,200 from 3,000 equal classes: their number overflows, and 2^-3000 underflows."""
    k, size = 1200, 3000
    values, slopes = value_and_slopes(jnp.zeros((1, size)), num_factors=size, k=k)
    # The ratio of neighbouring binomials. Twelve levels of sums of up to 1,200 positive terms.
    assert abs(values[0] - np.log((size - k + 1) / k)) < 100 * EPS
    np.testing.assert_allclose(slopes, 1 / size, rtol=100 * EPS)
