"""Sets by their properties, and what sets and thresholds share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference
from tests.parts.library.probabilities import (
    as_float64,
    dyadic_probabilities,
    properties,
    softmax_of,
)
from topk_jax import sets

# Adaptive sets


@properties
@given(dyadic_probabilities(), st.integers(0, 63))
def test_adaptive_set_is_the_reference_where_sums_are_exact(probabilities, sixty_fourths):
    # Exact sums and an exact error: equality at the very cut, ties, zeros, and sums that never
    # reach 1 - error are all decided by the definition.
    error = sixty_fourths / 64
    chosen = np.asarray(sets.adaptive_set(probabilities, error=error))
    np.testing.assert_array_equal(chosen, reference.adaptive_set(probabilities, error=error))
    larger = np.asarray(sets.adaptive_set(probabilities, error=max(0.0, error - 1 / 64)))
    assert (chosen <= larger).all()


@pytest.mark.parametrize("num_classes", [1, 2, 1081, 100_000])
def test_adaptive_set_is_the_smallest_that_suffices(rng, num_classes):
    probabilities = softmax_of(rng, 3, num_classes, scale=2.0)
    ascending = np.sort(as_float64(probabilities), axis=-1)
    for error in (1e-6, 1e-3, 0.1, 0.9):
        chosen = sets.adaptive_set(probabilities, error=error)
        missed = np.cumsum(ascending, axis=-1)
        # Within the rounding of float32 sums taken as a tree, 17 levels for 100,000 classes:
        # 17 * 6e-8 of the missed probability. The rule's own room is 16 * 1.2e-7 of the error.
        relative, room = 17 * 2**-24, 16 * 2**-23
        least = (missed <= error * (1 - relative)).sum(axis=-1)
        most = (missed <= error * (1 + relative + room)).sum(axis=-1)
        num_missed = num_classes - np.asarray(chosen).sum(axis=-1)
        assert ((least <= num_missed) & (num_missed <= most)).all()
        np.testing.assert_array_equal(
            chosen,
            [
                reference.top_k_set(row, k=max(size, 1)) & (size > 0)
                for row, size in zip(probabilities, num_classes - num_missed, strict=True)
            ],
        )


@pytest.mark.parametrize(
    ("twentieths", "error"),
    [((6, 6, 6, 2), 0.7), ((13, 6, 1), 0.35), ((11, 8, 1), 0.45), ((7, 6, 6, 1), 0.65)],
)
def test_a_missed_probability_that_is_the_error_but_for_rounding(twentieths, error):
    chosen = sets.adaptive_set(jnp.array(twentieths) / 20, error=error)
    assert chosen.tolist() == [True] + [False] * (len(twentieths) - 1)


def test_adaptive_set_without_error_keeps_all_that_is_possible_and_no_more(rng):
    logits = rng.normal(size=(50, 40)).astype(np.float32)
    logits[rng.random(logits.shape) < 0.5] = -np.inf
    logits[:, 0] = 0.0
    # These softmaxes add up to 1 but for rounding: the impossible classes must not come back.
    probabilities = jax.nn.softmax(jnp.asarray(logits), axis=-1)
    np.testing.assert_array_equal(sets.adaptive_set(probabilities, error=0.0), np.isfinite(logits))


# What all of them share

CALIBRATIONS = {
    "average_k_threshold": lambda p: sets.average_k_threshold(p, k=2),
    "average_k_threshold, all": lambda p: sets.average_k_threshold(p, k=p.shape[-1]),
    "average_error_threshold": lambda p: sets.average_error_threshold(p, error=0.1),
    "conformal_threshold": lambda p: sets.conformal_threshold(
        p, jnp.zeros(p.shape[:-1], jnp.int32), error=0.25
    ),
    "conformal_threshold, all": lambda p: sets.conformal_threshold(
        p, jnp.zeros(p.shape[:-1], jnp.int32), error=0.0
    ),
}
SETS = {
    "top_k_set": lambda p: sets.top_k_set(p, k=2),
    "threshold_set": lambda p: sets.threshold_set(p, 0.1),
    "adaptive_set": lambda p: sets.adaptive_set(p, error=0.1),
}
ALL = CALIBRATIONS | SETS


def stream(probabilities, k=2):
    calibrator = sets.AverageKCalibrator(k, len(probabilities))
    for row in probabilities:
        calibrator.update(row)
    return calibrator.threshold()


def test_a_nan_makes_the_streamed_threshold_nan(rng):
    # Early or late: before anything was sifted, and when only larger values would be kept.
    for k, row in [(2, 0), (2, 5), (4, 3)]:
        assert jnp.isnan(stream(softmax_of(rng, 6, 4).at[row, 2].set(jnp.nan), k))
    assert jnp.isnan(stream(jnp.full((6, 4), jnp.nan)))


@pytest.mark.parametrize("name", ALL)
def test_jit_and_vmap_change_nothing(rng, name):
    function = ALL[name]
    probabilities = softmax_of(rng, 3, 6, 4)
    one_by_one = jnp.stack([function(each) for each in probabilities])
    assert (jax.jit(jax.vmap(function))(probabilities) == one_by_one).all()
    assert (function(np.asarray(probabilities)) == jax.jit(function)(probabilities)).all()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", ALL)
def test_half_precision_is_exact_in_float32(rng, name, dtype):
    halves = softmax_of(rng, 6, 4).astype(dtype)
    result = ALL[name](halves)
    assert (result == ALL[name](halves.astype(jnp.float32))).all()
    assert result.dtype == (jnp.bool_ if name in SETS else jnp.float32)


SHARES = np.full((2, 3), 0.25, np.float32)
# Arguments of wrong types are the point here.
untyped: Any = sets


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda: untyped.adaptive_set(SHARES[:, :0], error=0.1), ValueError, "probabilities"),
        (lambda: untyped.average_k_threshold(SHARES[:0], k=1), ValueError, "probabilities"),
        (lambda: jax.jit(lambda k: sets.average_k_threshold(SHARES, k=k))(2), TypeError, "k must"),
        (
            lambda: jax.eval_shape(
                lambda p: sets.average_k_threshold(p, k=1),
                jax.ShapeDtypeStruct((2**16, 2**15), jnp.float32),
            ),
            ValueError,
            "AverageKCalibrator",
        ),
    ],
)
def test_refusals(call, error, name):
    with pytest.raises(error, match=name):
        call()
