"""Weights of examples in every mean, and areas and means of several labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.cases.calls import NUM_CLASSES, NUM_EXAMPLES, arguments, drawn
from tests.cases.metrics import CASES
from topk_jax import metrics

WEIGHTED = [case for case in CASES if "weights" in case.arrays]


@pytest.mark.parametrize("case", WEIGHTED, ids=lambda case: case.name)
def test_a_wrong_weight_is_refused_and_a_traced_one_makes_a_mean_nan(case):
    given = arguments(case, drawn(case)) | case.resolved(NUM_CLASSES)

    def metric(weights):
        return jax.tree.leaves(readings_of(case.function(**given | {"weights": weights})))

    for wrong in (-1.0, np.nan, np.inf, 1e39):
        weights = np.where(np.arange(NUM_EXAMPLES) == 7, wrong, 1.0)
        with pytest.raises(ValueError, match="weights must be finite and at least 0"):
            metric(weights)
        with np.errstate(over="ignore"):
            found = jax.jit(metric)(weights.astype(np.float32))
        # The example may be in one of several means only.
        assert any(jnp.isnan(leaf).any() for leaf in found), wrong
    with pytest.raises(TypeError, match="weights"):
        metric(np.ones(NUM_EXAMPLES, bool))


def readings_of(result):
    return result.macro_mean() if isinstance(result, metrics.Tally) else result


def test_what_does_not_count_may_be_nan():
    values = jnp.array([0.5, jnp.nan, 0.25])
    weights = jnp.array([1.0, 0.0, 3.0])
    assert metrics.tally(values, weights=weights).mean() == 0.3125
    labels = jnp.array([0, 1, 1])
    by_class = metrics.tally_by_class(values, labels, num_classes=3, weights=weights)
    assert by_class.macro_mean() == 0.375
    positives = jnp.array([True, True, False])
    assert metrics.auroc(values, positives, weights=weights) == 1.0
    assert jnp.isnan(metrics.auroc(values, positives))
    scores = jnp.stack([values, values], axis=-1)
    targets = jnp.array([[1, 0], [1, 1], [0, 1]])
    assert metrics.mean_average_precision(scores, targets, weights=weights) == (1 + 3 / 4) / 2
    assert jnp.isnan(metrics.mean_average_precision(scores, targets))


def test_weighted_tallies_of_parts_add_up(rng):
    values, weights = rng.random((3, 20)).astype(np.float32), rng.random((3, 20))
    parts = [
        metrics.tally(*part[:1], weights=part[1]) for part in zip(values, weights, strict=True)
    ]
    expected = (values.astype(np.float64) * weights).sum() / weights.sum()
    np.testing.assert_allclose(sum(parts).mean(), expected, rtol=16 * 2**-24)
    with pytest.raises(ValueError, match="counts with weights are floats"):
        parts[0] + metrics.tally(values[0] > 0.5)


def test_f1_of_parts_is_that_of_all(rng):
    chosen, targets = rng.random((2, 4, 15, 5)) < 0.4
    # A class that nobody has, and one that no set has.
    targets[..., 3] = chosen[..., 3] = chosen[..., 4] = False
    together = sum(map(metrics.tally_f1, chosen, targets))
    assert together.macro_mean() == metrics.tally_f1(chosen, targets).macro_mean()
    micro = 2 * (chosen & targets).sum() / (chosen.sum() + targets.sum())
    np.testing.assert_allclose(together.mean(), micro, rtol=4 * 2**-24)


def test_areas_of_no_examples_are_nan():
    none = jnp.zeros(0, bool)
    assert jnp.isnan(metrics.auroc(jnp.zeros(0), none))
    assert jnp.isnan(metrics.oscr_area(jnp.zeros(0), none, none))
    for rate in metrics.oscr_curve(jnp.zeros(0), none, none):
        np.testing.assert_array_equal(rate, [np.nan])


def test_rounding_makes_no_area_larger_than_one(rng):
    ranked, is_high = np.arange(50, dtype=np.float32), np.arange(50) >= 25
    for weights in rng.random((30, 50)).astype(np.float32):
        assert metrics.auroc(ranked, is_high, weights=weights) <= 1
        found = metrics.mean_average_precision(ranked[:, None], is_high[:, None], weights=weights)
        assert found <= 1


@pytest.mark.parametrize("targets", [np.full((2, 3), 2), np.full((2, 3), np.nan)])
def test_targets_are_0_or_1(targets):
    chosen = np.ones((2, 3), bool)
    for metric in (metrics.example_f1, metrics.label_coverage, metrics.tally_f1):
        with pytest.raises(ValueError, match="targets must be 0 or 1"):
            metric(chosen, targets)
