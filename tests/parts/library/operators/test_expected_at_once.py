"""The expected k-th largest score as accelerators compute it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.rows import rows
from topk_jax import losses, operators
from topk_jax.operators import _expected_at_once

# What is promised at the default number of nodes, in units of epsilon and as chances.
PROMISED = 1e-4


def as_elsewhere(*arrays, default, **_):
    """What accelerators get of a choice."""
    return default(*arrays)


def value_and_gradient(scores, k, epsilon):
    def total(scores):
        values = operators.expected_top_k_value(scores, k, epsilon=epsilon)
        return values.sum(), values

    gradient, values = jax.jit(jax.grad(total, has_aux=True))(scores)
    return values, gradient


# All multiplied out, a high rank, most as symmetric functions, one coefficient.
@pytest.mark.parametrize(("size", "k"), [(7, 3), (30, 29), (100, 6), (100, 1)])
def test_it_is_the_reference(rng, monkeypatch, size, k):
    monkeypatch.setattr(jax.lax, "platform_dependent", as_elsewhere)
    spreads = np.array([0.03, 0.3, 1.0, 30.0])[:, None]
    scores = (spreads * rng.normal(size=(4, size))).astype(np.float32)
    scores[0, : size // 3] = -0.0
    scores[3, 2] = -np.inf
    value, gradient = value_and_gradient(jnp.asarray(scores), k, 0.5)
    for row, one, other in zip(scores, value, gradient, strict=True):
        kept = row > -np.inf
        expected = reference.expected_top_k_value(row[kept], k, epsilon=0.5)
        np.testing.assert_allclose(one, expected, rtol=1e-6, atol=0.5 * PROMISED)
        expected = reference.expected_top_k_value_gradient(row[kept], k, epsilon=0.5)
        np.testing.assert_allclose(other[kept], expected, rtol=0, atol=PROMISED)
        assert (other[~kept] == 0).all()


def convex(logits, labels):
    return losses.expected_top_k_hinge(logits, labels, k=3, epsilon=0.5, hinge="convex").sum()


# All nodes in one pass, and one node at a time.
@pytest.mark.parametrize("bytes_at_once", rows([1 << 26], [0]))
def test_all_ranks_together_are_each_alone(rng, monkeypatch, bytes_at_once):
    logits, labels = rng.normal(size=(3, 40)).astype(np.float32), np.array([0, 7, 39])
    expected = jax.jit(jax.value_and_grad(convex))(logits, labels)
    monkeypatch.setattr(jax.lax, "platform_dependent", as_elsewhere)
    monkeypatch.setattr(_expected_at_once, "_BYTES_AT_ONCE", bytes_at_once)
    found = jax.jit(jax.value_and_grad(functools.partial(convex)))(logits, labels)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2 * PROMISED)
