"""The exact top-k operators: ties and masks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compilation import for_users
from topk_jax import operators


@functools.partial(for_users, static_argnums=(0, 2))
def value_and_gradient(operator, scores, k):
    return jax.value_and_grad(operator)(scores, k)


@pytest.mark.parametrize(
    ("k", "kth", "chosen"),
    [(1, [2], [2]), (2, [4], [2, 4]), (3, [0], [0, 2, 4]), (4, [1], [0, 1, 2, 4])],
)
def test_the_lower_index_wins_a_tie(k, kth, chosen):
    scores = jnp.array([1.0, 1.0, 3.0, 0.0, 3.0])
    _, of_value = value_and_gradient(operators.top_k_value, scores, k)
    np.testing.assert_array_equal(np.flatnonzero(of_value), kth)
    _, of_sum = value_and_gradient(operators.top_k_sum, scores, k)
    np.testing.assert_array_equal(np.flatnonzero(of_sum), chosen)


def test_fewer_unmasked_classes_than_k():
    scores = jnp.array([1.0, -jnp.inf, 2.0, -jnp.inf])
    assert value_and_gradient(operators.top_k_value, scores, 3)[0] == -jnp.inf
    assert value_and_gradient(operators.top_k_sum, scores, 3)[0] == -jnp.inf
    assert value_and_gradient(operators.top_k_value, scores, 2)[0] == 1.0
