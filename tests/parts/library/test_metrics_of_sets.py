"""Metrics of several labels, votes and new classes, and weights of examples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import metrics, sets

NUM_EXAMPLES, NUM_CLASSES = 60, 5
SHAPE = (4, NUM_EXAMPLES // 4)


def arrays(rng):
    """Arrays by the names of arguments: scores with ties, labels that some examples do not have."""
    votes = rng.dirichlet(np.full(NUM_CLASSES, 0.5), size=SHAPE).astype(np.float32)
    targets = rng.random((*SHAPE, NUM_CLASSES)) < 0.3
    chosen = rng.random((*SHAPE, NUM_CLASSES)) < 0.4
    # A class that nobody has, and one that no set has.
    targets[..., 3] = chosen[..., 3] = chosen[..., 4] = False
    return {
        "chosen": chosen,
        "targets": targets.astype(np.int8),
        "plausibilities": votes,
        "scores": rng.integers(6, size=SHAPE).astype(np.float32),
        "confidences": rng.integers(6, size=SHAPE).astype(np.float32),
        "hits": rng.random(SHAPE) < 0.6,
        "says_new": rng.random(SHAPE) < 0.4,
        "is_new": rng.random(SHAPE) < 0.3,
        "positives": rng.random(SHAPE) < 0.4,
        "labels": rng.integers(NUM_CLASSES, size=SHAPE),
    }


TAKEN: dict[str, tuple[str, ...]] = {
    "expected_hits": ("chosen", "plausibilities"),
    "example_f1": ("chosen", "targets"),
    "label_coverage": ("chosen", "targets"),
    "macro_f1": ("chosen", "targets"),
    "tally_f1": ("chosen", "targets"),
    "mean_average_precision": ("scores", "targets"),
    "open_set_accuracy": ("hits", "says_new", "is_new"),
    "auroc": ("scores", "positives"),
    "oscr_curve": ("confidences", "hits", "is_new"),
    "oscr_area": ("confidences", "hits", "is_new"),
}
OF_EXAMPLES = ("expected_hits", "example_f1", "label_coverage")
WITH_REFERENCE = [name for name in TAKEN if name != "tally_f1"]
MEANS = [name for name in WITH_REFERENCE if name not in OF_EXAMPLES]


def given_to(name, rng):
    drawn = arrays(rng)
    given = {argument: drawn[argument] for argument in TAKEN[name]}
    if name == "mean_average_precision":
        given["scores"] = rng.integers(6, size=(*SHAPE, NUM_CLASSES)).astype(np.float32)
    return given


def assert_close(ours, theirs):
    """Equal but for sums of 60 numbers of at most 1 in float32, on a tree, and a few quotients."""
    for one, other in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=16 * 2**-24)


@pytest.mark.parametrize("name", WITH_REFERENCE)
def test_metrics_are_the_references(name, rng):
    given = given_to(name, rng)
    assert_close(getattr(metrics, name)(**given), getattr(reference, name)(**given))


@pytest.mark.parametrize("name", MEANS)
def test_weighted_metrics_are_the_references(name, rng):
    given = given_to(name, rng)
    counted = {
        "where": rng.random(SHAPE) < 0.7,
        "weights": rng.choice([0.0, 0.25, 1.0, 3.5], size=SHAPE).astype(np.float32),
    }
    theirs = getattr(reference, name)(**given, **counted)
    assert_close(getattr(metrics, name)(**given, **counted), theirs)
    assert_close(jax.jit(getattr(metrics, name))(**given, **counted), theirs)


def weighted(name, rng):
    """A mean over examples as a function of its weights, and the same of chosen examples."""
    drawn = arrays(rng)
    parameters: dict[str, Any] = {}
    if name in ("accuracy", "macro_accuracy", "shot_accuracy", "tally", "tally_by_class"):
        argument = "values" if name.startswith("tally") else "hits"
        given = {argument: drawn["hits"]}
        if name not in ("accuracy", "tally"):
            given["labels"] = drawn["labels"]
        if name in ("macro_accuracy", "tally_by_class"):
            parameters["num_classes"] = NUM_CLASSES
        if name == "shot_accuracy":
            parameters["class_counts"] = np.array([3, 30, 300, 4, 40])
    else:
        given = given_to(name, rng)

    def metric(**options):
        result = getattr(metrics, name)(**given, **parameters, **options)
        return result.macro_mean() if isinstance(result, metrics.Tally) else result

    return metric


ALL_MEANS = [
    *(name for name in MEANS if name != "oscr_curve"),
    "accuracy",
    "macro_accuracy",
    "shot_accuracy",
    "tally",
    "tally_by_class",
    "tally_f1",
]


@pytest.mark.parametrize("name", ALL_MEANS)
def test_a_weight_of_0_is_an_absent_example_and_one_of_2_is_two(name, rng):
    metric, where = weighted(name, rng), rng.random(SHAPE) < 0.6
    expected = metric(where=where)
    assert_close(metric(weights=where.astype(np.float32)), expected)
    # Twice the weight of all, as integers.
    assert_close(metric(weights=2 * where.astype(np.int32)), expected)
    for wrong in (-1.0, np.nan, np.inf, 1e39):
        weights = np.where(np.arange(NUM_EXAMPLES).reshape(SHAPE) == 7, wrong, 1.0)
        message = r"^weights must be finite and at least 0, got (-1|nan|inf|1e\+39)\.$"
        with pytest.raises(ValueError, match=message):
            metric(weights=weights)
        with np.errstate(over="ignore"):
            weights = weights.astype(np.float32)
        found = jax.jit(lambda weights: metric(weights=weights))(weights)
        # The example may be in one of several means only.
        assert any(jnp.isnan(leaf).any() for leaf in jax.tree.leaves(found)), wrong
    with pytest.raises(ValueError, match=r"^weights must have shape \(4, 15\), got shape \(4,\)"):
        metric(weights=np.ones(4))
    with pytest.raises(TypeError, match="weights must be real, got dtype bool"):
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
    with pytest.raises(TypeError, match="other must be a tally with weights if and only if"):
        parts[0] + metrics.tally(values[0] > 0.5)


def test_f1_of_parts_is_that_of_all(rng):
    drawn = arrays(rng)
    parts = zip(drawn["chosen"], drawn["targets"], strict=True)
    together = sum(metrics.tally_f1(chosen, targets) for chosen, targets in parts)
    assert together.macro_mean() == metrics.macro_f1(drawn["chosen"], drawn["targets"])
    both = (drawn["chosen"] & (drawn["targets"] == 1)).sum()
    micro = 2 * both / (drawn["chosen"].sum() + drawn["targets"].sum())
    np.testing.assert_allclose(together.mean(), micro, rtol=4 * 2**-24)


def test_metrics_of_sets_of_one_vote_each_are_those_of_labels(rng):
    scores = rng.normal(size=(*SHAPE, NUM_CLASSES)).astype(np.float32)
    labels = rng.integers(NUM_CLASSES, size=SHAPE)
    votes = np.eye(NUM_CLASSES)[labels]
    expected = metrics.top_k_hits(scores, labels, k=2)
    found = np.asarray(metrics.expected_hits(sets.top_k_set(scores, k=2), votes))
    np.testing.assert_array_equal(found, expected)


def test_false_negative_rates_are_the_reference_and_risk_control_takes_them(rng):
    given = arrays(rng)
    probabilities = rng.choice([0.0, 0.25, 0.5, 1.0], size=given["chosen"].shape).astype(np.float32)
    thresholds = np.array([np.inf, 1.0, 0.5, 0.5, 0.25, -np.inf])
    losses = sets.false_negative_rates(probabilities, given["targets"], thresholds=thresholds)
    expected = reference.false_negative_rates(
        probabilities, given["targets"], thresholds=thresholds
    )
    assert_close(losses, expected)
    assert (losses[..., -1] == 0).all()
    index = int(sets.risk_controlled_index(losses.reshape(-1, 6), error=0.4))
    assert 0 < index < 6
    for broken in (probabilities, given["targets"].astype(np.float32)):
        broken[0, 0, 2] = np.nan
    traced = jax.jit(lambda p, t: sets.false_negative_rates(p, t, thresholds=thresholds))
    found = traced(probabilities, given["targets"])
    assert jnp.isnan(found[0, 0]).all()
    assert not jnp.isnan(found[1:]).any()


# Arguments of wrong types are the point here.
untyped: Any = metrics
S = np.ones((2, 3), bool)
T = np.ones((2, 3), int)
H = np.ones(2, bool)
U = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: untyped.example_f1(T, T), TypeError, "chosen must be a boolean array"),
        (lambda: untyped.example_f1(H[0], H[0]), ValueError, "chosen must have an axis of"),
        (lambda: untyped.label_coverage(S, 2 * T), ValueError, "targets must be 0 or 1, got 2"),
        (lambda: untyped.label_coverage(S, T * np.nan), ValueError, "targets must be 0 or 1"),
        (lambda: untyped.macro_f1(S, T[:1]), ValueError, r"targets must have shape \(2, 3\)"),
        (lambda: untyped.macro_f1(S, T, where=S), ValueError, r"where must have shape \(2,\)"),
        (lambda: untyped.tally_f1(S, "T"), TypeError, "targets must be a boolean or real array"),
        (lambda: untyped.mean_average_precision(S, T), TypeError, "scores must be a floating"),
        (lambda: untyped.mean_average_precision(S * 0.5, T / 2), ValueError, "targets must be 0"),
        (lambda: untyped.expected_hits(S, T / 2), ValueError, "plausibilities must sum to 1"),
        (lambda: untyped.expected_hits(T, T / 3), TypeError, "chosen must be a boolean array"),
        (lambda: untyped.open_set_accuracy(H, H, T), TypeError, "is_new must be a boolean"),
        (lambda: untyped.open_set_accuracy(H, S, H), ValueError, "says_new must have shape"),
        (lambda: untyped.auroc(H, H), TypeError, "scores must be a floating-point array"),
        (lambda: untyped.auroc(U, S), ValueError, r"positives must have shape \(2,\)"),
        (lambda: untyped.oscr_area(U, U, H), TypeError, "hits must be a boolean array"),
        (lambda: untyped.oscr_curve(T, H, H), TypeError, "confidences must be a floating-point"),
        (
            lambda: sets.false_negative_rates(T / 3, T, thresholds=np.array([0.1, 0.5])),
            ValueError,
            "thresholds must never grow and not be NaN",
        ),
        (
            lambda: sets.false_negative_rates(T / 3, T, thresholds=0.5),
            ValueError,
            r"thresholds must be a vector of numbers, got shape \(\)",
        ),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=f"^{message}"):
        call()


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
