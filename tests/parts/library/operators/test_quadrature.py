"""The normal distribution that the integrals over the noise need."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax.operators import _quadrature

EPS = np.finfo(np.float32).eps


@pytest.mark.parametrize("ends", [(-13, 0), (0, 1), (1, 4), (4, 12)])
def test_tails_and_densities_of_the_normal_distribution(ends):
    gaps = np.linspace(*ends, 2001).astype(np.float32)
    exact = gaps.astype(np.float64)
    tails = np.array([0.5 * math.erfc(gap * math.sqrt(0.5)) for gap in exact])
    densities = np.exp(-0.5 * exact**2) / math.sqrt(2 * math.pi)
    above, density = jax.jit(_quadrature.normal)(gaps)
    # The square in the exponent rounds twice; ten products and sums, and an exponential.
    rounding = (exact**2 + 6) * EPS
    assert (np.abs(np.asarray(above) - tails) <= rounding * tails).all()
    assert (np.abs(np.asarray(density) - densities) <= rounding * densities).all()
    slopes = jax.vmap(jax.grad(lambda gap: _quadrature.normal(gap)[0]))(gaps)
    np.testing.assert_allclose(slopes, -density, rtol=2 * rounding.max())


def test_far_gaps_are_certain():
    far = jnp.array([-_quadrature.FAR, _quadrature.FAR])
    np.testing.assert_array_equal(_quadrature.normal(far)[0], [1, 0])
