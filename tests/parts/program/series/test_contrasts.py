"""Paired differences: against all resamples, exact variances, simulation and published examples."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from train.series import contrasts
from train.series.contrasts import Contrast, contrast, equivalence, holm


def accuracy(hits, labels, *, macro):
    """By its definition."""
    if not macro:
        return hits.mean()
    return np.mean([hits[labels == one].mean() for one in np.unique(labels)])


def all_resamples(first, second, labels, *, macro):
    """The difference in every one of the equally likely resamples."""
    seeds = range(len(first))
    classes = [np.flatnonzero(labels == one) for one in np.unique(labels)]
    draws = [list(itertools.product(examples, repeat=len(examples))) for examples in classes]
    for drawn_seeds in itertools.product(seeds, repeat=len(first)):
        for drawn in itertools.product(*draws):
            chosen = np.concatenate(drawn).astype(int)
            yield np.mean(
                [
                    accuracy(first[one, chosen], labels[chosen], macro=macro)
                    - accuracy(second[one, chosen], labels[chosen], macro=macro)
                    for one in drawn_seeds
                ]
            )


@pytest.mark.parametrize("macro", [False, True])
def test_the_standard_error_is_that_of_all_resamples(macro):
    # Classes of three, two and one examples, not in order; class 4 does not occur.
    labels = np.array([2, 5, 2, 3, 5, 2])
    first = np.array([[1, 0, 1, 1, 0, 0], [1, 1, 0, 1, 0, 1]], np.bool_)
    second = np.array([[0, 0, 1, 0, 1, 0], [1, 0, 0, 1, 0, 0]], np.bool_)
    found = contrast(first, second, labels, macro=macro, num_resamples=100_000)
    every = np.array(list(all_resamples(first, second, labels, macro=macro)))
    expected = np.mean(
        [
            accuracy(one, labels, macro=macro) - accuracy(other, labels, macro=macro)
            for one, other in zip(first, second, strict=True)
        ]
    )
    # Sums of a few numbers in 64 bits.
    assert found.estimate == pytest.approx(expected, abs=1e-12)
    # Two seeds: a factor of sqrt(2 / 1). Four deviations of the deviation of 100,000 draws, whose
    # kurtosis is below a normal distribution's: 4 / sqrt(2 * 100,000).
    assert stats.kurtosis(every) < 0
    assert found.standard_error == pytest.approx(math.sqrt(2) * every.std(), rel=0.009)


def exact_standard_error(first, second, labels, *, macro):
    """The limit of infinitely many resamples: the variances of draws of either kind, and of both.

    Multinomial weights of m things have the covariance of m times the centring matrix, over m; the
    variance of a product of independent weights is the sum of three parts.
    """
    num_seeds = len(first)
    classes = np.unique(labels)
    differences = first.astype(float) - second
    of_examples = of_both = 0.0
    of_seeds = np.zeros(num_seeds)
    for one in classes:
        inside = differences[:, labels == one]
        share = 1 / len(classes) if macro else inside.shape[1] / len(labels)
        weight = (share / inside.shape[1]) ** 2
        by_example = inside - inside.mean(axis=1, keepdims=True)
        of_examples += weight * (by_example.mean(axis=0) ** 2).sum()
        centred = by_example - by_example.mean(axis=0)
        of_both += weight * (centred**2).sum() / num_seeds**2
        of_seeds += share * inside.mean(axis=1)
    variance = of_seeds.var() / num_seeds + of_examples + of_both
    return math.sqrt(variance * num_seeds / (num_seeds - 1))


@pytest.mark.parametrize("macro", [False, True])
def test_many_examples_are_resampled_in_parts(rng, macro, monkeypatch):
    # 2.3 million weights: three chunks; the last one is not full.
    labels = np.repeat([0, 3, 1], [200, 25, 5])[rng.permutation(230)]
    easy = rng.random((2, 4, 1)) * 0.5 + rng.random((2, 1, 230)) * 0.5
    first, second = rng.random((2, 4, 230)) < easy
    found = contrast(first, second, labels, macro=macro)
    # The deviation of 10,000 nearly normal numbers has a relative error of 1 / sqrt(20,000); four.
    expected = exact_standard_error(first, second, labels, macro=macro)
    assert found.standard_error == pytest.approx(expected, rel=4 / math.sqrt(20_000))
    again = contrast(first, second, labels, macro=macro)
    assert again == found
    # Every resample has its own seeds and examples, whatever the parts; sums are rounded otherwise.
    monkeypatch.setattr(contrasts, "_CHUNK", 900)
    again = contrast(first, second, labels, macro=macro)
    assert again.standard_error == pytest.approx(found.standard_error, rel=1e-12)
    other = contrast(first, second, labels, macro=macro, seed=1)
    assert other.standard_error != found.standard_error
    # A contrast the other way round is the same but for its sign.
    back = contrast(second, first, labels, macro=macro)
    assert back.estimate == -found.estimate
    assert back.standard_error == pytest.approx(found.standard_error, rel=1e-12)


def test_the_interval_is_students():
    rng = np.random.default_rng(1)
    first, second = rng.random((2, 5, 40)) < [[[0.8]], [[0.6]]]
    found = contrast(first, second, np.arange(40) % 4, macro=True, num_resamples=500)
    error = found.standard_error
    # Quantiles of t with 4 degrees of freedom, from a table with four digits.
    assert found.half_width == pytest.approx(2.7764 * error, rel=1e-4)
    # The t-test of that difference has the stated power, by SciPy's noncentral distribution.
    power = stats.nct.sf(stats.t.isf(0.025, 4), 4, found.minimal_detectable / error)
    assert power == pytest.approx(0.8, rel=1e-6)
    # SciPy's own distribution; rounding.
    expected = 2 * stats.t.sf(found.estimate / error, 4)
    assert 0 < found.p_value == pytest.approx(expected, rel=1e-9)
    back = contrast(second, first, np.arange(40) % 4, macro=True, num_resamples=500)
    assert back.p_value == pytest.approx(found.p_value, rel=1e-9)


def test_without_noise_the_answer_is_certain():
    hits = np.array([[True, False, True]] * 3)
    labels = np.array([0, 0, 1])
    assert contrast(hits, hits, labels, macro=True) == Contrast(0.0, 0.0, 0.0, 1.0, 0.0)
    all_hit, none = np.ones_like(hits), np.zeros_like(hits)
    found = contrast(all_hit, none, labels, macro=True)
    assert found.estimate == pytest.approx(1.0, abs=1e-12)
    # Sums of rounded shares.
    assert found.standard_error < 1e-12
    assert found.p_value < 1e-12
    assert equivalence(contrast(hits, hits, labels, macro=True), 0.01, 2) == 0.0


NUM_SIMULATIONS = 1000
TRUE_DIFFERENCE = 0.1


def coverage(rng, *, of_seeds, of_examples, of_both):
    """How often the interval has the true difference; the sizes are of uniform effects.

    Both classifiers have effects of seeds and of examples of their own, around probabilities of a
    hit of 0.45 and 0.55. What is left is drawn for each seed and example.
    """
    labels = np.repeat(np.arange(4), 30)
    covered = 0
    for _ in range(NUM_SIMULATIONS):

        def effects(size, *shape):
            return size * (2 * rng.random(shape) - 1)

        probabilities = (
            np.array([0.55, 0.45])[:, None, None]
            + effects(of_seeds, 2, 5, 1)
            + effects(of_examples, 2, 1, 120)
        )
        # A part of the draws is shared by the seeds of an example: with of_both = 0, all of it.
        shared = rng.random((2, 1, 120)) * np.ones((1, 5, 1))
        own = rng.random((2, 5, 120))
        draws = np.where(rng.random((2, 5, 120)) < of_both, own, shared)
        first, second = draws < probabilities
        found = contrast(first, second, labels, macro=True, num_resamples=200)
        covered += abs(found.estimate - TRUE_DIFFERENCE) <= found.half_width
    return covered / NUM_SIMULATIONS


# Four standard deviations of a frequency of 0.95 in this number of simulations.
CHANCE = 4 * math.sqrt(0.95 * 0.05 / NUM_SIMULATIONS)


def test_the_interval_covers_effects_of_seeds(rng):
    covered = coverage(rng, of_seeds=0.4, of_examples=0.0, of_both=1.0)
    # Effects of seeds have 97 % of the variance: the rest, counted three times, widens by 3 %. An
    # interval that is 3 % wider than Student's has 95.4 %.
    assert covered == pytest.approx(0.954, abs=CHANCE)


def test_the_interval_covers_effects_of_examples(rng):
    covered = coverage(rng, of_seeds=0.0, of_examples=0.3, of_both=0.0)
    # All seeds are right about the same examples. The estimate is nearly normal, and the interval
    # is 2.776 * sqrt(5 / 4) deviations to each side, although 1.96 would do: 99.8 %.
    assert 0.99 <= covered < 1


def test_the_interval_covers_all_effects_together(rng):
    covered = coverage(rng, of_seeds=0.05, of_examples=0.3, of_both=0.5)
    assert 0.95 - CHANCE <= covered <= 1


def test_holms_values_are_those_by_hand():
    # In order: 5 * 0.001, 4 * 0.01, 3 * 0.02, 2 * 0.02 and 0.9, each at least the one before.
    adjusted = holm([0.02, 0.9, 0.001, 0.02, 0.01])
    # Products of 64 bits.
    assert adjusted == pytest.approx([0.06, 0.9, 0.005, 0.06, 0.04], rel=1e-12)
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([0.3]) == [0.3]
    assert holm([]) == []


def test_holms_values_reject_what_the_steps_reject(rng):
    for _ in range(200):
        values = rng.random(6) ** 3
        adjusted = holm(values)
        for level in (0.01, 0.05, 0.2):
            # Holm's own words: the smallest value against alpha / m, the next against alpha /
            # (m - 1), and so on, until one is not rejected.
            rejected = set()
            for step, index in enumerate(np.argsort(values)):
                if values[index] > level / (6 - step):
                    break
                rejected.add(index)
            assert {index for index in range(6) if adjusted[index] <= level} == rejected


def test_equivalence_is_two_one_sided_tests(rng):
    # A paired sample: SciPy's one-sided tests against either end.
    for mean in (-0.4, 0.0, 0.3, 0.9):
        sample = rng.normal(mean, 0.5, size=12)
        error = float(sample.std(ddof=1)) / math.sqrt(12)
        found = equivalence(Contrast(float(sample.mean()), error, 0.0, 1.0, 0.0), 0.5, 11)
        lower = stats.ttest_1samp(sample, -0.5, alternative="greater").pvalue
        upper = stats.ttest_1samp(sample, 0.5, alternative="less").pvalue
        # Rounding of 64 bits; a p-value near 1 has lost some.
        assert found == pytest.approx(max(lower, upper), rel=1e-9)
    exact = Contrast(0.01, 0.0, 0.0, 0.0, 0.0)
    assert equivalence(exact, 0.02, 4) == 0.0
    assert equivalence(exact, 0.005, 4) == 1.0
