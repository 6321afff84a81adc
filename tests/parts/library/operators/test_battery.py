"""What every deterministic operator goes through, and what every operator refuses.

The cases are in `cases/operators.py`.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.cases.operators import BATTERY as CASES
from tests.cases.operators import EPS
from tests.compilation import for_users
from tests.rows import rows

# What most tests share, so that each operator is compiled once for it.
SHAPE, K = (8, 5), 2
MANY = 1081
OTHERS = np.array([0, 2, 3, 4, 5, 6, 7])


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_case_dearly = pytest.mark.parametrize(
    "case",
    rows(
        [case for case in CASES if not case.collection],
        [case for case in CASES if case.collection],
    ),
    ids=lambda case: case.name,
)


def every_case_with(name, values):
    """Parametrises a test over the cases, and over those values with a k that the case allows."""
    every = [
        (case, value)
        for case in CASES
        for value in values
        if value[-1] + case.leaves_out <= value[0]
    ]
    chosen = rows(
        [one for one in every if not (one[0].collection and one[1][0] == MANY)],
        [one for one in every if one[0].collection and one[1][0] == MANY],
    )
    return pytest.mark.parametrize(
        ("case", *name),
        [
            pytest.param(case, *value, id="-".join(map(str, (case.name, *value))))
            for case, value in chosen
        ],
    )


def _value(case, k, scores, axis=-1):
    return case(scores, k, axis=axis)


value_of = for_users(_value, static_argnums=(0, 1), static_argnames="axis")
quick_value_of = jax.jit(_value, static_argnums=(0, 1), static_argnames="axis")


def _pullback(case, k, scores, cotangent):
    """The value, and the cotangent pulled back to the scores."""
    value, vjp = jax.vjp(lambda scores: case(scores, k), scores)
    return value, vjp(cotangent)[0]


pullback = for_users(_pullback, static_argnums=(0, 1))


@functools.partial(for_users, static_argnums=(0, 1))
def pushforward(case, k, scores, tangent):
    return jax.jvp(lambda scores: case(scores, k), (scores,), (tangent,))[1]


def draw(case, rng, k=K, shape=SHAPE):
    """Scores, and a cotangent of the values."""
    scores = jnp.asarray(rng.normal(size=shape), jnp.float32)
    cotangent = rng.normal(size=jax.eval_shape(lambda scores: case(scores, k), scores).shape)
    return scores, jnp.asarray(cotangent, jnp.float32)


def assert_close(case, actual, scores, k, axis=-1):
    expected = case.expected(scores, k, axis)
    chex.assert_equal_shape([actual, expected])
    chex.assert_type(actual, jnp.float32)
    error = np.abs(np.asarray(actual, np.float64) - expected)
    assert (error <= case.tolerance(expected, k, scores.shape[axis])).all()


@every_case_with(("size", "k"), [(1, 1), (2, 1), (7, 7), (MANY, 5)])
def test_value_is_the_reference(case, rng, size, k):
    scores = jnp.asarray(rng.normal(size=(3, size)), jnp.float32)
    # Sums over many classes as for users; edges of few, in a fifth of the time to compile.
    value = value_of if size > 7 else quick_value_of
    assert_close(case, value(case, k, scores), scores, k)


@every_case_dearly
@pytest.mark.parametrize("axis", [0, 1])
def test_any_axis_and_batch_shape(case, rng, axis):
    scores = jnp.asarray(rng.normal(size=(3, 4, 5)), jnp.float32)
    assert_close(case, quick_value_of(case, 2, scores, axis=axis), scores, 2, axis)


@every_case_with(["size", "k"], [(300, 40), (3000, 5), (3000, 40)])
def test_empty_batches_of_many_classes(case, size, k):
    """Methods for many classes, and for large k, which divide them into blocks."""
    gradient = jax.grad(lambda scores: _value(case, k, scores).sum())
    assert jax.eval_shape(gradient, jnp.zeros((0, size))).shape == (0, size)


@every_case_with(("size", "k"), [(5, 1), (5, K), (5, 5)])
def test_both_modes_give_the_jacobian(case, rng, size, k):
    scores, _ = draw(case, rng, k, (size,))
    expected = case.expected_jacobian(scores, k)
    for mode in (jax.jacfwd, jax.jacrev):
        jacobian = jax.jit(mode(lambda scores: case(scores, k)))(scores)
        # Shares and softmax weights of at most 1, made by at most three levels of the tree.
        np.testing.assert_allclose(jacobian, expected, rtol=0, atol=16 * EPS)


@every_case_dearly
def test_derivatives_by_finite_differences_in_float64(case, rng):
    with jax.enable_x64(True):
        row = rng.normal(size=5)
        function = jax.jit(lambda row: case(row, K))
        assert function(row).dtype == jnp.float64
        # The error of a central difference is of order step^2 = 1e-10 for the polynomials, whose
        # derivatives are at most of order 1, and 1e-16 / step = 1e-11 for all.
        differences = reference.finite_difference_jacobian(function, row, 1e-5)
        np.testing.assert_allclose(
            jax.jit(jax.jacrev(function))(row), differences, rtol=0, atol=1e-9
        )
        gradient = functools.partial(case.expected_jacobian, k=K)
        curvature = (
            reference.finite_difference_jacobian(gradient, row, 1e-5)
            if case.curved
            else np.zeros((*differences.shape, row.size))
        )
        for hessian in (jax.jacfwd(jax.jacrev(function)), jax.jacrev(jax.jacfwd(function))):
            np.testing.assert_allclose(jax.jit(hessian)(row), curvature, rtol=0, atol=1e-9)


@every_case_dearly
def test_half_precision_is_computed_in_float32(case, rng):
    # Both data types go the same way: each for half of the operators.
    dtype = (jnp.bfloat16, jnp.float16)[CASES.index(case) % 2]
    scores, cotangent = draw(case, rng)
    scores = scores.astype(dtype)
    value, gradient = pullback(case, K, scores, cotangent)
    assert_close(case, value, scores, K)
    chex.assert_type(gradient, dtype)
    _, exact = pullback(case, K, scores.astype(jnp.float32), cotangent)
    np.testing.assert_array_equal(gradient, exact.astype(dtype))


@every_case
def test_small_scores_and_ties(case, rng):
    scores, cotangent = draw(case, rng)
    scores = (scores.round(1) * 1e-6).at[0].set(1e-6)
    value, gradient = pullback(case, K, scores, cotangent)
    assert_close(case, value, scores, K)
    chex.assert_tree_all_finite(gradient)


@every_case
def test_without_jit_and_under_vmap(case, rng):
    scores, cotangent = draw(case, rng)
    expected = pullback(case, K, scores, cotangent)
    function = functools.partial(_pullback, case, K)
    for actual in (function(scores, cotangent), jax.jit(jax.vmap(function))(scores, cotangent)):
        # Fusion may order sums differently: a few roundings of numbers of order 1.
        chex.assert_trees_all_close(actual, expected, rtol=16 * EPS, atol=16 * EPS)


@every_case
# The order of floats by their bits has one of them above all numbers, the other one below.
@pytest.mark.parametrize(("position", "nan"), [(0, np.nan), (4, -np.nan), (2, np.inf)])
def test_nan_spoils_its_own_example_alone(case, rng, position, nan):
    clean, cotangent = draw(case, rng)
    scores = clean.at[1, position].set(nan)
    expected = (*pullback(case, K, clean, cotangent), pushforward(case, K, clean, clean))
    actual = (*pullback(case, K, scores, cotangent), pushforward(case, K, scores, clean))
    for one, other in zip(actual, expected, strict=True):
        assert np.isnan(one[1]).all()
        np.testing.assert_array_equal(one[OTHERS], other[OTHERS])
