"""The log symmetric polynomials: identities, extreme sizes and scales, masks, memory."""

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


@functools.partial(for_users, static_argnums=1)
def gradient_of_highest(log_values, k):
    return jax.grad(lambda x: operators.log_symmetric_polynomials(x, k)[k])(log_values)


def test_polynomials_are_sums_over_subsets(rng):
    log_values = rng.normal(size=7) * 3
    expected = reference.log_symmetric_polynomials_by_subsets(log_values, 7)
    with jax.enable_x64(True):
        # Three levels of the tree, on numbers of order 10.
        np.testing.assert_allclose(log_sigmas(log_values, 7), expected, rtol=1e-14, atol=1e-14)


def test_newton_identities(rng):
    values = rng.uniform(0.5, 1.5, size=9)
    with jax.enable_x64(True):
        sigma = np.exp(log_sigmas(np.log(values), 9))
    power_sums = [np.sum(values**power) for power in range(10)]
    for degree in range(1, 10):
        terms = [
            (-1) ** (power - 1) * sigma[degree - power] * power_sums[power]
            for power in range(1, degree + 1)
        ]
        # Alternating terms: each is right to about 10 roundings.
        assert abs(sum(terms) - degree * sigma[degree]) < 1e-14 * np.abs(terms).sum()


def test_equal_values_give_binomials():
    expected = [math.log(math.comb(64, degree)) for degree in range(65)]
    # Six levels of the tree round numbers up to 43.
    np.testing.assert_allclose(log_sigmas(jnp.zeros(64), 64), expected, rtol=0, atol=6 * 43 * EPS)


def test_degree_zero_is_one(rng):
    np.testing.assert_array_equal(log_sigmas(jnp.asarray(rng.normal(size=(2, 5))), 0), 0)


def test_inverse_values_reverse_the_polynomials(rng):
    """Dividing by the product of all values turns the sets into their complements."""
    with jax.enable_x64(True):
        log_values = rng.normal(size=11) * 100
        reversed_sigmas = log_sigmas(-log_values, 11)[::-1] + log_values.sum()
        # Four levels, on numbers of order 1e3.
        np.testing.assert_allclose(log_sigmas(log_values, 11), reversed_sigmas, rtol=0, atol=1e-11)


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


@pytest.mark.parametrize("scale", [1.0, 1e7])
def test_gradient_at_100_000_classes(rng, scale):
    log_values = jnp.asarray(rng.normal(size=100_000) * scale, jnp.float32)
    gradient = np.asarray(gradient_of_highest(log_values, 5), np.float64)
    assert (gradient >= 0).all()
    # A probability that a class is among five: softmax weights at 17 levels, each right to some
    # eps whatever the scale.
    assert gradient.max() <= 1 + 100 * EPS
    assert abs(gradient.sum() - 5) < 100 * EPS


def _primitives(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from _primitives(inner)


def test_no_rows_are_shifted_by_a_reshape():
    """XLA on the CPU has compiled that to wrong values."""
    jaxpr = jax.make_jaxpr(lambda x: operators.log_symmetric_polynomials(x, 6))(jnp.zeros((3, 20)))
    assert "reshape" not in {*_primitives(jaxpr.jaxpr)}


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


def test_infinite_values_are_no_plausible_number():
    assert not np.isfinite(log_sigmas(jnp.array([0.0, jnp.inf, 1.0]), 2)[1:]).any()


def _largest_array(jaxpr):
    largest = 0
    for equation in jaxpr.eqns:
        largest = max([largest, *(math.prod(var.aval.shape) for var in equation.outvars)])
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            largest = max(largest, _largest_array(inner))
    return largest


@pytest.mark.parametrize("k", [2, 16, 100])
def test_memory_is_linear_in_classes_times_degree(k):
    size = 1024

    def both(log_values):
        return jax.value_and_grad(lambda x: operators.log_symmetric_polynomials(x, k)[k])(
            log_values
        )

    # A level of L / 2m products has (d + 1) (2 d + 2) terms each, d = min(m, k): at most
    # L (k + 1)^2 / k in all.
    assert _largest_array(jax.make_jaxpr(both)(jnp.zeros(size)).jaxpr) <= size * (k + 1) ** 2 / k
