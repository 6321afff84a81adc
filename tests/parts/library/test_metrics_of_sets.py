"""Weights of examples in every mean, and areas and means of several labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import metrics

NUM_EXAMPLES, NUM_CLASSES = 60, 5
SHAPE = (4, NUM_EXAMPLES // 4)


def arrays(rng):
    """Arrays by the names of arguments: scores with ties, labels that some examples do not have."""
    targets = rng.random((*SHAPE, NUM_CLASSES)) < 0.3
    chosen = rng.random((*SHAPE, NUM_CLASSES)) < 0.4
    # A class that nobody has, and one that no set has.
    targets[..., 3] = chosen[..., 3] = chosen[..., 4] = False
    return {
        "chosen": chosen,
        "targets": targets.astype(np.int8),
        "scores": rng.integers(6, size=SHAPE).astype(np.float32),
        "confidences": rng.integers(6, size=SHAPE).astype(np.float32),
        "hits": rng.random(SHAPE) < 0.6,
        "says_new": rng.random(SHAPE) < 0.4,
        "is_new": rng.random(SHAPE) < 0.3,
        "positives": rng.random(SHAPE) < 0.4,
        "labels": rng.integers(NUM_CLASSES, size=SHAPE),
    }


TAKEN: dict[str, tuple[str, ...]] = {
    "tally_f1": ("chosen", "targets"),
    "mean_average_precision": ("scores", "targets"),
    "open_set_accuracy": ("hits", "says_new", "is_new"),
    "auroc": ("scores", "positives"),
    "oscr_area": ("confidences", "hits", "is_new"),
    "tally": ("hits",),
    "tally_by_class": ("hits", "labels"),
}
PARAMETERS = {"tally_by_class": {"num_classes": NUM_CLASSES}}


def assert_close(ours, theirs):
    """Equal but for sums of 60 numbers of at most 1 in float32, on a tree, and a few quotients."""
    for one, other in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=16 * 2**-24)


def weighted(name, rng):
    """A mean over examples as a function of its weights, and the same of chosen examples."""
    drawn = arrays(rng)
    if name == "mean_average_precision":
        drawn["scores"] = rng.integers(6, size=(*SHAPE, NUM_CLASSES)).astype(np.float32)
    given = [drawn[argument] for argument in TAKEN[name]]

    def metric(**options):
        result = getattr(metrics, name)(*given, **PARAMETERS.get(name, {}), **options)
        return result.macro_mean() if isinstance(result, metrics.Tally) else result

    return metric


@pytest.mark.parametrize("name", TAKEN)
def test_a_weight_of_0_is_an_absent_example_and_one_of_2_is_two(name, rng):
    metric, where = weighted(name, rng), rng.random(SHAPE) < 0.6
    expected = metric(where=where)
    assert_close(metric(weights=where.astype(np.float32)), expected)
    # Twice the weight of all, as integers.
    assert_close(metric(weights=2 * where.astype(np.int32)), expected)
    for wrong in (-1.0, np.nan, np.inf, 1e39):
        weights = np.where(np.arange(NUM_EXAMPLES).reshape(SHAPE) == 7, wrong, 1.0)
        with pytest.raises(ValueError, match="weights must be finite and at least 0"):
            metric(weights=weights)
        with np.errstate(over="ignore"):
            weights = weights.astype(np.float32)
        found = jax.jit(lambda weights: metric(weights=weights))(weights)
        # The example may be in one of several means only.
        assert any(jnp.isnan(leaf).any() for leaf in jax.tree.leaves(found)), wrong
    with pytest.raises(TypeError, match="weights"):
        metric(weights=where)


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
    drawn = arrays(rng)
    parts = zip(drawn["chosen"], drawn["targets"], strict=True)
    together = sum(metrics.tally_f1(chosen, targets) for chosen, targets in parts)
    whole = metrics.tally_f1(drawn["chosen"], drawn["targets"])
    assert together.macro_mean() == whole.macro_mean()
    both = (drawn["chosen"] & (drawn["targets"] == 1)).sum()
    micro = 2 * both / (drawn["chosen"].sum() + drawn["targets"].sum())
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
