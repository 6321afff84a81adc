"""The gradient of max pooling for the CPU is XLA's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from train.models.layers import max_pool


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(
    ("size", "stride", "padding", "ceil", "pads"),
    [
        (3, 2, 1, False, [(1, 1), (1, 1)]),
        (2, 2, 0, False, [(0, 0), (0, 0)]),
        (3, 1, 1, False, [(1, 1), (1, 1)]),
        (3, 2, 0, True, [(0, 0), (0, 1)]),
    ],
)
def test_gradient(size, stride, padding, ceil, pads, dtype):
    rng = np.random.default_rng(0)
    # Whole numbers, so that many windows have several largest ones, and sums are exact.
    inputs = jnp.asarray(rng.integers(0, 3, (2, 9, 8, 3)), dtype)
    found, pull_back = jax.vjp(
        lambda inputs: max_pool(inputs, size, stride=stride, padding=padding, ceil=ceil), inputs
    )
    expected, pull_back_expected = jax.vjp(
        lambda inputs: nn.max_pool(inputs, (size, size), (stride, stride), pads), inputs
    )
    weights = jnp.asarray(rng.integers(-9, 9, found.shape), dtype)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(pull_back(weights)[0], pull_back_expected(weights)[0])
