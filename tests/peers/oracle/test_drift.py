"""P-values of a stream and the martingale that bets against them equal those of crepes."""

import jax
import numpy as np
import pytest
from crepes.martingales import EpsilonBettingFunction, SimpleJumper, semi_online_p_values

from topk_jax import drift


@pytest.mark.parametrize("num_values", [3, 1000])
def test_p_values_of_a_stream(rng, num_values):
    scores, seed = rng.integers(num_values, size=300).astype(np.float32), 7
    theirs = semi_online_p_values(scores, seed=seed)
    # What crepes draws with this seed.
    uniform = np.random.RandomState(seed).rand(len(scores)).astype(np.float32)
    # Each value has an interval of its own.
    start = drift.OnlineRanks.start(edges=np.arange(num_values, dtype=np.float32) + 0.5)
    _, found = jax.lax.scan(
        lambda ranks, given: ranks.update(given[0], uniform=given[1]), start, (scores, uniform)
    )
    # Quotients of numbers up to 300.
    np.testing.assert_allclose(found, theirs, rtol=1e-6)


def test_the_martingale_is_a_mixture_of_jumpers_that_start_at_each_outcome(rng):
    p_values = np.concatenate([rng.random(40), rng.random(40) ** 3]).astype(np.float32)
    times = np.arange(len(p_values) + 1)
    reserve = 1 / (1 + np.log1p(times))
    jumper = SimpleJumper(bf=EpsilonBettingFunction(E=[-1, 0, 1]))
    wealth = reserve[1:].copy()
    for first, entered in enumerate(reserve[:-1] - reserve[1:]):
        wealth[first:] += entered * jumper.apply(p_values[first:])

    def update(state, p_value):
        state = state.update(p_value)
        return state, state.wealth.log_value()

    _, found = jax.lax.scan(update, drift.JumperMartingale.start(), p_values)
    assert wealth[-1] > 5
    # Eighty sums of logarithms up to 10.
    np.testing.assert_allclose(found, np.log(wealth), rtol=1e-4, atol=1e-4)
