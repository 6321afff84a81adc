"""Sets and tests of a stream, beside loops in float64 and on known laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import drift, metrics, sets

# Sums of a thousand terms in float32.
ROUNDING = 1e-4
REPETITIONS = 400


def scan(state, *inputs, seen=lambda state: state):
    """What is seen of the states after each outcome."""

    def update(state, given):
        state = state.update(*given)
        return state, seen(state)

    return jax.lax.scan(update, state, inputs)[1]


# Probability delta of a false alarm: a standard error of 0.011 for 0.05 and 400 repetitions.
DELTA = 0.05
MOST_FALSE = DELTA + 2 * np.sqrt(DELTA * (1 - DELTA) / REPETITIONS)


def found_and_seldom_false(alarms, after_1500):
    """The alarms of a change after 1500 outcomes, beside those of none."""
    found = np.asarray(after_1500)
    assert np.asarray(alarms)[:, -1].mean() <= MOST_FALSE
    assert found[:, :1500].any(axis=1).mean() <= MOST_FALSE
    assert found[:, -1].mean() >= 0.99
    return found


def test_the_coverage_test_seldom_alarms_and_finds_a_drop(rng):
    """With exactly the promised error for a long time, and three times as much after it."""
    start = drift.CoverageTest.start(error=0.1)
    alarms = jax.jit(
        jax.vmap(lambda missed: scan(start, missed, seen=lambda s: s.rejects(delta=DELTA)))
    )
    good = rng.random((REPETITIONS, 2000)) < 0.1
    dropped = good.copy()
    dropped[:, 1500:] = rng.random((REPETITIONS, 500)) < 0.3
    found = found_and_seldom_false(alarms(good), alarms(dropped))
    # The logarithm of a good bet grows by 0.15 an outcome; 3 for delta, 2 for its size and 11 for
    # its beginning are needed.
    assert np.median(found.argmax(axis=1)) < 1500 + (3 + 2 + 11) / 0.15


def test_the_interval_holds_at_all_times_in_a_drift(rng):
    # The probability of a hit rises and falls.
    chances = 0.85 + 0.1 * np.sin(np.arange(1500) / 200)
    counts = np.broadcast_to(np.arange(1, 1501), (REPETITIONS, 1500))
    hits = (rng.random(counts.shape) < chances).cumsum(axis=1)
    # Most repetitions have the same outcomes at some time.
    pairs = np.stack([hits.ravel(), counts.ravel()])
    different, places = np.unique(pairs, axis=1, return_inverse=True)
    intervals = metrics.anytime_interval(*different, level=1 - DELTA)
    low, high = (np.asarray(end)[places].reshape(counts.shape) for end in intervals)
    mean = chances.cumsum() / counts[0]
    outside = ((mean < low) | (mean > high)).any(axis=1)
    assert outside.mean() <= MOST_FALSE


def test_intervals_of_rare_hits_among_many_outcomes():
    hits, count = np.array([0, 1, 50]), 10**9
    low, high = metrics.anytime_interval(hits, np.full(3, count))
    expected = reference.anytime_interval(hits, np.full(3, count))
    # The search halves an interval of 1 forty times, and the smallest bound is 3e-10.
    np.testing.assert_allclose((low, high), expected, rtol=5e-3)
    others = metrics.anytime_interval(count - hits, np.full(3, count))
    np.testing.assert_array_equal(others, (1 - high, 1 - low))


def test_intervals_without_outcomes_and_of_impossible_counts():
    low, high = metrics.anytime_interval(jnp.array([0, -1, 3]), jnp.array([0, 5, 2]))
    np.testing.assert_array_equal(low, [0, np.nan, np.nan])
    np.testing.assert_array_equal(high, [1, np.nan, np.nan])


def after(start, num_outcomes, outcome_of):
    """The state after outcomes that are known by their number."""

    def update(number, state):
        return state.update(outcome_of(number))

    return jax.jit(lambda state: jax.lax.fori_loop(0, num_outcomes, update, state))(start)


STREAMS = {
    "coverage": (drift.CoverageTest.start, {"error": 0.1}, lambda number: number % 10 == 9),
    "no misses": (drift.CoverageTest.start, {"error": 0.001}, lambda number: number < 0),
    "change": (drift.JumperMartingale.start, {}, lambda number: (number % 64 + 0.5) / 64),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_the_evidence_of_many_outcomes_does_not_drift(stream):
    """Equal outcomes are rounded alike, so that the roundings of float32 would add up."""
    start, given, outcome_of = STREAMS[stream]

    def evidence():
        wealth = after(start(**given), 100_000, outcome_of).wealth
        return np.asarray(wealth.log_value()), np.asarray(wealth.log_capital)

    found = evidence()
    with jax.enable_x64():
        expected = evidence()
    for logarithm, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(logarithm, exact, rtol=4 * 2**-24, atol=ROUNDING)


@pytest.mark.parametrize("rate", [1e-5, 1e-7])
def test_the_errors_of_slow_rates_do_not_drift(rate):
    scores = jnp.linspace(0, 1, 99, dtype=jnp.float32)
    start = drift.AdaptiveQuantile.start(scores, error=0.5, rates=[rate])
    # The highest score is in no set, the lowest one in all: a quarter is missed.
    found = after(start, 100_000, lambda number: jnp.where(number % 4 == 0, jnp.inf, -1.0))
    exact = np.float64(start.rates[0]) * 100_000 * (0.5 - 0.25)
    np.testing.assert_allclose(found.errors, 0.5 + exact, rtol=2 * 2**-24)


def test_a_p_value_outside_of_0_and_1_is_a_fault_of_the_caller():
    before = drift.JumperMartingale.start().update(0.25)
    assert np.isnan(jax.jit(before.update)(1.5).wealth.log_value())


def test_a_calibration_score_that_is_no_number_makes_the_quantile_nan():
    state = drift.AdaptiveQuantile.start(jnp.array([0.1, 0.2, jnp.nan, 0.3]), error=0.5)
    assert np.isnan(state.quantile())
    # Its empty sets miss every label, so that the error falls.
    assert state.update(0.0).current_error() < state.current_error()


def test_the_jumper_seldom_alarms_and_finds_a_change(rng):
    """Scores with many ties, for which only smoothed p-values are uniform."""
    ranks = drift.OnlineRanks.start(edges=np.linspace(0.1, 0.9, 9))

    def p_value(ranks, given):
        return ranks.update(given[0], uniform=given[1])

    def rejects(scores, uniform):
        _, values = jax.lax.scan(p_value, ranks, (scores, uniform))
        return scan(drift.JumperMartingale.start(), values, seen=lambda s: s.rejects(delta=DELTA))

    alarms = jax.jit(jax.vmap(rejects))
    scores, uniform = rng.random((2, REPETITIONS, 2000))
    before = alarms(scores, uniform)
    scores[:, 1500:] **= 0.4
    found_and_seldom_false(before, alarms(scores, uniform))


@pytest.mark.parametrize("gamma", [0.01, 0.1])
def test_with_one_rate_the_part_of_missed_labels_is_bounded_for_any_scores(gamma, rng):
    state = drift.AdaptiveQuantile.start(
        jnp.linspace(0, 1, 50, dtype=jnp.float32), error=0.1, rates=[gamma]
    )

    def update(state, score):
        return state.update(score), score > state.quantile()

    # An adversary: scores that no law made, with values that no set has.
    scores = np.where(np.arange(3000) % 700 < 350, rng.random(3000) * 3, -1.0)
    _, missed = jax.lax.scan(update, state, jnp.asarray(scores, jnp.float32))
    assert abs(np.mean(missed) - 0.1) <= (0.9 + gamma) / (gamma * 3000)


def test_several_rates_follow_a_drift_that_a_fixed_quantile_does_not(rng):
    """Scores whose law slowly changes: in every thousand labels a tenth is missed."""
    known = rng.random(999).astype(np.float32)
    scores = (rng.random(6000) ** (1 / (1 + np.arange(6000) / 2000))).astype(np.float32)
    state = drift.AdaptiveQuantile.start(known, error=0.1)

    def update(state, score):
        return state.update(score), score > state.quantile()

    missed = np.asarray(jax.lax.scan(update, state, scores)[1])
    # Three standard errors of a thousand outcomes.
    assert np.abs(missed.reshape(6, 1000).mean(axis=1) - 0.1).max() <= 0.03
    fixed = scores > np.asarray(state.quantile())
    assert fixed[5000:].mean() > 0.25


def test_weighted_quantiles_cover_shifted_examples(rng):
    """Labels whose spread depends on x, and new x with another density, whose ratio is known."""
    weighted, plain = [], []
    for _ in range(REPETITIONS):
        x = rng.random(400)
        # New examples have the density 2 x: the larger of two.
        new = rng.random((200, 2)).max(axis=1)
        scores, new_scores = (np.abs(rng.normal(size=one.shape)) * one for one in (x, new))
        quantiles = sets.covariate_shift_quantiles(
            np.log(2 * new), scores, np.log(2 * x), error=0.2
        )
        weighted.append((new_scores <= np.asarray(quantiles)).mean())
        quantile = sets.conformal_quantile(scores, np.zeros(400, int), error=0.2)
        plain.append((new_scores <= float(quantile)).mean())
    error = np.std(weighted) / np.sqrt(REPETITIONS)
    # At least 0.8, and with the largest weight of 400 at most a hundredth more.
    assert 0.8 - 2 * error <= np.mean(weighted) <= 0.81 + 2 * error
    assert np.mean(plain) < 0.75
