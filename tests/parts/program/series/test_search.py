"""Which candidates a random search draws, and at which ends it is extended."""

import math

import numpy as np
import pytest

from train.series import search as searches
from train.series.parameters import Choice, Range

RATE = Range("rate", 1e-4, 1e-1, "log", None, None)
MARGIN = Range("margin", 0.1, 1.1, "linear", None, None)
METHOD = Choice("method", ("sort", "sample"))


def values(search, name):
    return [dict(candidate)[name] for candidate in search.candidates]


def test_the_draws_are_uniform_on_their_scale():
    search = searches.begin((RATE, MARGIN, METHOD), 4000, 0)
    rates, margins = values(search, "rate"), values(search, "margin")
    places = (np.log10(rates) + 4) / 3
    for drawn in (places, np.array(margins) - 0.1):
        assert 0 <= drawn.min() <= drawn.max() <= 1
        # Kolmogorov and Smirnov: exceeded with a probability of 1e-6.
        assert np.abs(np.sort(drawn) - np.linspace(0, 1, len(drawn))).max() < 0.043
    # The fields are independent: seven standard deviations.
    assert abs(np.corrcoef(places, margins)[0, 1]) < 7 / math.sqrt(4000)
    counts = [values(search, "method").count(one) for one in METHOD.values]
    assert abs(counts[0] - counts[1]) < 7 * math.sqrt(4000)
    assert all(rate == float(f"{rate:.4g}") for rate in rates)


def test_the_draws_are_a_function_of_the_seed_and_the_name_of_the_field():
    search = searches.begin((RATE, MARGIN), 5, 3)
    assert search.candidates == searches.begin.__wrapped__((RATE, MARGIN), 5, 3).candidates
    # Another arm with this field draws the same values of it.
    assert values(searches.begin((METHOD, RATE), 5, 3), "rate") == values(search, "rate")
    assert values(searches.begin((RATE,), 5, 4), "rate") != values(search, "rate")
    # More candidates are more of the same.
    assert searches.begin((RATE, MARGIN), 9, 3).candidates[:5] == search.candidates


def test_choices_alone_are_all_tried_once():
    other = Choice("k", (1, 3, 5))
    assert searches.begin((METHOD, other), 12, 0).candidates == tuple(
        (("method", method), ("k", k)) for method in METHOD.values for k in (1, 3, 5)
    )
    few = searches.begin((METHOD, other), 4, 0).candidates
    assert len(set(few)) == 4
    assert searches.begin((), 12, 0).candidates == ((),)


def test_a_range_that_has_fewer_values_than_are_wanted_gives_them_all():
    narrow = Range("narrow", 1.0, 1.002, "linear", None, None)
    search = searches.begin((narrow,), 12, 0)
    assert sorted(values(search, "narrow")) == [1.0, 1.001, 1.002]
    # No candidate is tried again.
    longer = searches.extended(search, (("narrow", 1.002),))
    assert values(longer, "narrow")[3:] == [1.003]


@pytest.mark.parametrize(
    ("rate", "margin", "sides"),
    [
        (1e-2, 0.5, None),
        # 10 % of three decades from 1e-4: 2e-4 is at the end, 2.1e-4 is not.
        (1.99e-4, 0.5, {"rate": "low"}),
        (2.0e-4, 0.5, None),
        (5.02e-2, 0.5, {"rate": "high"}),
        (5.0e-2, 0.5, None),
        (1e-2, 0.2, {"margin": "low"}),
        (1e-2, 0.99, None),
        (1e-2, 1.01, {"margin": "high"}),
        (1e-4, 1.1, {"rate": "low", "margin": "high"}),
    ],
)
def test_a_search_is_extended_where_the_best_is_at_an_end(rate, margin, sides):
    search = searches.begin((RATE, MARGIN), 12, 0)
    longer = searches.extended(search, (("rate", rate), ("margin", margin)))
    if sides is None:
        assert longer is None
    else:
        assert longer.extensions[0].sides == sides


def test_an_extension_draws_in_the_new_part_and_the_outer_tenth():
    search = searches.begin((RATE, MARGIN, METHOD), 12, 0)
    best = (("rate", 1.2e-4), ("margin", 0.5), ("method", "sort"))
    longer = searches.extended(search, best)
    assert longer.candidates[:12] == search.candidates
    assert len(longer.candidates) == 16
    rate, margin, method = longer.space
    # Half of three decades.
    assert rate == Range("rate", 3.162e-6, 1e-1, "log", None, None)
    assert (margin, method) == (MARGIN, METHOD)
    (extension,) = longer.extensions
    assert (extension.first, extension.ranges) == (12, {"rate": rate})
    new = [dict(candidate) for candidate in longer.candidates[12:]]
    assert all(3.162e-6 <= one["rate"] <= 1.996e-4 for one in new)
    # The others are drawn again, and anywhere.
    assert {one["margin"] for one in new}.isdisjoint(values(search, "margin"))
    high = searches.extended(search, (*best[:1], ("margin", 1.1), best[2]))
    assert [one.name for one in high.extensions[0].ranges.values()] == ["rate", "margin"]
    assert high.space[1] == Range("margin", 0.1, 1.6, "linear", None, None)
    assert all(1.0 <= dict(one)["margin"] <= 1.6 for one in high.candidates[12:])


def test_limits_and_rounds_end_the_extensions():
    limited = Range("margin", 0.1, 1.1, "linear", 0.1, 1.3)
    search = searches.begin((limited,), 12, 0)
    assert searches.extended(search, (("margin", 0.1),)) is None
    longer = searches.extended(search, (("margin", 1.1),))
    assert longer.space[0].end == 1.3
    assert searches.extended(longer, (("margin", 1.3),)) is None
    search = searches.begin((RATE,), 12, 0)
    for _ in range(searches.ROUNDS):
        search = searches.extended(search, (("rate", search.space[0].start),))
    assert len(search.candidates) == 12 + 4 * 3
    assert len(set(search.candidates)) == 24
    assert searches.extended(search, (("rate", search.space[0].start),)) is None
    assert searches.furthest(RATE, "low") == search.space[0].start
    assert searches.furthest(limited, "high") == 1.3
