"""Sets, and what sets and thresholds share: against references, by properties, and refusals."""

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
from topk_jax import metrics, sets

# Top-K sets


@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k_set_is_the_reference_with_ties_and_infinities(rng, k):
    scores = rng.integers(-2, 2, size=(6, 7, 5)).astype(np.float32)
    scores[scores == -2] = -np.inf
    scores[0, 0] = [0.0, -0.0, 0.0, -0.0, -0.0]
    chosen = np.asarray(sets.top_k_set(scores, k=k))
    np.testing.assert_array_equal(chosen, reference.top_k_set(scores, k=k))
    assert (chosen.sum(axis=-1) == k).all()
    if k > 1:
        assert (np.asarray(sets.top_k_set(scores, k=k - 1)) <= chosen).all()


def test_top_k_set_of_many_classes(rng):
    scores = rng.normal(size=(3, 1081)).astype(np.float32).round(1)
    np.testing.assert_array_equal(sets.top_k_set(scores, k=101), reference.top_k_set(scores, k=101))


# Sets by a threshold


def test_threshold_set_includes_the_threshold_itself():
    chosen = sets.threshold_set([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]], np.float32(0.25))
    assert chosen.tolist() == [[True, True, True], [True, False, False]]


@pytest.mark.parametrize(("threshold", "kept"), [(-np.inf, True), (np.inf, False), (np.nan, False)])
def test_threshold_set_of_thresholds_that_keep_all_or_none(threshold, kept):
    probabilities = jnp.array([[1.0, 0.0], [0.5, 0.5]])
    for function in (sets.threshold_set, jax.jit(sets.threshold_set)):
        assert (function(probabilities, threshold) == kept).all()


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


def test_adaptive_set_keeps_the_likeliest_class_at_an_error_that_rounds_to_one():
    for probabilities in ([0.25, 0.5, 0.25], [1.0, 0.0, 0.0]):
        chosen = sets.adaptive_set(jnp.array(probabilities), error=1 - 1e-9)
        np.testing.assert_array_equal(chosen, np.array(probabilities) == max(probabilities))


def test_adaptive_sets_are_nested_in_a_traced_error(rng):
    probabilities = softmax_of(rng, 20, 300)
    errors = jnp.linspace(0.0, 0.99, 30)
    chosen = jax.vmap(lambda error: sets.adaptive_set(probabilities, error=error))(errors)
    assert (chosen[1:] <= chosen[:-1]).all()


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


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_a_nan_makes_the_threshold_nan(rng, name):
    probabilities = softmax_of(rng, 6, 4).at[3, 2].set(jnp.nan)
    threshold = CALIBRATIONS[name](probabilities)
    assert jnp.isnan(threshold)
    assert threshold.shape == ()


def test_a_nan_makes_the_streamed_threshold_nan(rng):
    # Early or late: before anything was sifted, and when only larger values would be kept.
    for k, row in [(2, 0), (2, 5), (4, 3)]:
        assert jnp.isnan(stream(softmax_of(rng, 6, 4).at[row, 2].set(jnp.nan), k))
    assert jnp.isnan(stream(jnp.full((6, 4), jnp.nan)))


@pytest.mark.parametrize("label", [-1, 4, 255])
def test_a_label_out_of_range_makes_the_conformal_threshold_nan(rng, label):
    labels = jnp.zeros(6, jnp.int16).at[2].set(label)
    assert jnp.isnan(sets.conformal_threshold(softmax_of(rng, 6, 4), labels, error=0.5))


@pytest.mark.parametrize("name", SETS)
def test_a_nan_empties_the_set_of_its_own_example(rng, name):
    probabilities = softmax_of(rng, 6, 4)
    chosen = SETS[name](probabilities.at[3, 2].set(jnp.nan))
    assert not chosen[3].any()
    others = jnp.arange(6) != 3
    assert (chosen == SETS[name](probabilities))[others].all()


@pytest.mark.parametrize("name", ALL)
def test_jit_and_vmap_change_nothing(rng, name):
    function = ALL[name]
    probabilities = softmax_of(rng, 3, 6, 4)
    one_by_one = jnp.stack([function(each) for each in probabilities])
    assert (jax.jit(jax.vmap(function))(probabilities) == one_by_one).all()
    assert (function(np.asarray(probabilities)) == jax.jit(function)(probabilities)).all()


def test_each_device_computes_its_own(rng):
    probabilities = softmax_of(rng, 8, 6, 4)
    on_devices = jax.pmap(lambda p: [function(p) for function in ALL.values()])(probabilities)
    for function, results in zip(ALL.values(), on_devices, strict=True):
        assert (results == jnp.stack([function(each) for each in probabilities])).all()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", ALL)
def test_half_precision_is_exact_in_float32(rng, name, dtype):
    halves = softmax_of(rng, 6, 4).astype(dtype)
    result = ALL[name](halves)
    assert (result == ALL[name](halves.astype(jnp.float32))).all()
    assert result.dtype == (jnp.bool_ if name in SETS else jnp.float32)


def test_float64_stays_float64(rng):
    # Differences that float32 does not see.
    values = 0.25 + 1e-12 * rng.permutation(24).reshape(6, 4)
    with jax.enable_x64(True):
        probabilities = jnp.asarray(values)
        threshold = sets.average_k_threshold(probabilities, k=2)
        assert threshold == stream(values)
        np.testing.assert_allclose(threshold, 0.25 + 11.5e-12, rtol=2**-52)
        assert sets.threshold_set(probabilities, threshold).sum() == 12
        for name, function in ALL.items():
            assert function(probabilities).dtype == (jnp.bool_ if name in SETS else jnp.float64)
        assert (sets.top_k_set(probabilities, k=2) == reference.top_k_set(values, k=2)).all()
        labels = rng.integers(4, size=6)
        conformal = sets.conformal_threshold(probabilities, labels, error=0.5)
        assert conformal == reference.conformal_threshold(values, labels, error=0.5)


# Refusals

# Arguments of wrong types are the point here.
untyped: Any = sets
P = np.full((2, 3), 0.25, np.float32)
Y = np.zeros(2, np.int32)
NAN = float("nan")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: untyped.top_k_set(P.astype(int), k=1), TypeError, "scores must be a floating"),
        (lambda: untyped.top_k_set(np.float32(1), k=1), ValueError, r"scores must have .* axis"),
        (lambda: untyped.top_k_set("scores", k=1), TypeError, "scores must be a floating"),
        (lambda: untyped.top_k_set(P, k=0), ValueError, "k must be from 1 to 3 .* got 0"),
        (lambda: untyped.top_k_set(P, k=4), ValueError, "k must be from 1 to 3 .* got 4"),
        (lambda: untyped.top_k_set(P, k=1.5), TypeError, "k must be an integer, got 1.5"),
        (lambda: untyped.threshold_set(P > 0, 0.5), TypeError, "probabilities must be a floating"),
        (lambda: untyped.threshold_set(P, [0.5, 0.5]), ValueError, r"threshold must be .* \(2,\)"),
        (lambda: untyped.threshold_set(P, "high"), TypeError, "threshold must be .* str"),
        (lambda: untyped.threshold_set(P, 1j), TypeError, "threshold must be real"),
        (lambda: untyped.adaptive_set(P[:, :0], error=0.1), ValueError, "probabilities must have"),
        (
            lambda: untyped.adaptive_set(P.astype(int), error=0.1),
            TypeError,
            "probabilities must be",
        ),
        (lambda: untyped.adaptive_set(P, error=1.0), ValueError, "error must be .* less than 1"),
        (lambda: untyped.adaptive_set(P, error=-0.1), ValueError, "error must be at least 0"),
        (lambda: untyped.adaptive_set(P, error=NAN), ValueError, "error must be .* got nan"),
        (lambda: untyped.adaptive_set(P, error=[0.1]), ValueError, "error must be a scalar"),
        (lambda: untyped.average_k_threshold(P > 0, k=1), TypeError, "probabilities must be"),
        (lambda: untyped.average_k_threshold(P[:0], k=1), ValueError, "probabilities must have at"),
        (lambda: untyped.average_k_threshold(P, k=0.5), ValueError, "k must be from 1 to 3"),
        (lambda: untyped.average_k_threshold(P, k=3.01), ValueError, "k must be from 1 to 3"),
        (lambda: untyped.average_k_threshold(P, k=NAN), ValueError, "k must be a finite .* nan"),
        (lambda: untyped.average_k_threshold(P, k=True), TypeError, "k must be a real number"),
        (lambda: untyped.average_k_threshold(P, k="2"), TypeError, "k must be a real number"),
        (
            lambda: jax.jit(lambda k: untyped.average_k_threshold(P, k=k))(2),
            TypeError,
            "k must be a static number, got a traced value",
        ),
        (
            lambda: jax.eval_shape(
                lambda p: untyped.average_k_threshold(p, k=1),
                jax.ShapeDtypeStruct((2**16, 2**15), jnp.float32),
            ),
            ValueError,
            "probabilities must be fewer than 2.* AverageKCalibrator",
        ),
        (lambda: untyped.AverageKCalibrator(0, 5), ValueError, "k must be at least 1, got 0"),
        (lambda: untyped.AverageKCalibrator(np.inf, 5), ValueError, "k must be a finite number"),
        (lambda: untyped.AverageKCalibrator(None, 5), TypeError, "k must be a real number"),
        (lambda: untyped.AverageKCalibrator(2, 0), ValueError, "num_examples must be at least 1"),
        (lambda: untyped.AverageKCalibrator(2, 1.5), TypeError, "num_examples must be an integer"),
        (
            lambda: untyped.average_error_threshold(P > 0, error=0.1),
            TypeError,
            "probabilities must",
        ),
        (
            lambda: untyped.average_error_threshold(P[:0], error=0.1),
            ValueError,
            "probabilities must",
        ),
        (lambda: untyped.average_error_threshold(P, error=1), ValueError, "error must be .* less"),
        (lambda: untyped.average_error_threshold(P, error=None), TypeError, "error must be a real"),
        (lambda: untyped.conformal_threshold(P > 0, Y, error=0.1), TypeError, "probabilities must"),
        (lambda: untyped.conformal_threshold(P[:0], Y[:0], error=0.1), ValueError, "probabilities"),
        (lambda: untyped.conformal_threshold(P, P[:, 0], error=0.1), TypeError, "labels must be"),
        (lambda: untyped.conformal_threshold(P, Y[:1], error=0.1), ValueError, r"labels .* \(2,\)"),
        (lambda: untyped.conformal_threshold(P, Y, error=1.0), ValueError, "error must be .* less"),
        (
            lambda: untyped.conformal_threshold(P, Y, error=-1e-9),
            ValueError,
            "error must be at least",
        ),
        (lambda: untyped.conformal_threshold(P, Y, error=False), TypeError, "error must be a real"),
        (
            lambda: jax.jit(lambda error: untyped.conformal_threshold(P, Y, error=error))(0.1),
            TypeError,
            "error must be a static number, got a traced value",
        ),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_an_infinite_score_is_above_all_numbers():
    scores = jnp.array([[0.0, jnp.inf, 2.0], [-jnp.inf, 1.0, jnp.inf]])
    np.testing.assert_array_equal(
        sets.top_k_set(scores, k=1), [[False, True, False], [False, False, True]]
    )
    np.testing.assert_array_equal(
        sets.threshold_set(scores, 1.5), [[False, True, True], [False, False, True]]
    )
    np.testing.assert_array_equal(metrics.label_ranks(scores, jnp.array([1, 1])), [0, 1])
