"""A monitor counts the same however the outcomes come, and seldom alarms without a reason."""

import json

import numpy as np
import pytest

from topk_jax.rules import CalibratedOn
from train.foundation import json_files
from train.foundation.errors import UserError
from train.monitoring import promise
from train.monitoring.monitor import Monitor, Outcome
from train.monitoring.promise import Promise


def promised(coverage=0.9, number=199, delta=0.01):
    return Promise("digest", "a rule", delta, coverage, number and CalibratedOn(number, number, ""))


def outcomes(scores, threshold):
    """Outcomes of labels with some probabilities, whose sets have what reaches a threshold."""
    return [
        Outcome(bool(score < threshold), None if score < threshold else float(score), 1)
        for score in scores
    ]


def begun(its_promise=None):
    return Monitor.start(its_promise or promised())


def test_the_state_is_small_and_the_same_however_the_outcomes_come(rng):
    some = outcomes(rng.random(1300), 0.1)
    whole = begun().add(some)
    parts, begin = begun(), 0
    for size in (1, 255, 0, 256, 300, 488):
        parts = parts.add(some[begin : begin + size])
        begin += size
        # As a command leaves it, and the next one finds it.
        parts = begun().restored(json.loads(json_files.sealed(parts.to_plain())))
    kept = json_files.sealed(whole.to_plain())
    assert kept == json_files.sealed(parts.to_plain())
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
    assert f"the promise is broken: noticed at outcome {found.broken_at:,}" in after.in_words()[2]


def test_false_alarms_are_as_rare_as_promised(rng):
    """Calibrations on 99 examples, each with 1,000 outcomes of the same law."""
    repetitions, delta = 200, 0.1
    start = begun(promised(number=99, delta=delta))
    # The rank of the conformal threshold: the tenth smallest of 99 probabilities.
    limits = np.sort(rng.random((repetitions, 99)))[:, 9]
    alarms = sum(start.add(outcomes(rng.random(1000), limit)).exit_code > 0 for limit in limits)
    assert alarms / repetitions <= delta + 2 * np.sqrt(delta * (1 - delta) / repetitions)


def test_what_is_allowed_is_a_quantile_of_the_calibration(rng):
    """The error of a threshold of 99 uniform scores, given the scores, is one of these."""
    errors = np.sort(rng.random((20000, 99)), axis=1)[:, 9]
    beyond = (errors > promised(number=99, delta=0.3).allowed_error()).mean()
    # A third of delta, within three standard errors.
    assert abs(beyond - 0.1) < 3 * np.sqrt(0.1 * 0.9 / 20000)
    # Nothing is calibrated, or sets have all classes.
    for coverage, number in ((0.9, None), (0.99, 50)):
        assert promised(coverage, number).allowed_error() == pytest.approx(1 - coverage)


def of_sets(rule, numbers=(270, 270), *, coverage=None, delta=0.01):
    sets = {"rule": rule}
    if numbers is not None:
        sets["calibrated_on"] = {"examples": numbers[0], "groups": numbers[1]}
    return promise.of_sets(sets, "digest", coverage=coverage, delta=delta)


@pytest.mark.parametrize(
    ("rule", "numbers", "coverage", "expected"),
    [
        ("coverage=0.9", (270, 270), None, (0.9, 270)),
        ("coverage=0.9, rule=interpolated", (270, 270), None, (0.8, 270)),
        ("coverage=0.9, combine=maximum", (40, 40), None, (0.9, 40)),
        ("average_k=5", (270, 270), 0.95, (0.95, None)),
        ("risk=0.1, costs=missed", (270, 270), None, (0.9, 270)),
        ("risk=0.1, costs=macro", (270, 270), 0.8, (0.8, None)),
        ("top_k=5", None, 0.95, (0.95, None)),
    ],
)
def test_the_promise_is_that_of_the_rule(rule, numbers, coverage, expected):
    found = of_sets(rule, numbers, coverage=coverage)
    on = found.calibrated_on
    assert (found.coverage, on and on.examples) == expected


@pytest.mark.parametrize(
    ("rule", "numbers", "coverage", "message"),
    [
        ("top_k=5", None, None, "--coverage"),
        ("coverage=0.9", (270, 270), 0.8, "--coverage"),
        ("coverage=half", (270, 270), None, "coverage"),
        # A line of an earlier version.
        ("coverage=0.9", None, None, "calibrated_on"),
    ],
)
def test_sets_without_a_promise_are_refused(rule, numbers, coverage, message):
    with pytest.raises(UserError, match=message):
        of_sets(rule, numbers, coverage=coverage)


def test_groups_of_alike_photographs_allow_what_their_number_allows(rng):
    """The errors of thresholds of 18 plants, each with four photographs that look the same."""
    of_photographs = of_sets("coverage=0.8", (72, 18), delta=0.3)
    # The 59th of 72 is of the 15th plant.
    errors = 1 - np.sort(rng.random((20000, 18)), axis=1)[:, 14]
    beyond = (errors > of_photographs.allowed_error()).mean()
    # A third of delta; the program does not know that all of a plant look the same.
    assert 0.05 < beyond < 0.1 + 3 * np.sqrt(0.1 * 0.9 / 20000)
    words = begun(of_photographs).add(outcomes(np.ones(3), 0.1)).in_words()[1]
    assert "because 72 examples in groups, like 18 independent ones, calibrate it" in words
