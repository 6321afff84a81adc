"""Means and paired differences: all resamples, simulation, SciPy's tests."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from train.study import statistics
from train.study.statistics import Estimate, holm, mean


def difference(first, second, labels, *, macro):
    return statistics.difference(first.astype(float) - second, labels, macro=macro)


def all_resamples(hits, labels, *, macro):
    """The difference in every one of the equally likely resamples."""
    classes = [np.flatnonzero(labels == one) for one in np.unique(labels)]
    draws = [list(itertools.product(examples, repeat=len(examples))) for examples in classes]
    for drawn_seeds in itertools.product(hits, repeat=len(hits)):
        for drawn in itertools.product(*draws):
            of_classes = [np.array(drawn_seeds)[:, list(one)] for one in drawn]
            means = [one.mean() for one in of_classes]
            yield np.mean(means) if macro else np.concatenate(of_classes, axis=1).mean()


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("macro", [False, True])
def test_the_error_of_a_difference_is_that_of_all_resamples(macro, seeds):
    # Classes of three, two and one examples, not in order; class 4 does not occur.
    labels = np.array([2, 5, 2, 3, 5, 2])
    first = np.array([[1, 0, 1, 1, 0, 0], [1, 1, 0, 1, 0, 1]], np.bool_)[:seeds]
    second = np.array([[0, 0, 1, 0, 1, 0], [1, 0, 0, 1, 0, 0]], np.bool_)[:seeds]
    found = difference(first, second, labels, macro=macro)
    every = np.array(list(all_resamples(first.astype(float) - second, labels, macro=macro)))
    # Sums of a few numbers in 64 bits. The mean of all resamples is the difference itself.
    assert found.value == pytest.approx(every.mean(), abs=1e-12)
    variance = 2 / 1 * every.var()
    if seeds == 1:
        # Half an example more each way; the six weigh 1 / 6, or 1 / 9, 1 / 6 and 1 / 3 by class.
        weights = [1 / 9] * 3 + [1 / 6] * 2 + [1 / 3] if macro else [1 / 6]
        variance = every.var() + np.mean(np.square(weights))
    assert found.error == pytest.approx(math.sqrt(variance), rel=1e-9)
    usual = ("test examples", math.inf) if seeds == 1 else ("seeds and test examples", 1)
    assert (found.noise, found.freedom) == usual
    back = difference(second, first, labels, macro=macro)
    assert (back.value, back.error) == pytest.approx((-found.value, found.error), rel=1e-12)


def test_without_noise_the_answer_is_certain():
    hits, labels = np.array([[True, False, True]] * 3), np.array([0, 0, 1])
    same = difference(hits, hits, labels, macro=True)
    numbers = (same.value, same.half_width, same.p_value, same.detectable, same.equivalence(0.01))
    assert numbers == (0.0, 0.0, 1.0, 0.0, 0.0)
    # But one seed has not seen enough examples.
    assert difference(hits[:1], hits[:1], labels, macro=True).half_width > 0.5
    exact = Estimate(0.01, 0.0, 4, "seeds")
    assert (exact.p_value, exact.equivalence(0.02), exact.equivalence(0.005)) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("of_seeds", "of_examples", "of_both"), [(0.4, 0.0, 1.0), (0.05, 0.3, 0.5)]
)
def test_the_interval_of_a_difference_covers_what_is_true(rng, of_seeds, of_examples, of_both):
    labels, covered = np.repeat(np.arange(4), 30), 0
    centre = np.array([0.55, 0.45])[:, None, None]
    for _ in range(1000):
        seeds, examples = rng.uniform(-1, 1, (2, 5, 1)), rng.uniform(-1, 1, (2, 1, 120))
        # A part of the draws is shared by the seeds of an example.
        shared, own = rng.random((2, 1, 120)), rng.random((2, 5, 120))
        draws = np.where(rng.random((2, 5, 120)) < of_both, own, shared)
        first, second = draws < centre + of_seeds * seeds + of_examples * examples
        found = difference(first, second, labels, macro=True)
        covered += abs(found.value - 0.1) <= found.half_width
    # Less four standard deviations of a frequency.
    assert covered / 1000 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 1000)


def test_one_seed_has_the_noise_of_the_test_examples():
    assert math.isnan(mean([0.5]).half_width)
    found = mean([0.75], examples=400)
    assert (found.value, found.noise) == (0.75, "test examples")
    # 1.96 * sqrt(p (1 - p) / n), moved by four of 400 examples.
    assert found.half_width == pytest.approx(1.96 * math.sqrt(0.75 * 0.25 / 400), rel=0.01)
    # 72 of 72 hits are not certain: by the exact interval, 95 % has room down to 95 %.
    assert 0.01 < mean([1.0], examples=72).half_width < 0.06


def test_the_tests_of_a_difference_are_scipys(rng):
    sample = rng.normal(0.3, 0.5, size=12)
    found = mean(sample)
    # Rounding of 64 bits.
    assert found.p_value == pytest.approx(stats.ttest_1samp(sample, 0).pvalue, rel=1e-9)
    lower = stats.ttest_1samp(sample, -0.5, alternative="greater").pvalue
    upper = stats.ttest_1samp(sample, 0.5, alternative="less").pvalue
    assert found.equivalence(0.5) == pytest.approx(max(lower, upper), rel=1e-9)
    # A true difference of that size is found with the stated power.
    power = stats.nct.sf(stats.t.isf(0.025, 11), 11, found.detectable / found.error)
    assert power == pytest.approx(0.8, rel=1e-6)
    normal = Estimate(0.3, 0.1, math.inf, "test examples")
    assert normal.p_value == pytest.approx(2 * stats.norm.sf(3), rel=1e-9)
    assert normal.detectable == pytest.approx(0.28016, rel=1e-3)


def test_holms_values_are_those_by_hand():
    # In order: 5 * 0.001, 4 * 0.01, 3 * 0.02, 2 * 0.02 and 0.9, each at least the one before.
    adjusted = holm([0.02, 0.9, 0.001, 0.02, 0.01])
    assert adjusted == pytest.approx([0.06, 0.9, 0.005, 0.06, 0.04], rel=1e-12)
    assert (holm([0.7, 0.6]), holm([])) == ([1.0, 1.0], [])
