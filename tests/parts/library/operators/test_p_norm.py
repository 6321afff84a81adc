"""The p-norm top-k: its relatives, exact masks, and its derivatives in its parameters."""

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
SIZE, K = 8, 3
NORMS = (1.125, 4 / 3, 1.5, 2.0)

mask_of = functools.partial(for_users, static_argnums=1)(
    lambda scores, k, p, regularization: operators.p_norm_top_k(
        scores, k, p=p, regularization=regularization
    )
)
sparse_top = jax.jit(operators.sparse_top, static_argnums=1)
entmax = jax.jit(operators.entmax)
scores_of_any_scale = st.builds(
    lambda row, scale, offset: np.float32(np.float32(row) * np.float32(scale) + np.float32(offset)),
    st.lists(st.integers(-40, 40).map(lambda whole: whole / 8), min_size=SIZE, max_size=SIZE),
    st.sampled_from([1e-6, 0.03, 1.0, 7.0, 1e4]),
    st.sampled_from([0.0, 1.0, 300.0, -1e4]),
)
properties = hypothesis.settings(max_examples=200, deadline=None, derandomize=True, database=None)


@properties
@hypothesis.given(
    scores_of_any_scale, st.sampled_from([1.125, 1.25, 1.5, 2.0]), st.sampled_from([0.125, 1, 8])
)
def test_mask_is_feasible_and_the_reference(scores, p, regularization):
    mask = np.asarray(mask_of(scores, K, p, float(regularization)))
    assert (mask >= 0).all()
    assert (mask <= 1).all()
    np.testing.assert_allclose(mask.sum(), K, rtol=4 * EPS)
    # The reference in float64 is exact for scores up to 1e4. Some eps of an entry.
    expected = reference.p_norm_top_k(scores, K, p=p, regularization=regularization)
    np.testing.assert_allclose(mask, expected, rtol=0, atol=8 * EPS)
    order = np.argsort(scores, kind="stable")
    assert (np.diff(mask[order]) >= 0).all()


@pytest.mark.parametrize("k", [1, 5, 60])
def test_p_of_2_is_the_sparse_top(rng, k):
    scores = jnp.asarray(rng.normal(size=(4, 100)), jnp.float32)
    for regularization in (0.25, 4.0):
        expected = sparse_top(scores / regularization, k)
        mask = mask_of(scores, k, 2.0, regularization)
        np.testing.assert_allclose(mask, expected, rtol=0, atol=16 * EPS)


@pytest.mark.parametrize("p", NORMS)
def test_k_of_1_is_entmax(rng, p):
    scores = jnp.asarray(rng.normal(size=(4, 100)), jnp.float32)
    mask = mask_of(scores, 1, p, 1 / (p - 1))
    np.testing.assert_allclose(mask, entmax(scores, alpha=p), rtol=0, atol=16 * EPS)


@for_users
def pushforward(scores, p):
    """The mask of 300 scores, and the derivative in the direction of the scores."""
    return jax.jvp(
        lambda scores: operators.p_norm_top_k(scores, 300, p=p, regularization=1.0),
        (scores,),
        (scores,),
    )


@pytest.mark.parametrize("p", NORMS)
def test_separated_scores_are_a_set_and_do_not_move(rng, p):
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
def test_100_000_tied_classes(level, p):
    scores = np.full(100_000, level, np.float32)
    scores[0] += np.float32(0.5)
    exact = scores.astype(np.float64) - np.float64(scores[-1])
    for k in (1, 7):
        mask = np.asarray(mask_of(scores, k, p, 1.0), np.float64)
        np.testing.assert_allclose(mask.sum(), k, rtol=8 * EPS)
        expected = reference.p_norm_top_k(exact, k, p=p, regularization=1.0)
        np.testing.assert_allclose(mask, expected, rtol=0, atol=8 * EPS)


def test_too_few_unmasked_classes_share_the_rest():
    scores = jnp.array([-jnp.inf, 0.5, -jnp.inf, -jnp.inf, -jnp.inf])
    for p in NORMS:
        mask = mask_of(scores, 3, p, 1.0)
        np.testing.assert_allclose(mask, [0.5, 1, 0.5, 0.5, 0.5], rtol=4 * EPS)
        np.testing.assert_array_equal(mask_of(scores, 1, p, 1.0), [0, 1, 0, 0, 0])
        np.testing.assert_array_equal(mask_of(scores, 5, p, 1.0), 1)


def test_slopes_in_p_and_the_regularization(rng):
    with jax.enable_x64(True):
        scores = jnp.asarray(rng.normal(size=(5, SIZE)))
        mask = jax.jit(functools.partial(mask_of.__wrapped__, scores, K))
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
