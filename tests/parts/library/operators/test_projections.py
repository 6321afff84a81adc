"""The projection on the convex hull of the sets of k classes, entmax, and the p-norm top-k.

Some properties are of any scores, the rest is exactness of many classes, ties, masks and slopes.
"""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
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


# Wide and narrow spreads, ties and offsets: sums of a common number and some multiple of it.
scores_of_any_scale = st.builds(
    lambda row, scale, offset: np.float32(np.float32(row) * np.float32(scale) + np.float32(offset)),
    st.lists(st.integers(-40, 40).map(lambda whole: whole / 8), min_size=SIZE, max_size=SIZE),
    st.sampled_from([1e-6, 0.03, 1.0, 7.0, 1e4]),
    st.sampled_from([0.0, 1.0, -1.0, 300.0, -1e4]),
)
properties = hypothesis.settings(max_examples=200, deadline=None, derandomize=True, database=None)


def projection(scores, k):
    return np.asarray(project(scores, jnp.int32(k)))


@properties
@hypothesis.given(scores_of_any_scale, st.integers(1, SIZE))
def test_projection_is_feasible_and_the_reference(scores, k):
    q = projection(scores, k)
    assert (q >= 0).all()
    assert (q <= 1).all()
    # Each coordinate is right to an eps or two, and the threshold to as much.
    np.testing.assert_allclose(q.astype(np.float64).sum(), k, rtol=0, atol=2 * SIZE * EPS)
    # The reference in float64 is exact: scores up to 1e4 lose 1e-12 in it.
    np.testing.assert_allclose(q, reference.sparse_top(scores, k), rtol=0, atol=4 * EPS)
    # Exactly: each step of the computation is monotone in the score.
    assert (np.diff(q[np.argsort(scores, kind="stable")]) >= 0).all()


@properties
@hypothesis.given(scores_of_any_scale, st.integers(1, SIZE))
def test_the_jacobian_is_a_projection_too(scores, k):
    q = projection(scores, k)
    jacobian = np.asarray(jacobian_of(scores, jnp.int32(k)))
    between = ((q > 0) & (q < 1)).astype(np.float64)
    expected = np.diag(between) - np.outer(between, between) / max(between.sum(), 1)
    np.testing.assert_allclose(jacobian, expected, rtol=0, atol=4 * EPS)


jacobian_of = for_users(jax.jacrev(operators.sparse_top))


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


# Entmax

entmax = for_users(functools.partial(operators.entmax, axis=-1))
slope_in_alpha = for_users(
    jax.jacfwd(lambda scores, alpha: operators.entmax(scores, alpha=alpha), 1)
)


@properties
@hypothesis.given(scores_of_any_scale, st.sampled_from([1.0, 1.015625, 1.25, 1.5, 1.875, 2.0]))
def test_entmax_is_the_reference(scores, alpha):
    probabilities = np.asarray(entmax(scores, alpha=alpha))
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(), 1, rtol=4 * EPS)
    # The reference in float64 is exact for scores up to 1e4. Powers and shares: some eps of 1.
    expected = reference.entmax(scores, alpha=alpha)
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=8 * EPS)
    order = np.argsort(scores, kind="stable")
    assert (np.diff(probabilities[order]) >= 0).all()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_ends_of_entmax_are_the_softmax_and_the_sparsemax(rng, scale):
    scores = jnp.asarray(scale * rng.normal(size=(4, 1081)), jnp.float32)
    for alpha, expected in (
        (1.0, jax.nn.softmax(scores)),
        (2.0, operators.sparse_top(scores, 1)),
    ):
        probabilities = entmax(scores, alpha=alpha)
        np.testing.assert_allclose(probabilities, expected, rtol=0, atol=4 * EPS)
    # An alpha of 1 plus its own rounding error moves a probability by half that, log^2 times.
    near = entmax(scores, alpha=np.float32(1 + EPS))
    np.testing.assert_allclose(near, jax.nn.softmax(scores), rtol=0, atol=8 * EPS)


def test_digits_of_entmax_do_not_depend_on_the_number_of_classes(rng):
    for alpha in (1.0, 1.25, 1.5, 2.0):
        for spread, first in ((0.0, 0.0), (0.0, 0.5), (1e-5, 0.5), (1.0, 0.0)):
            scores = (1e4 + spread * rng.normal(size=100_000)).astype(np.float32)
            scores[0] += np.float32(first)
            expected = reference.entmax(scores, alpha=alpha)
            probabilities = entmax(scores, alpha=alpha)
            # Relative to the largest: a sum of 1e5 numbers is rounded in 17 levels.
            np.testing.assert_allclose(
                probabilities, expected, rtol=0, atol=20 * EPS * expected.max()
            )


def test_entmax_sums_to_1_where_many_classes_are_barely_above_the_threshold(rng):
    """Each of these is rounded by a thousandth of itself, and the search has to know how."""
    scores = (1e-5 * rng.normal(size=100_000)).astype(np.float32)
    for alpha in (1.5, 2.0):
        scores[0] = 0.4995 / (alpha - 1)
        probabilities = np.asarray(entmax(scores, alpha=alpha), np.float64)
        np.testing.assert_allclose(probabilities.sum(), 1, rtol=8 * EPS)


def test_slow_case_of_newtons_method():
    """Scores that leave the support one after the other, as far apart as steps can be."""
    scores = -np.cumsum(2.0 ** -np.arange(64)[::-1]).astype(np.float32)
    for alpha in (1.015625, 1.5, 2.0):
        expected = reference.entmax(scores, alpha=alpha)
        np.testing.assert_allclose(entmax(scores, alpha=alpha), expected, rtol=0, atol=8 * EPS)


def test_slope_of_entmax_in_alpha(rng):
    with jax.enable_x64(True):
        scores = jnp.asarray(rng.normal(size=(5, 6)))
        step = 1e-6
        for alpha in (1.0 + 2 * step, 1.001, 1.3, 1.5, 1.9, 2.0 - 2 * step):
            above, below = (entmax(scores, alpha=alpha + sign * step) for sign in (1, -1))
            slope = slope_in_alpha(scores, alpha)
            # Third derivatives of order 100, and 1e-15 over the step.
            np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=0, atol=1e-8)
        # At alpha = 1: p / 2 times the mean of log(p)^2 less log(p)^2 (Correia et al.).
        softmax = jax.nn.softmax(scores)
        squares = jnp.log(softmax) ** 2
        mean = (softmax * squares).sum(axis=-1, keepdims=True)
        expected = softmax / 2 * (mean - squares)
        np.testing.assert_allclose(slope_in_alpha(scores, 1.0), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_slopes_of_entmax_are_finite_where_classes_are_masked(alpha):
    scores = jnp.array([[1.0, -jnp.inf, 0.5], [1e4, -1e4, -jnp.inf], [-jnp.inf] * 3])
    slope = slope_in_alpha(scores, alpha)
    np.testing.assert_allclose(slope.sum(axis=-1), 0, atol=4 * EPS)
    np.testing.assert_array_equal(slope[0, 1], 0)
    np.testing.assert_array_equal(slope[1, 2], 0)


# The p-norm top-k

NORMS = (1.125, 4 / 3, 1.5, 2.0)

mask_of = functools.partial(for_users, static_argnums=1)(
    lambda scores, k, p, regularization: operators.p_norm_top_k(
        scores, k, p=p, regularization=regularization
    )
)


@properties
@hypothesis.given(
    scores_of_any_scale, st.sampled_from([1.125, 1.25, 1.5, 2.0]), st.sampled_from([0.125, 1, 8])
)
def test_mask_is_feasible_and_the_reference(scores, p, regularization):
    mask = np.asarray(mask_of(scores, 3, p, float(regularization)))
    assert (mask >= 0).all()
    assert (mask <= 1).all()
    np.testing.assert_allclose(mask.sum(), 3, rtol=4 * EPS)
    # The reference in float64 is exact for scores up to 1e4. Some eps of an entry.
    expected = reference.p_norm_top_k(scores, 3, p=p, regularization=regularization)
    np.testing.assert_allclose(mask, expected, rtol=0, atol=8 * EPS)
    order = np.argsort(scores, kind="stable")
    assert (np.diff(mask[order]) >= 0).all()


@for_users
def pushforward(scores, p):
    """The mask of 300 scores, and the derivative in the direction of the scores."""
    return jax.jvp(
        lambda scores: operators.p_norm_top_k(scores, 300, p=p, regularization=1.0),
        (scores,),
        (scores,),
    )


@pytest.mark.parametrize("p", NORMS)
def test_separated_scores_of_the_p_norm_are_a_set_and_do_not_move(rng, p):
    """Rounding must not make a coordinate that is one look as if it could move."""
    scores = rng.normal(size=1000) / 10
    scores[:300] += 5
    scores[[298, 299]] = scores[:300].min()
    scores = jnp.asarray(rng.permutation(scores), jnp.float32)
    mask, derivative = pushforward(scores, p)
    np.testing.assert_array_equal(mask, scores > 2.5)
    np.testing.assert_array_equal(derivative, 0)


@pytest.mark.parametrize("level", [0.0, 1e4, -1e30])
@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_100_000_tied_classes_of_the_p_norm(level, p):
    scores = np.full(100_000, level, np.float32)
    scores[0] += np.float32(0.5)
    exact = scores.astype(np.float64) - np.float64(scores[-1])
    for k in (1, 7):
        mask = np.asarray(mask_of(scores, k, p, 1.0), np.float64)
        np.testing.assert_allclose(mask.sum(), k, rtol=8 * EPS)
        expected = reference.p_norm_top_k(exact, k, p=p, regularization=1.0)
        np.testing.assert_allclose(mask, expected, rtol=0, atol=8 * EPS)


def test_too_few_unmasked_classes_of_the_p_norm_share_the_rest():
    scores = jnp.array([-jnp.inf, 0.5, -jnp.inf, -jnp.inf, -jnp.inf])
    for p in NORMS:
        mask = mask_of(scores, 3, p, 1.0)
        np.testing.assert_allclose(mask, [0.5, 1, 0.5, 0.5, 0.5], rtol=4 * EPS)
        np.testing.assert_array_equal(mask_of(scores, 1, p, 1.0), [0, 1, 0, 0, 0])
        np.testing.assert_array_equal(mask_of(scores, 5, p, 1.0), 1)


def test_slopes_in_p_and_the_regularization(rng):
    with jax.enable_x64(True):
        scores = jnp.asarray(rng.normal(size=(5, SIZE)))
        mask = jax.jit(functools.partial(mask_of.__wrapped__, scores, 3))
        jacobian = jax.jit(jax.jacfwd(mask, (0, 1)))
        step = 1e-6
        for p, regularization in ((4 / 3, 1.0), (1.5, 3.0), (2.0 - step, 0.5)):
            of_p, of_regularization = jacobian(p, regularization)
            assert of_p.any()
            assert of_regularization.any()
            differences = mask(p + step, regularization) - mask(p - step, regularization)
            # Third derivatives of order 100, and 1e-15 over the step.
            np.testing.assert_allclose(of_p, differences / (2 * step), rtol=0, atol=1e-7)
            differences = mask(p, regularization + step) - mask(p, regularization - step)
            np.testing.assert_allclose(
                of_regularization, differences / (2 * step), rtol=0, atol=1e-7
            )


@pytest.mark.parametrize("size", [64, 500])
@pytest.mark.parametrize(
    "operator",
    [
        lambda scores: operators.p_norm_top_k(scores, 3, p=4 / 3, regularization=1.0),
        lambda scores: operators.entmax(scores, alpha=1.5),
        lambda scores: operators.entmax(scores, alpha=1.3),
    ],
)
def test_a_nan_is_found_in_vectorized_loops(rng, size, operator):
    # XLA's maximum loses a NaN in some of them.
    scores = rng.normal(size=(32, size)).astype(np.float32)
    scores[::2, size // 3] = np.nan
    mask = for_users(operator)(scores)
    np.testing.assert_array_equal(np.isnan(mask).all(axis=-1), np.arange(32) % 2 == 0)
    np.testing.assert_array_equal(np.isnan(mask).any(axis=-1), np.arange(32) % 2 == 0)
