"""Exact intervals, and verdicts about promises, by their definitions and by repetition."""

import bisect
import functools
import math
from fractions import Fraction

import jax
import numpy as np
import pytest
from scipy import stats

from tests.rows import rows
from topk_jax import rules, sets
from topk_jax.rules import CalibratedOn, Promise
from train.reports import intervals, promises
from train.scores.observations import num_independent
from train.scores.scores import Scores, numbered


@pytest.mark.parametrize(
    ("hits", "number"), [(0, 5), (5, 5), (1, 1), (3, 40), (37, 40), (150, 199)]
)
def test_the_ends_are_where_so_extreme_numbers_of_hits_become_rare(hits, number):
    low, high = intervals.exact(np.arange(number) < hits)
    # By the definition; the ends are found to some twelve digits.
    tail = pytest.approx((1 - intervals.LEVEL) / 2, rel=1e-9)
    assert stats.binom.sf(hits - 1, number, low) == tail if hits else low == 0
    assert stats.binom.cdf(hits, number, high) == tail if hits < number else high == 1


def chances(hits, calibrated_on, number):
    """The chances of numbers of hits in sets with limits of so many examples."""
    covered = math.ceil((calibrated_on + 1) * Fraction(9, 10))
    return stats.betabinom.pmf(hits, number, covered, calibrated_on + 1 - covered)


def most_contradicting(calibrated_on, number):
    """The largest number of hits that contradicts a coverage of 0.9."""
    promise = Promise(0.9, CalibratedOn(calibrated_on, calibrated_on, ""))

    def is_allowed(hits):
        return not promises.is_contradicted(promise, hits / number, number)

    return bisect.bisect_left(range(number + 1), True, key=is_allowed) - 1


def rate_within(alarms, expected):
    """Whether the rate of alarms is within four standard deviations of the expected one."""
    return abs(alarms.mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / len(alarms))


@pytest.mark.parametrize(
    ("calibrated_on", "number", "of_worse"),
    [(72, 120, 0.23), (270, 500, 0.66), (270, 5000, 0.82), (1000, 1000, 0.97)],
)
def test_like_examples_seldom_contradict_a_promise_and_worse_ones_often(
    calibrated_on, number, of_worse
):
    most = most_contradicting(calibrated_on, number)
    expected = chances(np.arange(number + 1), calibrated_on, number)
    false_alarms = expected[: most + 1].sum()
    # As many as there may be, but for the steps of the numbers.
    assert 0.04 < false_alarms <= 0.05
    # Uniform scores, and the limits that the program has of them.
    rng = np.random.default_rng(7)
    quantile = functools.partial(sets.conformal_quantile, error=0.1)
    old = rng.random((2000, calibrated_on)).astype(np.float32)
    limits = np.asarray(jax.vmap(quantile)(old, np.zeros(old.shape, np.int32)))
    assert rate_within(rng.binomial(number, limits) <= most, false_alarms)
    worse = rng.binomial(number, np.maximum(limits - 0.05, 0))
    assert rate_within(worse <= most, of_worse)


def test_what_is_not_known_or_has_all_classes_is_not_contradicted():
    def verdict(coverage, number, share, new):
        on = None if number is None else CalibratedOn(number, number, "")
        return promises.is_contradicted(Promise(coverage, on), share, new)

    assert verdict(0.9, None, 0.1, 1000) is None
    assert verdict(0.9, 5, 0.1, 1000) is False
    assert verdict(0.0, 99, 0.0, 1000) is False
    # So many examples need no more memory than a million.
    assert verdict(0.9, 10**9, 0.89, 10**9) is True


def test_more_is_missed_than_allowed_with_the_given_probability():
    rng = np.random.default_rng(4)
    allowed = promises.allowed_error(Promise(0.9, CalibratedOn(99, 99, "")), 0.05)
    # The limit of 99 uniform scores is the 90th.
    missed = 1 - np.sort(rng.random((20_000, 99)), axis=1)[:, 89]
    assert rate_within(missed > allowed, 0.05)
    assert promises.allowed_error(Promise(0.9), 0.05) == 0.1


@pytest.mark.parametrize("are_alike", [True, False])
@pytest.mark.parametrize("are_of_one_size", [True, False])
def test_photographs_of_few_plants_count_as_few(are_of_one_size, are_alike):
    rng = np.random.default_rng(3)
    number = 60
    sizes = np.full(number, 4) if are_of_one_size else rng.geometric(0.25, number)
    of = np.repeat(np.arange(number), sizes)

    def drawn():
        scores = rng.random(number)[of] if are_alike else rng.random(len(of))
        return scores.astype(np.float32)[:, None]

    labels, groups = np.zeros(len(of), np.int32), of.astype(str).astype(object)
    same = dict.fromkeys(("labels", "ranks", "loss"), labels)
    independent = num_independent(Scores(**same, values=drawn(), classes=None, groups=groups))
    alarms = []
    for _ in range(400):
        old, new = drawn(), drawn()
        rule = rules.fit("coverage=0.9", old, labels, groups=numbered(groups)[1])
        share = np.asarray(rule(new)).mean()
        alarms.append(promises.is_contradicted(rule.promise, share, independent))
    # 5%, and four standard deviations.
    assert np.mean(alarms) <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / len(alarms))


def false_alarms_by_class(name, draws):
    """How often data of the same kind contradict the limits of a rule that has some by class."""
    rng = np.random.default_rng(11)
    num_classes, coverage = 20, 0.8
    frequencies = 1 / np.sqrt(np.arange(1, num_classes + 1))
    frequencies /= frequencies.sum()
    powers = rng.uniform(0.3, 3, num_classes)

    def drawn(number):
        labels = rng.choice(num_classes, number, p=frequencies)
        missing = rng.random(number) ** powers[labels]
        scores = np.repeat(missing[:, None] / (num_classes - 1), num_classes, axis=1)
        scores[np.arange(number), labels] = 1 - missing
        return scores.astype(np.float32), labels

    alarms = []
    for _ in range(draws):
        rule = rules.fit(f"{name}={coverage}", *drawn(1000))
        scores, labels = drawn(5000)
        hits = 1 - scores[np.arange(5000), labels] <= rule.limits[labels]
        alarms.append(promises.is_contradicted(rule.promise, hits.mean(), 5000))
    return np.array(alarms)


@pytest.mark.parametrize(
    ("name", "rate"),
    rows([("interpolated", 0.0)], [("class_conditional", 0.011), ("clustered", 0.05)]),
)
def test_limits_by_class_have_the_rates_of_more_draws(name, rate):
    alarms = false_alarms_by_class(name, 200)
    # The rates are of 2,000 draws. None of 200 is within four standard deviations of 0.
    assert rate_within(alarms, max(rate, 1 / len(alarms)))
