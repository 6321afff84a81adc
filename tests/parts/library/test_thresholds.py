"""Calibrated thresholds: against float64 references and by what defines them."""

import math
import pickle
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parts.library.probabilities import (
    TINY,
    as_float64,
    properties,
    softmax_of,
    with_mean_sizes,
)
from topk_jax import sets

# Average-K thresholds


@properties
@given(with_mean_sizes())
def test_average_k_never_exceeds_k_and_is_the_largest_that_does_not(drawn):
    probabilities, k = drawn
    num_examples = probabilities.size // probabilities.shape[-1]
    threshold = np.asarray(sets.average_k_threshold(probabilities, k=k))
    allowed = math.floor(Fraction(str(k)) * num_examples)
    flushed = np.where(np.abs(probabilities) < TINY, np.float32(0), probabilities)
    # On XLA, which may take denormal numbers for 0, and in NumPy, which does not.
    by_xla = int(sets.threshold_set(probabilities, threshold).sum())
    for kept in (by_xla, (probabilities >= threshold).sum(), (flushed >= threshold).sum()):
        assert kept <= allowed
    assert threshold == 0 or abs(threshold) >= TINY
    # No smaller threshold would do: the next probability below would bring too many.
    below = flushed[flushed < threshold]
    assert below.size == 0 or (flushed >= below.max()).sum() > allowed


def test_average_k_takes_decimals_as_they_are_written():
    # In floats 1.15 * 100 is 114.99999999999999.
    probabilities = jnp.arange(200.0).reshape(100, 2) / 200
    threshold = sets.average_k_threshold(probabilities, k=1.15)
    assert sets.threshold_set(probabilities, threshold).sum() == 115
    assert sets.average_k_threshold(probabilities, k=np.float32(1.15)) == threshold


def test_average_k_threshold_of_ties_is_a_probability_that_occurs_or_infinity():
    # Two of four entries tie at the cut: the midpoint would keep three.
    tied = jnp.array([[0.5, 0.25], [0.25, 0.0]])
    assert sets.average_k_threshold(tied, k=1) == 0.5
    assert sets.average_k_threshold(jnp.full((3, 4), 0.25), k=2) == np.inf
    # All zeros but one: the tie at 0 must not bring them back, nor as a denormal number.
    assert sets.average_k_threshold(jnp.array([[0.0, 0.0, 1e-3], [0.0, 0.0, 0.0]]), k=1) == 1e-3


# The streaming calibrator


@properties
@given(with_mean_sizes(), st.data())
def test_calibrator_is_the_threshold_to_the_last_bit(drawn, data):
    probabilities, k = drawn
    num_classes = probabilities.shape[-1]
    rows = probabilities.reshape(-1, num_classes)
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4))
    calibrator = sets.AverageKCalibrator(k, len(rows))
    for index, batch in enumerate(np.split(rows, sorted(cuts))):
        calibrator.update(jnp.asarray(batch) if index % 2 else batch)
    expected = sets.average_k_threshold(probabilities, k=k)
    assert np.asarray(calibrator.threshold()).tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float32, np.float64])
def test_calibrator_sifts_many_batches(rng, dtype):
    probabilities = np.asarray(softmax_of(rng, 999, 30), dtype)
    calibrator = sets.AverageKCalibrator(1.5, 999)
    buffer = np.empty((64, 30), dtype)
    for start in range(0, 999, 64):
        batch = probabilities[start : start + 64]
        # The caller's memory, filled again for each batch.
        buffer[: len(batch)] = batch
        calibrator.update(buffer[: len(batch)])
        # floor(1.5 * 999) + 1 values of 4 bytes, the same number before they are sifted, and one
        # batch.
        assert len(pickle.dumps(calibrator)) <= 4 * (2 * 1499 + 64 * 30) + 1000
    buffer[:] = 1.0
    expected = sets.average_k_threshold(probabilities, k=1.5)
    assert calibrator.threshold() == expected == calibrator.threshold()
    assert expected.dtype == jnp.float32


def test_calibrator_takes_single_examples_of_any_batch_shape(rng):
    probabilities = softmax_of(rng, 2, 3, 4)
    calibrator = sets.AverageKCalibrator(2, 6)
    calibrator.update(probabilities[0, 0])
    calibrator.update(probabilities[:0])
    calibrator.update(probabilities[0, 1:])
    calibrator.update(probabilities[1])
    assert calibrator.threshold() == sets.average_k_threshold(probabilities, k=2)


def test_calibrator_refuses_wrong_batches_and_stays_as_it_was(rng):
    probabilities = softmax_of(rng, 4, 3)
    calibrator = sets.AverageKCalibrator(2, 4)
    calibrator.update(probabilities[:3])
    with pytest.raises(ValueError, match=r"num_examples = 4 examples must be given .* got 3"):
        calibrator.threshold()
    with pytest.raises(ValueError, match=r"batch must not exceed num_examples = 4 .* got 5"):
        calibrator.update(probabilities[:2])
    with pytest.raises(ValueError, match="batch must have 3 classes, as before, got 2"):
        calibrator.update(probabilities[:1, :2])
    with pytest.raises(TypeError, match="batch must be a concrete array, got a traced value"):
        jax.jit(calibrator.update)(probabilities[:1])
    calibrator.update(probabilities[3:])
    assert calibrator.threshold() == sets.average_k_threshold(probabilities, k=2)


# Average-error thresholds


@pytest.mark.parametrize("error", [0.0, 1e-4, 0.1, 0.75])
def test_average_error_threshold_is_the_largest_that_suffices(rng, error):
    probabilities = softmax_of(rng, 150, 1081)
    values = as_float64(probabilities)
    threshold = float(sets.average_error_threshold(probabilities, error=error))
    # Sums in float32 of blocks of 32, four levels of them here: at most 4 * 31 roundings of 6e-8.
    rounding = 4 * 31 * 2**-24 * error
    assert math.fsum(values[values < threshold]) / 150 <= error + rounding
    assert math.fsum(values[values <= threshold]) / 150 > error - rounding


# Conformal thresholds


@pytest.mark.parametrize("error", [0, 0.05, 0.1, 0.3, 0.5, 0.99])
def test_conformal_thresholds_keep_the_label_that_they_are_the_probability_of(rng, error):
    # 1 - (1 - p) would miss it if rounding makes it smaller.
    probabilities, labels = softmax_of(rng, 20, 4), rng.integers(4, size=20)
    threshold = sets.conformal_threshold(probabilities, labels, error=error)
    kept = np.asarray(sets.threshold_set(probabilities, threshold))[np.arange(20), labels]
    assert kept.sum() == min(math.ceil(21 * (1 - Fraction(str(error)))), 20)
