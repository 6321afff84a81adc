"""Soft labels of every floating-point type: a rounded distribution counts, and no other numbers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import losses, metrics, sets

NUM_EXAMPLES = 200
KEY = jax.random.key(0)
# How far the sum may be from 1, by type.
TOLERANCE = {"bfloat16": 2 * 2**-7, "float16": 2 * 2**-10, "float32": 1e-4}


def expectation(soft, **options):
    logits = np.linspace(-2, 2, soft.size, dtype=np.float32).reshape(soft.shape)
    return losses.expect_over_labels(logits, soft, loss=losses.cross_entropy, **options)


def hits(soft):
    chosen = np.arange(soft.shape[-1]) % 2 == 0
    return metrics.expected_hits(np.broadcast_to(chosen, soft.shape), soft)


def quantile(soft, **options):
    scores = np.linspace(0, 1, soft.size, dtype=np.float32).reshape(soft.shape)
    return sets.vote_quantile(scores, soft, error=0.25, **options)


def of_weights(soft):
    """One loss, whose weights of set sizes are the first distribution."""
    logits = np.linspace(-2, 2, soft.shape[-1], dtype=np.float32)
    return losses.relaxed_top_k_cross_entropy(
        logits, np.int32(1), top_k_weights=soft[0], method="soft_sort", tau=1.0
    )


FUNCTIONS = {
    "expect_over_labels": expectation,
    "expect_over_labels of two": partial(expectation, num_labels=2),
    "expect_over_labels of counted": lambda soft: expectation(
        soft, where=np.ones(soft.shape[:-1], bool)
    ),
    "expected_hits": hits,
    "vote_quantile": quantile,
    "vote_quantile of draws": partial(quantile, num_samples=2, key=KEY),
    "relaxed_top_k_cross_entropy": of_weights,
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
every_type = pytest.mark.parametrize("dtype", TOLERANCE)


def mixtures(dtype, rng):
    """Two labels of each example, with parts that are computed in that type, as by mixup."""
    part = jnp.asarray(rng.random(NUM_EXAMPLES), dtype)
    return jnp.stack([part, 1 - part, jnp.zeros_like(part)], axis=-1)


def of_sum(total, dtype):
    """Two halves that add up to `total`, in every example."""
    return jnp.tile(jnp.asarray([total / 2, total / 2, 0], dtype), (4, 1))


@every_type
@every_function
def test_mixtures_count_in_the_type_of_the_step(function, dtype, rng):
    soft = mixtures(dtype, rng)
    found = np.asarray(jax.jit(function)(soft))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, np.asarray(function(soft)), rtol=1e-5)


@every_type
@every_function
def test_other_sums_do_not_count(function, dtype):
    for factor in (1 - 2 * TOLERANCE[dtype], 1 + 2 * TOLERANCE[dtype]):
        soft = of_sum(factor, dtype)
        assert np.isnan(np.asarray(jax.jit(function)(soft))).all()
        if function is not FUNCTIONS["expect_over_labels of counted"]:
            with pytest.raises(ValueError, match="sum to 1"):
                function(soft)
