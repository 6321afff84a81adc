"""Predictions for groups of examples, beside the library's, and the report of both readings."""

import numpy as np
import pytest
from scipy import special, stats

from tests import reference
from topk_jax import metrics, sets
from train.evaluation import combinations, intervals, observations, predictions, stored_scores
from train.evaluation.conformal_rules import RULES
from train.evaluation.metric import Metric
from train.evaluation.observations import Combination
from train.evaluation.predictions import Predictions
from train.evaluation.set_report import set_report
from train.foundation.errors import UserError

NUM_CLASSES = 6
BY = ("log_probabilities", "probabilities", "maximum")
EPS = float(np.finfo(np.float32).eps)


def draw(rng, number=40):
    """Examples of groups in any order; those of a group have one class and are alike."""
    sizes = rng.integers(1, 5, size=number)
    of = rng.permutation(np.repeat(np.arange(number), sizes))
    labels = rng.integers(NUM_CLASSES, size=number)[of].astype(np.int32)
    logits = rng.normal(size=(len(of), NUM_CLASSES)) + rng.normal(size=(number, NUM_CLASSES))[of]
    logits[np.arange(len(of)), labels] += 2
    scores = special.softmax(logits, axis=-1).astype(np.float32)
    return Predictions(
        loss=-np.log(scores[np.arange(len(of)), labels]),
        scores=scores,
        labels=labels,
        ranks=reference.label_ranks(scores, labels),
        groups=np.array([*map(str, of)], object),
    )


def numbers(examples):
    return np.array([int(name) for name in examples.groups])


@pytest.mark.parametrize(
    ("by", "stored"), [(by, by == "log_probabilities") for by in BY] + [("maximum", True)]
)
def test_observations_are_those_of_the_library(rng, by, stored, monkeypatch):
    monkeypatch.setattr(predictions, "CHUNK", 7)
    # Several parts of the observations, the last of them smaller.
    monkeypatch.setattr(observations, "_MOST_SUMS", 9 * NUM_CLASSES)
    if stored:
        monkeypatch.setattr(stored_scores, "MOST_IN_MEMORY", 0)
    examples = draw(rng)
    found = observations.combine(examples, Combination(by))
    of, scores = numbers(examples), found.predictions.scores
    order = list(dict.fromkeys(of.tolist()))
    expected = sets.combine(np.log(examples.scores), of, num_groups=40, by=by)
    # The logarithms of 32 bits, and their sums.
    np.testing.assert_allclose(scores[:], np.exp(expected)[order], rtol=64 * EPS)
    assert found.predictions.groups is not None
    assert found.predictions.groups.tolist() == [*map(str, order)]
    np.testing.assert_array_equal(found.sizes, np.bincount(of)[order])
    labels = np.asarray(sets.group_labels(examples.labels, of, num_groups=40))[order]
    np.testing.assert_array_equal(found.predictions.labels, labels)
    ranks = reference.label_ranks(scores[:], labels)
    np.testing.assert_array_equal(found.predictions.ranks, ranks)
    losses = [examples.loss[of == number].mean() for number in order]
    np.testing.assert_allclose(found.predictions.loss, losses, rtol=1e-6)


@pytest.mark.parametrize("by", BY)
def test_scores_that_are_no_probabilities_are_not_made_to_add_up(rng, by):
    examples = draw(rng)
    sigmoids = special.expit(rng.normal(size=examples.scores.shape)).astype(np.float32)
    given = Predictions(
        examples.loss, sigmoids, examples.labels, examples.ranks, groups=examples.groups
    )
    found = observations.combine(given, Combination(by)).predictions
    assert found.groups is not None
    of = numbers(examples)
    for name, row in zip(found.groups, found.scores, strict=True):
        rows = sigmoids[of == int(name)].astype(np.float64)
        pooled = {
            "log_probabilities": lambda rows: np.exp(np.log(rows).mean(axis=0)),
            "probabilities": lambda rows: rows.mean(axis=0),
            "maximum": lambda rows: rows.max(axis=0),
        }[by](rows)
        np.testing.assert_allclose(row, pooled, rtol=1e-6)
    with pytest.raises(UserError, match="needs probabilities that add up to 1"):
        observations.fit(combinations.TRAINED, given)


def test_a_probability_that_is_rounded_to_0_does_not_decide_alone():
    """Of three photographs, one is sure of another class: its label has no probability left."""
    scores = np.float32([[0.9, 0.1, 0], [0.9, 0.1, 0], [0, 0.5, 0.5]])
    labels, groups = np.zeros(3, np.int32), np.array(["a"] * 3, object)
    given = Predictions(np.zeros(3, np.float32), scores, labels, labels, groups=groups)
    found = observations.combine(given, Combination(combinations.DEFAULT)).predictions
    assert 0 < found.scores[0, 0] < found.scores[0, 1]
    assert np.isfinite(np.log(found.scores[0])).all()


def test_trained_weights_are_those_of_the_library(rng):
    examples = draw(rng, 300)
    combination = observations.fit(combinations.TRAINED, examples)
    of = numbers(examples)
    means = sets.combine(np.log(examples.scores), of, num_groups=300)
    labels = sets.group_labels(examples.labels, of, num_groups=300)
    expected = sets.group_weights(means, np.bincount(of), labels)
    np.testing.assert_allclose(combination.weights, expected, atol=1e-4)
    found = observations.combine(examples, combination)
    weighted = sets.combine(np.log(examples.scores), of, num_groups=300, weights=expected)
    order = list(dict.fromkeys(of.tolist()))
    np.testing.assert_allclose(found.predictions.scores, np.exp(weighted)[order], atol=1e-4)


def test_observations_of_several_classes_are_left_out_and_told(rng, caplog):
    examples = draw(rng)
    of = numbers(examples)
    several = np.flatnonzero(np.bincount(of) > 1)[:2]
    for number in several:
        first = np.flatnonzero(of == number)[0]
        examples.labels[first] = (examples.labels[first] + 1) % NUM_CLASSES
    found = observations.combine(examples, Combination(combinations.DEFAULT))
    assert (found.num_ambiguous, len(found)) == (2, 38)
    assert found.predictions.groups is not None
    assert not {*map(str, several)} & {*found.predictions.groups}
    np.testing.assert_allclose(found.predictions.scores.sum(axis=-1), 1, rtol=1e-5)
    assert "observations with examples of several classes have no label" in caplog.text
    assert "2 of 40, the first is 0\n" in caplog.text
    one = examples.take(np.flatnonzero(of == several[0]))
    with pytest.raises(UserError, match="examples of one class; each of the 1 has several"):
        observations.combine(one, Combination(combinations.DEFAULT))


def test_a_class_that_the_model_does_not_know_is_a_miss(rng):
    examples = draw(rng, 5)
    unknown = np.full_like(examples.labels, NUM_CLASSES)
    given = Predictions(
        examples.loss * np.nan, examples.scores, unknown, unknown, groups=examples.groups
    )
    found = observations.combine(given, Combination(combinations.DEFAULT)).predictions
    assert (found.ranks == NUM_CLASSES).all()
    assert np.isnan(found.loss).all()


@pytest.fixture(scope="module")
def readings():
    rng = np.random.default_rng(5)
    examples, validation = draw(rng, 80), draw(rng, 60)
    given = {
        "ks": (1, 2),
        "coverages": (0.75, 0.99),
        "class_counts": None,
        "rules": [RULES["aps"]],
    }
    return examples, validation, given


@pytest.mark.parametrize("by", [combinations.DEFAULT, combinations.TRAINED])
def test_the_report_has_both_readings(readings, by):
    examples, validation, given = readings
    # 60 observations can promise 0.75 and not 0.99.
    document = set_report(examples, validation, **given | {"coverages": (0.75,)}, combined_by=by)
    combination = observations.fit(by, validation)
    combined, calibrated = (
        observations.combine(one, combination).predictions for one in (examples, validation)
    )
    expected = set_report(combined, calibrated, **given | {"coverages": (0.75,)})
    found = document["observations"]
    assert {name: found[name] for name in expected} == expected
    assert "observations" not in expected
    assert (found["num_examples"], found["num_calibration_examples"]) == (80, 60)
    assert found["combined_by"] == by
    assert ("weights" in found) == (by == "trained")
    # The sets of a run without groups are the same.
    alone = [Predictions(p.loss, p.scores, p.labels, p.ranks) for p in (examples, validation)]
    plain = set_report(*alone, **given | {"coverages": (0.75,)})
    assert "intervals" not in plain
    assert {name: document[name] for name in ("metrics", "thresholds", "set_size_counts")} == {
        name: plain[name] for name in ("metrics", "thresholds", "set_size_counts")
    }
    kinds = document["coverages"]["0.75"]
    for kind, values in kinds.items():
        assert values.pop("coverage_interval")
        assert values == plain["coverages"]["0.75"][kind]


def test_intervals_of_observations_are_exact_and_those_of_photographs_by_clusters(readings):
    examples, validation, given = readings
    document = set_report(examples, validation, **given | {"coverages": (0.75,)})
    of = numbers(examples)
    hits = examples.ranks < 1
    name = Metric.accuracy("top", 1).name
    low, high = metrics.cluster_interval(hits, of, num_groups=80)
    assert document["intervals"][name] == pytest.approx([float(low), float(high)], abs=1e-6)
    found = document["observations"]
    number = round(80 * found["metrics"][name])
    exact = [
        stats.beta.ppf(0.025, number, 80 - number + 1),
        stats.beta.ppf(0.975, number + 1, 80 - number),
    ]
    assert found["intervals"][name] == pytest.approx(exact, abs=1e-9)
    coverage = found["coverages"]["0.75"]["conformal"]
    assert coverage["coverage_interval"][0] < coverage["coverage"]
    assert intervals.exact(np.ones(20, bool)) == pytest.approx([0.025 ** (1 / 20), 1])


def test_one_example_of_each_observation_has_its_own_threshold(readings):
    examples, validation, given = readings
    document = set_report(examples, validation, **given | {"coverages": (0.75,)})
    found = document["observations"]["one_example"]["0.75"]
    rows = np.arange(len(validation.labels))
    scores = -validation.scores[rows, validation.labels]
    threshold = -reference.hierarchical_quantile(
        scores, None, numbers(validation), error=0.25, num_groups=60
    )
    assert found["threshold"] == threshold
    of, hits = numbers(examples), examples.scores >= np.float32(threshold)
    covered = hits[np.arange(len(of)), examples.labels]
    assert found["coverage"] == pytest.approx(
        np.mean([covered[of == number].mean() for number in range(80)])
    )
    assert found["set_size"] == pytest.approx(
        np.mean([hits[of == number].sum(axis=-1).mean() for number in range(80)])
    )


def test_groups_of_one_are_examples(readings):
    examples, validation, given = readings
    firsts = [
        one.take(np.unique(numbers(one), return_index=True)[1]) for one in (examples, validation)
    ]
    document = set_report(*firsts, **given | {"coverages": (0.75,)})
    assert "observations" not in document
    hits = firsts[0].ranks < 1
    assert document["intervals"]["top_1_accuracy"] == intervals.exact(hits)


def test_observations_have_the_coverage_that_was_asked(rng):
    """400 repetitions: one has a deviation of 0.08, and their mean one of 0.004."""
    covered = []
    for _ in range(400):
        examples = observations.combine(draw(rng, 100), Combination(combinations.DEFAULT))
        scores = examples.predictions.scores[np.arange(100), examples.predictions.labels]
        # They are in the order of their first examples, so that large ones come first.
        scores = rng.permutation(scores)
        threshold = reference.conformal_threshold(scores[:50, None], np.zeros(50, int), error=0.2)
        covered.append((scores[50:] >= threshold).mean())
    # The 41st of 51 places.
    assert abs(np.mean(covered) - 41 / 51) < 0.012
