"""A monitor counts the same however the outcomes come, and seldom alarms without a reason."""

import json

import numpy as np
import pytest

from topk_jax.rules import CalibratedOn, Promise
from train.foundation import files
from train.foundation.errors import UserError
from train.monitoring.monitor import Monitor, Outcome, promise_of


def begun(coverage=0.9, number=199, delta=0.01):
    on = number and CalibratedOn(number, number, "")
    return Monitor.start("a rule", Promise(coverage, on), delta)


def outcomes(scores, threshold):
    """Outcomes of labels with some probabilities, whose sets have what reaches a threshold."""
    return [
        Outcome(bool(score < threshold), None if score < threshold else float(score), 1)
        for score in scores
    ]


def test_the_state_is_small_and_the_same_however_the_outcomes_come(rng):
    some = outcomes(rng.random(1300), 0.1)
    whole = begun().add(some)
    parts, begin = begun(), 0
    for size in (1, 255, 0, 256, 300, 488):
        parts = parts.add(some[begin : begin + size])
        begin += size
        # As a command leaves it, and the next one finds it.
        parts = begun().restored(json.loads(files.to_json(parts.to_plain())))
    kept = files.to_json(whole.to_plain())
    assert kept == files.to_json(parts.to_plain())
    assert len(kept) < 60_000
    assert (whole.count, whole.misses) == (1300, sum(one.missed for one in some))
    # Those of a figure.
    assert np.array_equal(whole.points[:, 0], np.arange(4, 1301, 4))


def test_an_alarm_is_told_with_its_outcome_and_stays(rng):
    some = outcomes(rng.random(600), 0.1)
    some += outcomes(rng.random(100), 0.6)
    found = begun().add(some)
    assert 600 < found.broken_at < 660
    assert begun().add(some[: found.broken_at - 1]).broken_at is None
    assert begun().add(some[: found.broken_at]).broken_at == found.broken_at
    after = found.add(outcomes(np.ones(2000), 0.1))
    assert (after.broken_at, after.exit_code) == (found.broken_at, 3)
    assert f"{found.broken_at:,}" in after.in_words()[2]


def test_false_alarms_are_as_rare_as_promised(rng):
    """Calibrations on 99 examples, each with 1,000 outcomes of the same law."""
    repetitions, delta = 200, 0.1
    start = begun(number=99, delta=delta)
    # The rank of the conformal threshold: the tenth smallest of 99 probabilities.
    limits = np.sort(rng.random((repetitions, 99)))[:, 9]
    alarms = sum(start.add(outcomes(rng.random(1000), limit)).exit_code > 0 for limit in limits)
    assert alarms / repetitions <= delta + 2 * np.sqrt(delta * (1 - delta) / repetitions)


def of_sets(rule, numbers=(270, 270), *, coverage=None):
    on = numbers and {"examples": numbers[0], "groups": numbers[1]}
    return promise_of({"rule": rule, "calibrated_on": on}, coverage)


@pytest.mark.parametrize(
    ("rule", "numbers", "coverage", "expected"),
    [
        ("coverage=0.9", (270, 270), None, (0.9, 270)),
        ("coverage=0.9, combine=maximum", (40, 40), None, (0.9, 40)),
        ("risk=0.1, costs=missed", (270, 270), None, (0.9, 270)),
        ("top_k=5", None, 0.95, (0.95, None)),
    ],
)
def test_the_promise_is_that_of_the_rule(rule, numbers, coverage, expected):
    found = of_sets(rule, numbers, coverage=coverage)
    on = found.calibrated_on
    assert (found.coverage, on and on.examples) == expected


@pytest.mark.parametrize(
    ("rule", "numbers", "coverage"),
    [
        ("top_k=5", None, None),
        ("coverage=0.9", (270, 270), 0.8),
        ("coverage=half", (270, 270), None),
        # A line of an earlier version.
        ("coverage=0.9", None, None),
    ],
)
def test_sets_without_a_promise_are_refused(rule, numbers, coverage):
    with pytest.raises(UserError):
        of_sets(rule, numbers, coverage=coverage)


def test_groups_of_alike_photographs_allow_what_their_number_allows(rng):
    """The errors of thresholds of 18 plants, each with four photographs that look the same."""
    monitor = Monitor.start("a rule", of_sets("coverage=0.8", (72, 18)), 0.3)
    # The 59th of 72 is of the 15th plant.
    errors = 1 - np.sort(rng.random((20000, 18)), axis=1)[:, 14]
    beyond = (errors > monitor.allowed_error).mean()
    # A third of delta; the program does not know that all of a plant look the same.
    assert 0.05 < beyond < 0.1 + 3 * np.sqrt(0.1 * 0.9 / 20000)
