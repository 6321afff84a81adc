"""Sets of utilities, votes and other risks: all subsets, known laws, roundings."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compilation import for_users
from tests.parts.library.probabilities import distributions
from topk_jax import sets

# A dozen roundings of float32.
ROUNDING = 2e-6


UTILITIES = {
    "precision": ({}, lambda m, _: 1 / m),
    "f_beta": ({"beta": 2.0}, lambda m, _: 5 / (4 + m)),
    "u65": ({}, lambda m, _: 1.6 / m - 0.6 / m**2),
    "u80": ({}, lambda m, _: 2.2 / m - 1.2 / m**2),
    "reject": (
        {"alpha": 0.75, "beta": 0.5},
        lambda m, size: 1 - 0.75 * math.sqrt((m - 1) / (size - 1)),
    ),
}


@pytest.mark.parametrize("kind", UTILITIES)
def test_a_utility_set_is_the_best_of_all_subsets(kind, rng):
    parameters, utility = UTILITIES[kind]
    utilities = sets.set_utilities(kind, num_classes=6, **parameters)
    expected = [utility(m, 6) for m in range(1, 7)]
    np.testing.assert_allclose(utilities, expected, rtol=ROUNDING)
    probabilities = distributions(rng, 40, 6)
    chosen = np.asarray(jax.jit(sets.utility_set)(probabilities, utilities=utilities))
    for row, members in zip(probabilities.astype(np.float64), chosen, strict=True):
        values = [
            expected[m - 1] * row[list(subset)].sum()
            for m in range(1, 7)
            for subset in itertools.combinations(range(6), m)
        ]
        found = expected[members.sum() - 1] * row[members].sum()
        assert found >= max(values) * (1 - ROUNDING)


def test_of_equal_utilities_the_smallest_set_is_chosen():
    # 0.5 + 0.5 with half the value.
    chosen = sets.utility_set(jnp.array([[0.5, 0.5, 0.0]]), utilities=np.array([1.0, 0.5, 0.25]))
    assert chosen.tolist() == [[True, False, False]]
    # (2.2 / 2 - 1.2 / 4) * 0.45 and (2.2 / 3 - 1.2 / 9) * 0.6 are 0.36.
    u80 = sets.set_utilities("u80", num_classes=6)
    chosen = sets.utility_set(jnp.array([5, 4, 3, 3, 3, 2]) / 20, utilities=u80)
    assert chosen.tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: sets.set_utilities("reject", num_classes=3, alpha=0.5), "beta must be given"),
        (lambda: sets.set_utilities("u65", num_classes=3, beta=0.5), "beta must be None"),
        (lambda: sets.risk_controlled_index(np.ones((3, 2)), error=3.0, bound=2.0), "error"),
        (lambda: votes_of(np.array([[0.5, 0.5]]), key=None), "num_samples and key"),
    ],
)
def test_wrong_arguments_are_refused(call, name):
    with pytest.raises(ValueError, match=name):
        call()


def votes_of(plausibilities, scores=((0.5, 0.5),), **options):
    given = {"error": 0.1, "num_samples": 1, "key": jax.random.key(0)} | options
    return sets.vote_quantile(np.asarray(scores), plausibilities, **given)


def test_the_risk_controlled_index_of_missing_labels_is_the_conformal_quantile(rng):
    scores = rng.random(99).astype(np.float32)
    grid = np.sort(scores)
    losses = (scores[:, None] > grid).astype(np.float32)
    quantile = sets.conformal_quantile(scores, np.zeros(99, int), error=0.1)
    assert grid[int(sets.risk_controlled_index(losses, error=0.1))] == quantile


def test_the_risk_controlled_index_of_other_bounds_and_of_risks_that_grow(rng):
    rises = np.array([[0.0, 0.0, 1.0, 0.0]] * 9, np.float32)
    # After the third column every risk is small enough.
    assert int(sets.risk_controlled_index(rises, error=0.5)) == 3
    losses = np.sort(rng.random((19, 12)), axis=1)[:, ::-1].astype(np.float32)
    once = sets.risk_controlled_index(losses, error=0.25)
    twice = sets.risk_controlled_index(2 * losses, error=0.5, bound=2)
    assert 0 < int(once) == int(twice) < 12


def test_no_parameter_is_good_enough_for_too_few_examples():
    # With B = 1 and nine losses of 0 the bound of the next loss is 1 / 10.
    none = np.zeros((9, 2), np.float32)
    assert int(sets.risk_controlled_index(none, error=0.1)) == 0
    assert int(sets.risk_controlled_index(none, error=0.0999999)) == 2
    assert int(sets.risk_controlled_index(none[:1], error=999.9985, bound=2000)) == 2


def test_one_vote_is_a_label(rng):
    scores = rng.random((37, 5)).astype(np.float32)
    labels = rng.integers(5, size=37)
    votes = labels[:, None] == np.arange(5)
    for num_samples in (1, 4):
        found = votes_of(votes, scores, error=0.2, num_samples=num_samples)
        rank = math.ceil(0.8 * 38 * num_samples)
        assert found == np.sort(np.repeat(scores[votes], num_samples))[rank - 1]
    assert np.isinf(votes_of(votes, scores, error=0.01))
    expected = sets.conformal_quantile(scores, labels, error=0.2)
    assert sets.vote_quantile(scores, votes, error=0.2) == expected
    assert np.isinf(sets.vote_quantile(scores, votes, error=0.01))


def test_fifths_of_votes_have_room_for_rounding():
    # Above 449 there are 45 fifths, which are the 9 that are allowed.
    scores, shares = jnp.arange(495.0).reshape(99, 5), jnp.full((99, 5), 0.2)
    assert sets.vote_quantile(scores, shares, error=0.1) == 449.0


@pytest.mark.parametrize("num_samples", [None, 5])
def test_sets_of_votes_have_the_coverage_that_was_asked(rng, num_samples):
    error, covered = 0.1, []
    for index in range(200):
        votes = distributions(rng, 120, 6)
        scores = np.asarray(1 - distributions(rng, 120, 6) / 2 - votes / 2, np.float32)
        key = None if num_samples is None else jax.random.key(index)
        quantile = votes_of(votes[:80], scores[:80], error=error, num_samples=num_samples, key=key)
        chosen = np.asarray(sets.score_set(scores[80:], quantile))
        covered.append((votes[80:] * chosen).sum(axis=1).mean())
    standard_error = np.std(covered) / math.sqrt(len(covered))
    assert np.mean(covered) >= 1 - error - 2 * standard_error
    # Not by sets of all classes.
    assert np.mean(covered) <= 1 - error + 0.02


def test_a_nan_weight_among_thousands_is_seen():
    weights = jnp.zeros(4096).at[1].set(jnp.nan)
    found = for_users(partial(sets.covariate_shift_quantiles, error=0.1))(
        jnp.zeros(1), jnp.arange(4096.0), weights
    )
    assert np.isnan(found).all()


@pytest.mark.parametrize("score", [3.0, 7.0, 0.9])
def test_a_mean_of_equal_quantiles_is_not_below_them(score):
    # Two roundings of products, and one of the sum, could be below.
    quantile = sets.interpolated_quantiles(
        jnp.full(40, score),
        jnp.zeros(40, int),
        error=0.1,
        weight=0.1,
        largest_score=20.0,
        num_classes=1,
    )
    assert sets.score_set(jnp.array([score]), quantile).all()


def test_thirds_of_losses_have_room_for_rounding():
    thirds = np.zeros((29, 1), np.float32)
    thirds[:24] = 1 / 3
    # (1 + 24 / 3) / 30 is 0.3.
    assert sets.risk_controlled_index(thirds, error=0.3) == 0
    thirds[24] = 1 / 3
    assert sets.risk_controlled_index(thirds, error=0.3) == 1
