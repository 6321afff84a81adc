"""What the expected k-th largest score rests on: bounds and polynomials of counts."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom, norm

from topk_jax.operators import _binning, _poisson_binomial

EPS = float(np.finfo(np.float32).eps)


def assert_close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("k", [1, 2, 6, 40, 101])
def test_bounds_hold(k):
    """What is left out of the interval, clipped and dropped is as improbable as documented."""
    for log_tail in (-8.0, -24.0):
        # Probabilities near one are known to 1e-16: to 1e-5 of e^-24 = 4e-11 is left.
        limit = math.exp(log_tail) * (1 + 1e-4)
        for size in (k, k + 1, 3 * k, 1000):
            above = _poisson_binomial.surely_above(k, size, log_tail)
            assert binom.cdf(k - 1, size, norm.cdf(above)) <= limit
            below = _poisson_binomial.surely_below(k, size, log_tail)
            assert binom.sf(k - 1, size, norm.sf(below)) <= limit
            # Not by wasting the interval: Chernoff's bound is good to some tenths.
            assert binom.cdf(k - 1, size, norm.cdf(above - 0.5)) > limit
            assert binom.sf(k - 1, size, norm.sf(below - 0.5)) > limit
        mean = _poisson_binomial.sure_mean(k, log_tail)
        for size in (math.ceil(mean), 10_000_000):
            assert binom.cdf(k - 1, size, mean / size) <= limit
    odds = _poisson_binomial.highest_odds(k)
    likely = _poisson_binomial.num_likely(k)
    assert binom.cdf(k - 1, likely, odds / (1 + odds)) <= _poisson_binomial.NEGLIGIBLE
    lowest = _binning.grid(k, 1000)[1]
    assert 1000 * k * norm.cdf(lowest / math.sqrt(2)) <= _poisson_binomial.NEGLIGIBLE


@pytest.mark.parametrize("k", [1, 2, 6, 101])
def test_polynomials_of_unlikely_events(rng, k):
    """Power sums against the product of all, in float32."""
    size = 40 * k
    probabilities = np.sort(rng.random(size) * min(0.1, 1.5 * k / size))
    odds = probabilities / (1 - probabilities)
    power_sums = np.stack([(odds**m).sum() for m in range(1, k)] or [np.zeros(0)]).reshape(k - 1)
    actual = _poisson_binomial.polynomial_of_power_sums(
        jnp.float32(np.log1p(-probabilities).sum()), jnp.asarray(power_sums, jnp.float32)
    )
    counts = np.eye(1, k)[0]
    for probability in probabilities:
        counts = (1 - probability) * counts + probability * np.append(0, counts[:-1])
    # Some roundings at each degree.
    assert_close(actual, counts, 4 * k * EPS)
