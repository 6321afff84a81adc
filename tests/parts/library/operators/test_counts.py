"""What the expected k-th largest score rests on: chances of counts, against products in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from topk_jax.operators import _contour, _poisson_binomial, _quadrature

EPS = float(np.finfo(np.float32).eps)


def assert_close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def counts(probabilities, k):
    """P(N = j) for j = 0 .. k - 1, by multiplication of all events."""
    polynomial = np.eye(1, k)[0]
    for probability in probabilities:
        polynomial = (1 - probability) * polynomial + probability * np.append(0, polynomial[:-1])
    return polynomial


@pytest.mark.parametrize("k", [1, 6, 101])
def test_polynomials_of_unlikely_events(rng, k):
    """Power sums against the product of all, in float32."""
    size = 40 * k
    probabilities = np.sort(rng.random(size) * min(0.1, 1.5 * k / size))
    odds = probabilities / (1 - probabilities)
    power_sums = np.stack([(odds**m).sum() for m in range(1, k)] or [np.zeros(0)]).reshape(k - 1)
    actual = _poisson_binomial.polynomial_of_power_sums(
        jnp.float32(np.log1p(-probabilities).sum()), jnp.asarray(power_sums, jnp.float32)
    )
    # Some roundings at each degree.
    assert_close(actual, counts(probabilities, k), 4 * k * EPS)


def events(logits):
    both = (jnp.float32(expit(sign * logits))[:, None, None] for sign in (1, -1))
    return _contour.Events(*both)


def test_a_sum_over_a_circle_leaves_out_each_event(rng):
    size, k, ranks = 48, 20, np.arange(48)
    certain = np.where(ranks < k - 1, 30.0, -30.0)
    logits = [
        3 * rng.normal(size=size),
        np.zeros(size),
        # All but one or none are certain.
        np.where(ranks == k - 1, 0.3, certain),
        certain,
        # Far from rank k: the probability is small, but not its error.
        np.full(size, 2.0),
    ]
    # The last ones are 20 unlikely events each, which decide the k-th.
    none, unlikely = (np.full(16, -60.0), 0), (np.full(16, -4.0), 20)
    leave_one_out = jax.jit(functools.partial(_contour.leave_one_out, k))
    for row, (repeated, times) in [(row, none) for row in logits] + [(certain, unlikely)]:
        single = -np.sort(-row)
        found, _ = leave_one_out(
            events(single), _contour.Repeated(events(repeated), jnp.full((16, 1, 1), float(times)))
        )
        chances = expit(np.concatenate([single, np.repeat(repeated, times)]))
        expected = [counts(np.delete(chances, index), k)[-1] for index in range(size)]
        # The logarithms of 48 factors add up to at most some 100.
        assert_close(found[:, 0, 0], expected, 150 * EPS * max(expected) + 1e-30)


def test_tails_and_densities_of_the_normal_distribution():
    gaps = np.linspace(-13, 12, 8001).astype(np.float32)
    exact = gaps.astype(np.float64)
    above, density = jax.jit(_quadrature.normal)(gaps)
    # The square in the exponent rounds twice; ten products and sums, and an exponential.
    rounding = (exact**2 + 6) * EPS
    assert (np.abs(above - norm.sf(exact)) <= rounding * norm.sf(exact)).all()
    assert (np.abs(density - norm.pdf(exact)) <= rounding * norm.pdf(exact)).all()
    slopes = jax.vmap(jax.grad(lambda gap: _quadrature.normal(gap)[0]))(gaps)
    np.testing.assert_allclose(slopes, -density, rtol=2 * rounding.max())
