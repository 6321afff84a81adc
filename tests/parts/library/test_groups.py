"""Groups of examples: combined probabilities, labels, weights, quantiles and intervals."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import metrics, sets

EPS = float(np.finfo(np.float32).eps)
BY = ("log_probabilities", "probabilities", "maximum")


def draw(rng, number=60, num_classes=5, num_groups=9):
    logs = np.asarray(jax.nn.log_softmax(rng.normal(scale=3, size=(number, num_classes))))
    # Group 8 is empty, and -1, 9 and 127 are no groups.
    groups = rng.choice([-1, 0, 1, 2, 3, 4, 5, 6, 7, 9, 127], size=number).astype(np.int8)
    return logs.astype(np.float32), groups


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0], [0.0, 0.0]])
@pytest.mark.parametrize("by", BY)
def test_groups_are_combined_as_the_reference_does(rng, by, weights, masked):
    if weights is not None and by != "log_probabilities":
        return
    logs, groups = draw(rng)
    logs[rng.random(logs.shape) < 0.05] = -np.inf
    logs[groups == 1, :2] = -np.inf
    where = rng.random(len(groups)) < 0.8 if masked else None
    arguments: dict[str, Any] = {"num_groups": 9, "by": by, "weights": weights, "where": where}
    found = np.asarray(sets.combine(logs, groups, **arguments))
    wanted = reference.combine(logs, groups, **arguments)
    # Sums of a few logarithms of about 10, times weights of up to 8.
    np.testing.assert_allclose(found, wanted, rtol=64 * EPS, atol=64 * EPS)
    assert np.isnan(found[8]).all()
    assert (found[1, :2] == -np.inf).all()
    # The exponentials of five logarithms, each rounded.
    np.testing.assert_allclose(np.exp(found[:8]).sum(axis=-1), 1, rtol=16 * EPS)


def test_a_wrong_example_marks_its_own_group(rng):
    logs, _ = draw(rng)
    groups = np.arange(60) // 20
    logs[3, 1], logs[59, 0] = np.nan, 0.5
    for by in BY:
        combined = jax.jit(functools.partial(sets.combine, num_groups=3, by=by))
        found = np.asarray(combined(logs, groups))
        np.testing.assert_array_equal(np.isnan(found).all(axis=-1), [True, False, True])
        assert not np.isnan(found[1]).any()
    # No class is left if each is masked in one of the examples.
    masked = np.float32([[0, -np.inf], [-np.inf, 0]])
    assert np.isnan(sets.combine(masked, np.zeros(2, int), num_groups=1)).all()


def test_probabilities_below_the_range_of_floats_are_combined():
    logs = np.array([[0.0, -200.0, -300.0], [0.0, -210.0, -300.0]], np.float32)
    found = sets.combine(logs, np.zeros(2, int), num_groups=1, by="probabilities")
    wanted = reference.combine(logs, np.zeros(2, int), num_groups=1, by="probabilities")
    np.testing.assert_allclose(found, wanted, rtol=4 * EPS, atol=1e-30)


def test_ten_thousand_examples_of_one_group(rng):
    logs = np.log(rng.dirichlet(np.ones(7), size=10_000)).astype(np.float32)
    for by in BY:
        found = sets.combine(logs, np.zeros(10_000, int), num_groups=1, by=by)
        wanted = reference.combine(logs, np.zeros(10_000, int), num_groups=1, by=by)
        np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("mask", [-1e10, -1e12, -1e30, -3e38])
@pytest.mark.parametrize("wrap", [lambda function: function, jax.jit])
def test_finite_masks_of_different_classes_leave_them_alike(mask, wrap):
    logs = np.full((3, 3), mask, np.float32)
    np.fill_diagonal(logs, 0)
    combined = wrap(functools.partial(sets.combine, num_groups=1))(logs, np.zeros(3, int))
    # A sum and a division of equal numbers are equal.
    np.testing.assert_allclose(combined, np.log(1 / 3) * np.ones((1, 3)), rtol=1e-6)


@pytest.mark.parametrize("trust", [0.0, 0.6])
def test_weights_are_the_minimum(rng, trust):
    sizes = rng.integers(1, 9, size=300)
    logs = np.asarray(jax.nn.log_softmax(rng.normal(size=(300, 6)))).astype(np.float32)
    scaled = (0.8 + trust * np.log2(sizes))[:, None] * logs
    labels = np.array([rng.choice(6, p=p) for p in np.asarray(jax.nn.softmax(scaled))])
    found = sets.group_weights(logs, sizes, labels)
    # The mean cross-entropy of 300 groups in float32 determines its minimum as well as that.
    np.testing.assert_allclose(found, reference.group_weights(logs, sizes, labels), atol=1e-4)


def test_weights_without_a_minimum_and_of_one_size(rng):
    logs = np.asarray(jax.nn.log_softmax(rng.normal(size=(50, 4)))).astype(np.float32)
    labels = logs.argmax(axis=-1)
    sizes = rng.integers(1, 5, size=50)
    assert sets.group_weights(logs, sizes, labels).sum() > 10
    some = np.where(rng.random(50) < 0.5, labels, 0)
    pairs = sets.group_weights(logs, np.full(50, 2), some)
    # Only the weight of pairs is determined, and it is an inverse temperature.
    np.testing.assert_allclose(pairs.sum(), 1 / sets.temperature(logs, some), rtol=1e-3)
    assert jnp.isnan(sets.group_weights(logs, sizes - 9, labels)).all()


def test_a_hierarchical_quantile_of_single_examples_is_the_conformal_one(rng):
    for number in (1, 9, 10, 57):
        scores, labels = rng.random(number).astype(np.float32), np.zeros(number, int)
        for error in (0.0, 0.1, 0.3):
            found = sets.hierarchical_quantile(
                scores, labels, rng.permutation(number), error=error, num_groups=number
            )
            assert found == sets.conformal_quantile(scores, labels, error=error)


@pytest.mark.parametrize("counted", ["examples", "groups"])
def test_intervals_of_few_groups_and_of_equal_shares(rng, counted):
    groups, hits = rng.choice(30, size=80), rng.random(80) < 0.9
    assert metrics.cluster_interval(hits, groups * 0, num_groups=2) == (0, 1)
    assert np.isnan(metrics.cluster_interval(hits, groups - 99, num_groups=2)).all()
    # All groups have a share of 2 / 3, whose rounded residuals are not 0: each is one example.
    alike, threes = np.arange(15) % 3 < 2, np.arange(15) // 3
    found = metrics.cluster_interval(alike, threes, num_groups=5, counted=counted)
    # The quantile of Student's distribution is a series.
    np.testing.assert_allclose(found, (0.184767, 0.946378), atol=1e-3)


@pytest.mark.parametrize("counted", ["examples", "groups"])
def test_intervals_of_clusters_have_the_share(rng, counted):
    """2,000 draws of 60 groups whose examples are alike: three standard errors are 1.5 %.

    Groups have a share of hits of their own, from a beta distribution around 0.85.
    """
    repetitions, num_groups = 2000, 60
    sizes = rng.integers(1, 6, size=num_groups)
    groups = np.repeat(np.arange(num_groups), sizes)
    shares = rng.beta(1.7, 0.3, size=(repetitions, num_groups))
    hits = rng.random((repetitions, len(groups))) < shares[:, groups]
    low, high = jax.vmap(
        lambda hits: metrics.cluster_interval(hits, groups, num_groups=num_groups, counted=counted)
    )(hits)
    covered = ((low <= 0.85) & (high >= 0.85)).mean()
    assert 0.935 <= covered <= 0.98
    # Each example as a group of its own: what an interval without groups is.
    alone = np.arange(len(groups))
    low, high = jax.vmap(
        lambda hits: metrics.cluster_interval(hits, alone, num_groups=len(groups))
    )(hits)
    assert ((low <= 0.85) & (high >= 0.85)).mean() < 0.88


def test_coverage_of_groups_is_what_was_asked(rng):
    """Both readings on a known law: groups of one plant, with photographs that are alike.

    2,000 repetitions; one coverage has a standard deviation of 0.035 over calibrations of 80 groups
    and of 0.3 over the label of the one new group: 0.007 in their mean.
    """
    repetitions, num_groups, error = 2000, 81, 0.1
    sizes = np.tile([1, 2, 6], 27)
    groups = np.repeat(np.arange(num_groups), sizes)
    # The score of a photograph: what its plant adds, larger in large groups, and noise.
    of_plants = rng.normal(size=(repetitions, num_groups)) * (1 + (sizes == 6))
    scores = of_plants[:, groups] + 0.3 * rng.normal(size=(repetitions, len(groups)))
    scores = scores.astype(np.float32)
    # Groups are exchangeable: the new one is any of them.
    new = rng.integers(num_groups, size=repetitions)
    drawn = rng.integers(6, size=repetitions) % sizes[new]
    starts = np.cumsum(sizes) - sizes

    def quantile(scores, new):
        others = jnp.where(groups == new, -1, groups)
        return sets.hierarchical_quantile(
            scores, jnp.zeros_like(others), others, error=error, num_groups=num_groups
        )

    limits = jax.vmap(quantile)(scores, new)
    chosen = scores[np.arange(repetitions), starts[new] + drawn]
    covered = (chosen <= limits).mean()
    assert 0.9 - 0.02 <= covered <= 0.9 + 1 / num_groups + 0.02
    # Photographs that count alike: large groups have most of them, and large scores.
    pooled = np.quantile(scores, 0.9, axis=1)
    assert (chosen <= pooled).mean() > covered + 0.02
