"""The projection on the convex hull of the sets of k classes: properties, exactness, batched k."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import reference
from tests.compilation import for_users
from topk_jax import operators

EPS = float(np.finfo(np.float32).eps)
# One size, so that hypothesis never waits for a compilation; k is an array, so it does not either.
SIZE = 8

sparse_top = functools.partial(for_users, static_argnums=1)(operators.sparse_top)
project = for_users(operators.sparse_top)


@for_users
def pullback(scores, k, cotangent):
    """The projection, and the cotangent pulled back to the scores."""
    value, vjp = jax.vjp(lambda scores: operators.sparse_top(scores, k), scores)
    return value, vjp(cotangent)[0]


def vectors(elements):
    return st.lists(elements, min_size=SIZE, max_size=SIZE).map(np.float32)


# Wide and narrow spreads, ties and offsets: sums of a common number and some multiple of it.
scores_of_any_scale = st.builds(
    lambda row, scale, offset: np.float32(row * np.float32(scale) + np.float32(offset)),
    vectors(st.integers(-40, 40).map(lambda whole: whole / 8)),
    st.sampled_from([1e-6, 0.03, 1.0, 7.0, 1e4]),
    st.sampled_from([0.0, 1.0, -1.0, 300.0, -1e4]),
)
counts = st.integers(1, SIZE)
properties = hypothesis.settings(max_examples=200, deadline=None, derandomize=True, database=None)


def projection(scores, k):
    return np.asarray(project(scores, jnp.int32(k)))


@properties
@hypothesis.given(scores_of_any_scale, counts)
def test_projection_is_feasible_and_the_reference(scores, k):
    q = projection(scores, k)
    assert (q >= 0).all()
    assert (q <= 1).all()
    # Each coordinate is right to an eps or two, and the threshold to as much.
    np.testing.assert_allclose(q.astype(np.float64).sum(), k, rtol=0, atol=2 * SIZE * EPS)
    # The reference in float64 is exact: scores up to 1e4 lose 1e-12 in it.
    np.testing.assert_allclose(q, reference.sparse_top(scores, k), rtol=0, atol=4 * EPS)


@properties
@hypothesis.given(scores_of_any_scale, counts)
def test_projection_is_idempotent(scores, k):
    q = projection(scores, k)
    # The sum of q misses k by what the test above allows, which is shared out.
    np.testing.assert_allclose(projection(q, k), q, rtol=0, atol=4 * EPS)


@properties
@hypothesis.given(scores_of_any_scale, counts, vectors(st.floats(0, 1, width=32)))
def test_no_feasible_point_is_nearer(scores, k, point):
    # Any point of the box becomes feasible by moving towards the corner or the origin.
    point = point.astype(np.float64)
    total = point.sum()
    if total <= k:
        feasible = 1 - (1 - point) * ((SIZE - k) / (SIZE - total) if total < SIZE else 1)
    else:
        feasible = point * k / total
    np.testing.assert_allclose(feasible.sum(), k, rtol=1e-12)
    scores = scores.astype(np.float64)
    q = projection(np.float32(scores), k).astype(np.float64)
    # The obtuse angle criterion. What all residuals have in common counts for nothing between
    # feasible points; an error of 4 eps in each q is one in the residual and one in the difference.
    residual = scores - q
    residual -= np.median(residual)
    slack = 4 * EPS * (np.abs(residual).sum() + np.abs(feasible - q).sum())
    assert residual @ (feasible - q) <= slack


@properties
@hypothesis.given(scores_of_any_scale, counts)
def test_projection_keeps_the_order(scores, k):
    q = projection(scores, k)
    order = np.argsort(scores, kind="stable")
    # Exactly: each step of the computation is monotone in the score.
    assert (np.diff(q[order]) >= 0).all()
    assert (
        q[order][1:][np.diff(scores[order]) == 0] == q[order][:-1][np.diff(scores[order]) == 0]
    ).all()


@properties
@hypothesis.given(
    vectors(st.integers(-400, 400).map(lambda whole: whole / 64)),
    st.integers(-10_000, 10_000),
    counts,
)
def test_a_shift_changes_nothing(scores, shift, k):
    # Multiples of 1/64 and integers: the shifted scores are exact in float32.
    shifted = projection(scores + np.float32(shift), k)
    np.testing.assert_allclose(shifted, projection(scores, k), rtol=0, atol=4 * EPS)


@properties
@hypothesis.given(scores_of_any_scale, counts)
def test_the_jacobian_is_a_projection_too(scores, k):
    q = projection(scores, k)
    jacobian = np.asarray(jacobian_of(scores, jnp.int32(k)))
    between = ((q > 0) & (q < 1)).astype(np.float64)
    expected = np.diag(between) - np.outer(between, between) / max(between.sum(), 1)
    np.testing.assert_allclose(jacobian, expected, rtol=0, atol=4 * EPS)


jacobian_of = for_users(jax.jacrev(operators.sparse_top))


def test_k_of_one_is_sparsemax(rng):
    scores = jnp.asarray(rng.normal(size=(5, 20)), jnp.float32)
    with jax.numpy_dtype_promotion("standard"):
        expected = jax.vmap(optax.projections.projection_simplex)(scores)
    # Optax sums up sorted scores: about 20 roundings of numbers up to 20.
    np.testing.assert_allclose(sparse_top(scores, 1), expected, rtol=0, atol=20 * EPS)


def test_one_k_an_example(rng):
    scores = jnp.asarray(rng.normal(size=(3, 6, 2)), jnp.float32)
    k = jnp.array([[1, 6], [3, 0], [2, 5]])
    actual = operators.sparse_top(scores, k, axis=1)
    for row, column in np.ndindex(k.shape):
        expected = reference.sparse_top(scores[row, :, column], int(k[row, column]))
        np.testing.assert_allclose(actual[row, :, column], expected, rtol=0, atol=8 * EPS)
    for dtype in (jnp.int8, jnp.uint16):
        narrow = operators.sparse_top(scores, k.astype(dtype), axis=1)
        np.testing.assert_array_equal(narrow, actual)
    moved = jax.jit(jax.vmap(jax.vmap(operators.sparse_top)))(jnp.moveaxis(scores, 1, -1), k)
    # Fusion may round differently.
    np.testing.assert_allclose(jnp.moveaxis(moved, -1, 1), actual, rtol=0, atol=4 * EPS)


def test_a_traced_k_out_of_range_gives_nan():
    scores = jnp.array([[1.0, 0.5, 0.0]] * 4)
    k = jnp.array([-1, 0, 3, 4])
    value, gradient = pullback(scores, k, jnp.ones_like(scores))
    np.testing.assert_array_equal(value[:, 0], [jnp.nan, 0, 1, jnp.nan])
    np.testing.assert_array_equal(gradient[:, 0], [jnp.nan, 0, 0, jnp.nan])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_exact_at_100_000_classes(rng, scale):
    scores = jnp.asarray(rng.normal(size=100_000) * scale, jnp.float32)
    for k in (1, 5, 50_000, 99_999, 100_000):
        q = np.asarray(project(scores, jnp.int32(k)), np.float64)
        # float32 sums of 1e5 coordinates: a tree of 17 levels, half a rounding each.
        np.testing.assert_allclose(q.sum(), k, rtol=8 * EPS)
        np.testing.assert_allclose(q, reference.sparse_top(scores, k), rtol=0, atol=4 * EPS)


TIES = {
    "all": [0.0],
    "far from zero": [],
    "one above": [0.999],
    "one a whole step above": [1.0],
    "one almost alone": [1 - 1e-3, 0.5, -3.0],
}


@pytest.mark.parametrize("level", [0.0, 0.3, 1e4, -12345.678, -8192.0, 3e7, -1e30])
@pytest.mark.parametrize("others", TIES.values(), ids=TIES)
def test_100_000_tied_classes(level, others):
    """Where their share is 1e-5 or less, the threshold needs more digits than a float has."""
    scores = np.full(100_000, level, np.float32)
    scores[: len(others)] += np.float32(others)
    exact = scores.astype(np.float64) - np.float64(scores[-1])
    for k in (1, 7):
        q = np.asarray(project(scores, jnp.int32(k)), np.float64)
        np.testing.assert_allclose(q.sum(), k, rtol=8 * EPS)
        np.testing.assert_allclose(q, reference.sparse_top(exact, k), rtol=0, atol=4 * EPS)


def test_separated_scores_are_a_set_and_do_not_move(rng):
    """Rounding must not make a coordinate that is one look as if it could move."""
    scores = rng.normal(size=1000) / 10
    scores[:300] += 5
    scores[[298, 299]] = scores[:300].min()
    scores = jnp.asarray(rng.permutation(scores), jnp.float32)
    cotangent = jnp.asarray(rng.normal(size=1000), jnp.float32)
    value, gradient = pullback(scores, jnp.int32(300), cotangent)
    np.testing.assert_array_equal(value, scores > 2.5)
    np.testing.assert_array_equal(gradient, 0)


def test_separated_scores_with_many_ties_are_a_set_to_the_last_bit(rng):
    """Sums of hundreds of tied coordinates are rounded; that must not show in any of them."""
    shape = (100, 3000)
    k = rng.integers(1000, shape[1], size=shape[0])
    expected = np.float32(np.arange(shape[1]) < k[:, None])
    scores = expected * (3.3 + rng.integers(0, 20, size=shape) / 10) + rng.normal(size=(100, 1))
    scores = jnp.asarray(rng.permuted(np.float32(scores), axis=1))
    value, gradient = pullback(scores, jnp.asarray(k), scores)
    np.testing.assert_array_equal(np.unique(value), [0, 1])
    np.testing.assert_array_equal(value.sum(axis=1), k)
    np.testing.assert_array_equal(gradient, 0)


def test_too_few_unmasked_classes_share_the_rest():
    scores = jnp.array([-jnp.inf, 0.5, -jnp.inf, -jnp.inf, -jnp.inf])
    np.testing.assert_allclose(sparse_top(scores, 3), [0.5, 1, 0.5, 0.5, 0.5], rtol=2 * EPS)
    np.testing.assert_array_equal(sparse_top(scores, 1), [0, 1, 0, 0, 0])
    np.testing.assert_array_equal(sparse_top(scores, 5), [1, 1, 1, 1, 1])
