"""The projections and the sparsemax loss equal jaxopt, in float64."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import losses, operators

with warnings.catch_warnings():
    # jaxopt warns that it is no longer maintained.
    warnings.simplefilter("ignore")
    from jaxopt import loss, projection


@pytest.fixture(autouse=True)
def _float64():
    # jaxopt mixes dtypes and ranks.
    with (
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        yield


def compare(ours, theirs, scores):
    """Values and Jacobians, row by row, by one program for each function."""
    compiled = [
        jax.jit(lambda row, function=function: (function(row), jax.jacrev(function)(row)))
        for function in (ours, theirs)
    ]
    for row in scores:
        (value, slopes), (expected, expected_slopes) = (function(row) for function in compiled)
        # They bisect until the sum is right to 1e-5.
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5)
        # Shares of the classes between 0 and 1, in float64.
        np.testing.assert_allclose(slopes, expected_slopes, rtol=0, atol=1e-9)


def budget_box(k):
    """The projection on the vectors in [0, 1] with the sum k."""

    def project(scores):
        ones = jnp.ones_like(scores)
        return projection.projection_box_section(scores, (0.0 * ones, ones, ones, float(k)))

    return project


@pytest.mark.parametrize("k", [1, 2, 5])
def test_sparse_top_is_the_projection_on_a_section_of_the_box(rng, k):
    scores = jnp.asarray(2 * rng.normal(size=(4, 8)))
    compare(lambda row: operators.sparse_top(row, k), budget_box(k), scores)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("regularization", [0.5, 2.0])
def test_p_norm_top_k_is_the_projection_of_scaled_scores(rng, k, regularization):
    scores = jnp.asarray(2 * rng.normal(size=(4, 8)))
    compare(
        lambda row: operators.p_norm_top_k(row, k, p=2.0, regularization=regularization),
        lambda row: budget_box(k)(row / regularization),
        scores,
    )


def test_sparsemax_is_the_projection_on_the_simplex(rng):
    scores = jnp.asarray(rng.normal(size=(4, 8)))
    compare(lambda row: operators.entmax(row, alpha=2.0), projection.projection_simplex, scores)


def test_sparsemax_loss(rng):
    scores = jnp.asarray(rng.normal(size=(4, 8)))
    for label in (0, 7):
        compare(
            lambda row, label=label: losses.sparsemax_loss(row, jnp.asarray(label)),
            lambda row, label=label: loss.multiclass_sparsemax_loss(label, row),
            scores,
        )
