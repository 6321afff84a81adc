"""Rows of the same name in tests/parts that take long."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.parts.library.operators.test_relaxed_ranks import (
    RELAXATIONS,
    SIZE,
    K,
    draw,
    every_relaxation,
    ranks_and_gradient,
    weights,
)
from topk_jax import operators


@every_relaxation
def test_small_temperatures_sort(name, rng):
    # Scores that are 1 apart; the tails of a Cauchy swap are tau / pi.
    scores = jnp.asarray(rng.permuted(np.tile(np.arange(5.0), (8, 1)), axis=1), jnp.float32)
    ranks, _ = ranks_and_gradient(name, K, scores, weights(), 1e-5)
    order = np.argsort(-np.asarray(scores), axis=-1)[:, :K]
    np.testing.assert_allclose(ranks, np.eye(SIZE)[order], rtol=0, atol=1e-4)


@every_relaxation
@pytest.mark.parametrize("size", [1, 2, 7])
def test_every_rank(name, rng, size):
    scores = draw(rng, (3, size))
    ranks, _ = ranks_and_gradient(name, size, scores, 1.0)
    # Sums of up to 7 numbers.
    np.testing.assert_allclose(ranks.sum(axis=-1), 1, rtol=0, atol=1e-6)
    if name != "soft_sort":
        np.testing.assert_allclose(ranks.sum(axis=-2), 1, rtol=0, atol=3e-6)
    expected = reference.relaxed_ranks(scores, size, **RELAXATIONS[name])
    np.testing.assert_allclose(ranks, expected, rtol=0, atol=2e-6)


@every_relaxation
def test_derivatives_by_finite_differences_in_float64(name, rng):
    with jax.enable_x64(True):
        row = rng.normal(size=SIZE)
        function = functools.partial(operators.relaxed_ranks, k=K, **RELAXATIONS[name])
        both = jax.jit(lambda row: (jax.jacfwd(function)(row), jax.jacrev(function)(row)))
        forward, backward = both(row)
        expected = reference.relaxed_ranks_jacobian(row, K, **RELAXATIONS[name])
        np.testing.assert_allclose(forward, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(backward, expected, rtol=0, atol=1e-12)
        # The square of the step times third derivatives of order 1 / tau^3.
        differences = reference.finite_difference_jacobian(
            lambda row: reference.relaxed_ranks(row, K, **RELAXATIONS[name]), row, 1e-5
        )
        np.testing.assert_allclose(expected, differences, rtol=0, atol=1e-8)
