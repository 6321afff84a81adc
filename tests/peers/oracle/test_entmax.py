"""Entmax, its loss and the sparse top-k equal the package entmax, in float64.

Shapes, alphas, axes and budgets come from the package's own tests, as far as our alpha (1 to 2) and
our integer k allow.
"""

import entmax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from topk_jax import losses, operators

# The package's alphas of 0.2, 0.5, 0.75 and 2.25 are outside our range.
ALPHAS = (1.2, 1.5, 1.75, 2.0)
# float64; the package bisects 50 times, to 1e-15 of an interval of at most 1.
CLOSE = {"rtol": 0, "atol": 1e-11}


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def theirs(function, scores, cotangent, *others, **settings):
    """The value, and the cotangent pulled back to the scores and to the other arguments."""
    inputs = [torch.tensor(value, requires_grad=True) for value in (scores, *others)]
    value = function(*inputs, **settings)
    value.backward(torch.tensor(cotangent))
    return value.detach().numpy(), *(given.grad.numpy() for given in inputs)


def ours(function, scores, cotangent, *others):
    value, pullback = jax.vjp(function, jnp.asarray(scores), *map(jnp.asarray, others))
    return value, *pullback(jnp.asarray(cotangent))


def compare(actual, expected, **tolerance):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, **(tolerance or CLOSE))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("shape", [(4, 6), (20, 6), (8, 1081)])
def test_entmax_by_bisection_and_its_gradients(rng, alpha, shape):
    scores, cotangent = rng.normal(size=shape), rng.normal(size=shape)
    expected = theirs(entmax.entmax_bisect, scores, cotangent, np.float64(alpha))

    def function(scores, alpha):
        return operators.entmax(scores, alpha=alpha)

    # The derivative in alpha is a sum over all entries, of terms that they divide by
    # (alpha - 1)^2.
    compare(ours(function, scores, cotangent, alpha), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("coefficient", [0.00001, 0.5, 10000])
@pytest.mark.parametrize(("name", "alpha"), [("sparsemax", 2.0), ("entmax15", 1.5)])
def test_exact_maps_along_any_axis(rng, name, alpha, axis, coefficient):
    scores, cotangent = coefficient * rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 4, 5))
    expected = theirs(getattr(entmax, name), scores, cotangent, dim=axis)
    compare(
        ours(lambda scores: operators.entmax(scores, alpha=alpha, axis=axis), scores, cotangent),
        expected,
    )


@pytest.mark.parametrize(
    ("name", "alpha"),
    [("sparsemax_loss", 2.0), ("entmax15_loss", 1.5)]
    + [("entmax_bisect_loss", alpha) for alpha in ALPHAS],
)
def test_losses(rng, name, alpha):
    scores, labels = rng.normal(size=(4, 10)), rng.integers(10, size=4)
    settings = {"alpha": alpha} if "bisect" in name else {}
    expected = theirs(
        lambda scores: getattr(entmax, name)(scores, torch.tensor(labels), **settings),
        scores,
        np.ones(4),
    )
    actual = ours(
        lambda scores: losses.entmax_loss(scores, labels, alpha=alpha), scores, np.ones(4)
    )
    compare(actual, expected)
    # Their property.
    assert (np.asarray(actual[0]) >= 0).all()


def test_float32_at_the_size_of_a_large_data_set(rng):
    scores = rng.normal(size=(8, 10_000)).astype(np.float32)
    labels = rng.integers(10_000, size=8)
    cotangent = np.ones(8, np.float32)
    expected = theirs(
        lambda scores: entmax.entmax15_loss(scores, torch.tensor(labels)), scores, cotangent
    )
    actual = ours(lambda scores: losses.entmax_loss(scores, labels, alpha=1.5), scores, cotangent)
    # float32; they take sums of 10,000 sorted squares.
    compare(actual, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("budget", range(1, 7))
def test_sparse_top_is_the_budget_projection(rng, budget):
    scores, cotangent = rng.normal(size=(4, 6)), rng.normal(size=(4, 6))
    expected = theirs(entmax.budget_bisect, scores, cotangent, budget=budget)
    # If the budget is the number of classes, nothing moves; they divide by zero there.
    if budget == 6:
        expected = expected[0], np.zeros((4, 6))
    for function in (
        lambda scores: operators.sparse_top(scores, budget),
        lambda scores: operators.p_norm_top_k(scores, budget, p=2.0, regularization=1.0),
    ):
        compare(ours(function, scores, cotangent), expected)


def test_their_examples_of_budgets():
    scores = jnp.array([0, 0.25, 0.5, 0.75, 1])
    for factor, budget, expected in (
        (1, 2, [0, 0.125, 0.375, 0.625, 0.875]),
        (2, 3, [0, 0.25, 0.75, 1, 1]),
    ):
        compare([operators.sparse_top(factor * scores, budget)], [expected])
    for factor in (1, 2, 3, 4, 5):
        sparsemax = operators.entmax(factor * scores, alpha=2.0)
        compare([operators.sparse_top(factor * scores, 1)], [sparsemax])
