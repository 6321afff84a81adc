"""The ratio of two symmetric polynomials: sizes, masks, shapes of scores.

Sums with signs, underflow or a tilt could go wrong.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.compilation import for_users
from tests.rows import rows
from topk_jax.operators._symmetric import log_ratio_of_sigmas

EPS = float(np.finfo(np.float32).eps)


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
