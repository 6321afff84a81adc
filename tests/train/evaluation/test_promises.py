"""Exact intervals by their definition and by repetition, and what is made of them."""

import math

import numpy as np
import pytest

from train.evaluation import promises
from train.evaluation.conformal_rules import RULES
from train.evaluation.promises import Share

TAIL = (1 - promises.LEVEL) / 2


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
    low, high = promises.clopper_pearson(hits, number)
    # By the definition; the quantiles of the beta distribution have some twelve digits.
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
    intervals = [promises.clopper_pearson(hits, number) for hits in range(number + 1)]
    covered = sum(
        chance
        for chance, (low, high) in zip(probabilities(number, of_hit), intervals, strict=True)
        if low <= of_hit <= high
    )
    assert covered >= promises.LEVEL


def test_copies_in_groups_make_intervals_as_wide_as_their_groups(rng):
    hits = rng.random(50) < 0.8
    copies, groups = np.repeat(hits, 4), np.repeat([f"group {index}" for index in range(50)], 4)
    by_group = promises.share_of(copies, groups)
    alone = promises.share_of(hits, None)
    # A share times its number is rounded.
    assert (by_group.low, by_group.high) == pytest.approx((alone.low, alone.high), rel=1e-12)
    narrow = promises.share_of(copies, None)
    assert narrow.high - narrow.low < 0.6 * (alone.high - alone.low)
    assert promises.share_of(hits, np.array([f"path {index}" for index in range(50)])) == alone


def test_groups_of_many_sizes_are_covered_in_repetitions(rng):
    sizes = np.array([1] * 40 + [2] * 20 + [3] * 10 + [15])
    groups = np.repeat([f"group {index}" for index in range(len(sizes))], sizes)
    repetitions, covered, naive = 600, 0, 0
    for _ in range(repetitions):
        # All examples of a group are hits, or none is: the hardest case.
        hits = np.repeat(rng.random(len(sizes)) < 0.8, sizes)
        for_groups, for_examples = promises.share_of(hits, groups), promises.share_of(hits, None)
        covered += for_groups.low <= 0.8 <= for_groups.high
        naive += for_examples.low <= 0.8 <= for_examples.high
    # Three standard errors of a share of 0.95 in 600 repetitions are 0.027.
    assert covered / repetitions > 0.95 - 0.027
    assert naive / repetitions < 0.9


def test_a_verdict_names_what_was_asked_and_what_is_there():
    below = Share(0.7, 0.66, 0.74)
    assert promises.verdict(0.8, below, "these images") == (
        "asked 0.8, got 0.700 (0.660 to 0.740): the promise does not hold on these images"
    )
    assert promises.holds(0.8, below) is False
    within = Share(0.79, 0.75, 0.83)
    assert promises.verdict(0.8, within, "these rows").endswith(
        "these rows do not contradict the promise"
    )
    assert promises.holds(0.8, within) is None
    above = Share(0.9, 0.8, 0.95)
    assert promises.verdict(0.8, above, "these rows").endswith("the promise holds on these rows")
    assert promises.holds(0.8, above) is True


def test_halfway_between_two_quantiles_less_is_promised():
    assert promises.promised(0.9, RULES["lac"]) == 0.9
    assert promises.promised(0.9, RULES["interpolated"]) == 0.8
    assert promises.promised(0.4, RULES["interpolated"]) == 0
