"""A monitor counts the same however the outcomes come, and seldom alarms without a reason."""

import numpy as np
import pytest

from train.evaluation import thresholds
from train.foundation.errors import UserError
from train.monitoring import promise, state_file
from train.monitoring.monitor import Monitor
from train.monitoring.outcome_lines import BEGIN, Outcome
from train.monitoring.promise import Promise
from train.monitoring.stream_tests import StreamTests

PROMISE = Promise("digest", "coverage=0.9", 0.9, 199, 0.01)


def outcomes(scores, threshold, rule=PROMISE.rule):
    """Outcomes of labels with some probabilities, whose sets have what reaches a threshold."""
    return [
        Outcome(rule, bool(score < threshold), None if score < threshold else float(score), 1)
        for score in scores
    ]


def begun(promised=PROMISE):
    return Monitor(promised, StreamTests.start(promised.allowed_error()))


def test_the_state_is_the_same_however_the_outcomes_come(rng, tmp_path):
    some = outcomes(rng.random(1300), 0.1)
    whole = begun().add(some)
    parts, begin = begun(), 0
    for size in (1, 255, 0, 256, 300, 488):
        parts = parts.add(some[begin : begin + size])
        begin += size
        # As a command leaves it, and the next one finds it.
        state_file.write(tmp_path / "parts.json", parts, BEGIN)
        parts, _ = state_file.read(tmp_path / "parts.json")
    state_file.write(tmp_path / "whole.json", whole, BEGIN)
    assert (tmp_path / "whole.json").read_bytes() == (tmp_path / "parts.json").read_bytes()
    assert whole.count == 1300
    assert whole.misses == sum(one.missed for one in some)
    # Small, however many outcomes.
    assert len(whole.curve.points) <= 500
    assert whole.curve.step == 4
    assert (tmp_path / "whole.json").stat().st_size < 60_000


def test_an_alarm_is_told_with_its_outcome_and_stays(rng):
    some = outcomes(rng.random(600), 0.1)
    some += outcomes(rng.random(100), 0.6)
    found = begun().add(some)
    assert 600 < found.broken_at < 660
    assert begun().add(some[: found.broken_at - 1]).broken_at is None
    assert begun().add(some[: found.broken_at]).broken_at == found.broken_at
    after = found.add(outcomes(np.ones(2000), 0.1))
    assert after.broken_at == found.broken_at
    assert f"the promise is broken: noticed at outcome {found.broken_at:,}" in after.in_words()[2]


def test_scores_that_change_are_another_alarm(rng):
    """The probabilities of the labels fall, and none is below the threshold."""
    some = outcomes(0.6 + 0.4 * rng.random(500), 0.1) + outcomes(0.4 * rng.random(500) + 0.2, 0.1)
    found = begun().add(some)
    assert found.broken_at is None
    assert 500 < found.changed_at < 700


def test_false_alarms_are_as_rare_as_promised(rng):
    """Calibrations on 99 examples, each with 1,000 outcomes of the same law."""
    repetitions, delta = 200, 0.1
    promised = Promise("digest", "coverage=0.9", 0.9, 99, delta)
    alarms = 0
    for _ in range(repetitions):
        # The rank of the conformal threshold: the tenth smallest of 99 probabilities.
        threshold = np.sort(rng.random(99))[9]
        some = outcomes(rng.random(1000), threshold)
        alarms += begun(promised).add(some).is_alarmed
    assert alarms / repetitions <= delta + 2 * np.sqrt(delta * (1 - delta) / repetitions)


def test_what_is_allowed_is_a_quantile_of_the_calibration(rng):
    """The error of a threshold of 99 uniform scores, given the scores, is one of these."""
    promised = Promise("digest", "coverage=0.9", 0.9, 99, 0.3)
    errors = np.sort(rng.random((20000, 99)), axis=1)[:, 9]
    beyond = (errors > promised.allowed_error()).mean()
    # A third of delta, within three standard errors.
    assert abs(beyond - 0.1) < 3 * np.sqrt(0.1 * 0.9 / 20000)
    exact = Promise("digest", "top_k=5", 0.9, None, 0.3)
    assert exact.allowed_error() == pytest.approx(0.1)
    few = Promise("digest", "coverage=0.99", 0.99, 50, 0.3)
    assert few.allowed_error() == pytest.approx(float(thresholds.error_of(0.99)))


RESULTS = {
    "parameters_digest": "digest",
    "evaluated": {"validation": {"groups": {"all": {"examples": 270}}}},
}


@pytest.mark.parametrize(
    ("rule", "coverage", "calibrated_on", "expected"),
    [
        ("coverage=0.9", None, None, (0.9, 270)),
        ("coverage=0.9, rule=interpolated", None, None, (0.8, 270)),
        ("coverage=0.9, combine=maximum", None, 40, (0.9, 40)),
        ("average_k=5", 0.95, None, (0.95, None)),
        ("risk=0.1, costs=missed", None, None, (0.9, 270)),
        ("risk=0.1, costs=macro", 0.8, None, (0.8, None)),
    ],
)
def test_the_promise_is_that_of_the_rule(rule, coverage, calibrated_on, expected):
    found = promise.of_rule(
        RESULTS, {}, rule, coverage=coverage, calibrated_on=calibrated_on, delta=0.01
    )
    assert (found.coverage, found.calibrated_on) == expected


@pytest.mark.parametrize(
    ("rule", "coverage", "message"),
    [
        ("top_k=5", None, "--coverage"),
        ("coverage=0.9", 0.8, "--coverage"),
        ("risk=1, costs=missed", None, "a coverage from 0 to 1"),
        ("coverage=0.9, combine=maximum", None, "--calibrated_on"),
    ],
)
def test_a_rule_without_a_promise_needs_one(rule, coverage, message):
    with pytest.raises(UserError, match=message):
        promise.of_rule(RESULTS, {}, rule, coverage=coverage, calibrated_on=None, delta=0.01)


def test_groups_of_alike_photographs_allow_what_their_number_allows(rng, tmp_path):
    """The errors of thresholds of 18 plants, each with four photographs that look the same."""
    kept = {
        "coverage_0.8": 0.1,
        "calibrated_on": [72.0, 18.0],
        "observations_maximum_calibrated_on": [18.0, 18.0],
    }
    asked = {"coverage": None, "calibrated_on": None, "delta": 0.3}
    of_photographs = promise.of_rule(RESULTS, kept, "coverage=0.8", **asked)
    # The 59th of 72 is of the 15th plant.
    errors = 1 - np.sort(rng.random((20000, 18)), axis=1)[:, 14]
    beyond = (errors > of_photographs.allowed_error()).mean()
    # A third of delta; the program does not know that all of a plant look the same.
    assert 0.05 < beyond < 0.1 + 3 * np.sqrt(0.1 * 0.9 / 20000)
    by_flag = promise.of_rule(RESULTS, kept, "coverage=0.8", **asked | {"calibrated_on": 18})
    of_plants = promise.of_rule(RESULTS, kept, "coverage=0.8, combine=maximum", **asked)
    assert by_flag.allowed_error() == of_plants.allowed_error()
    words = begun(of_photographs).add(outcomes(np.ones(3), 0.1, "coverage=0.8")).in_words()[1]
    assert "because 72 examples in groups, like 18 independent ones, calibrate it" in words
    # As a command leaves it, and the next one finds it.
    state_file.write(tmp_path / "state.json", begun(of_photographs), BEGIN)
    assert state_file.read(tmp_path / "state.json")[0].promise == of_photographs


def test_a_damaged_state_is_refused(tmp_path):
    path = tmp_path / "state.json"
    state_file.write(path, begun(), BEGIN)
    content = path.read_bytes()
    for damaged in (content.replace(b'"lines": 0', b'"lines": 9'), content[:100]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=str(path)):
            state_file.read(path)
