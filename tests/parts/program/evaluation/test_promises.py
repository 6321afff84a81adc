"""Exact intervals by their definition and by repetition, and what is made of them."""

import math

import numpy as np
import pytest

from train.evaluation import intervals, promises
from train.evaluation.conformal_rules import RULES

TAIL = (1 - intervals.LEVEL) / 2


def exact(hits, number):
    return intervals.exact(np.arange(number) < hits)


def probabilities(number, of_hit):
    """The probability of each number of hits among independent draws."""
    return [
        math.comb(number, hits) * of_hit**hits * (1 - of_hit) ** (number - hits)
        for hits in range(number + 1)
    ]


@pytest.mark.parametrize(
    ("hits", "number"), [(0, 5), (5, 5), (1, 1), (3, 40), (37, 40), (150, 199)]
)
def test_the_ends_are_where_so_extreme_numbers_of_hits_become_rare(hits, number):
    low, high = exact(hits, number)
    # By the definition; the ends are found to some twelve digits.
    if hits:
        assert sum(probabilities(number, low)[hits:]) == pytest.approx(TAIL, rel=1e-9)
    else:
        assert low == 0
    if hits < number:
        assert sum(probabilities(number, high)[: hits + 1]) == pytest.approx(TAIL, rel=1e-9)
    else:
        assert high == 1


@pytest.mark.parametrize("of_hit", [0.02, 0.5, 0.8, 0.9, 0.97])
def test_of_all_repetitions_at_least_the_level_have_the_share_in_their_interval(of_hit):
    number = 60
    found = [exact(hits, number) for hits in range(number + 1)]
    covered = sum(
        chance
        for chance, (low, high) in zip(probabilities(number, of_hit), found, strict=True)
        if low <= of_hit <= high
    )
    assert covered >= intervals.LEVEL


def test_a_verdict_names_what_was_asked_and_what_is_there():
    below = (0.8, 0.7, 0.66, 0.74)
    assert promises.verdict(*below, "these images") == (
        "asked 0.8, got 0.700 (0.660 to 0.740): the promise does not hold on these images"
    )
    within = promises.verdict(0.8, 0.79, 0.75, 0.83, "these rows")
    assert within.endswith("these rows do not contradict the promise")
    above = promises.verdict(0.8, 0.9, 0.8, 0.95, "these rows")
    assert above.endswith("the promise holds on these rows")
    holds = [promises.holds(0.8, *ends) for ends in ((0.6, 0.79), (0.79, 0.81), (0.8, 0.9))]
    assert holds == [False, None, True]


def test_halfway_between_two_quantiles_less_is_promised():
    assert promises.promised(0.9, RULES["lac"]) == 0.9
    assert promises.promised(0.9, RULES["interpolated"]) == 0.8
    assert promises.promised(0.4, RULES["interpolated"]) == 0
