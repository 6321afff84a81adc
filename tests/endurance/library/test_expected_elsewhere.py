"""Rows of the same name in tests/parts that take long."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import operators


def test_second_derivatives_in_small_noise_are_finite(rng, monkeypatch):
    scores = jnp.asarray(rng.normal(size=60), jnp.float32)

    def value(epsilon):
        return operators.expected_top_k_value(scores, 1, epsilon=epsilon, num_nodes=8)

    def slopes(value):
        return jax.jit(jax.jacfwd(jax.grad(value)))(0.25), jax.jit(jax.hessian(value))(0.25)

    # What was traced for one platform is not taken for another one.
    jax.clear_caches()
    on_cpu = slopes(value)
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *arrays, default, **_: default(*arrays)
    )
    jax.clear_caches()
    # As on the CPU, but with the classes not binned and with as many nodes.
    np.testing.assert_allclose(slopes(functools.partial(value)), on_cpu, rtol=0.02)
