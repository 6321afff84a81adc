"""Conformal risk control by the costs of sets, against brute force and on a known law."""

import numpy as np
import pytest

from tests import reference
from topk_jax import sets
from train.data.taxonomy import ClassTree
from train.data.truths import SEVERAL, Truths
from train.evaluation import cost_thresholds, named_costs, set_rules, thresholds
from train.evaluation.costs import Costs
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError

NUM_CLASSES = 6
NAMES = ["ash", "birch", "elm", "fir", "lime", "oak"]
COUNTS = np.array([5, 10, 20, 40, 80, 160])


def draw(rng, number):
    """Examples of a known law."""
    law = COUNTS / COUNTS.sum()
    labels = rng.choice(NUM_CLASSES, size=number, p=law).astype(np.int32)
    scores = rng.dirichlet(np.ones(NUM_CLASSES), size=number) + np.eye(NUM_CLASSES)[labels]
    scores /= 2
    scores = scores.astype(np.float32)
    ranks = reference.label_ranks(scores, labels)
    return Predictions(np.zeros(number), scores, labels, ranks)


def matrix(rng):
    of_labels = rng.uniform(1, 3, NUM_CLASSES)
    between = of_labels[:, None] * rng.uniform(0.2, 1, (NUM_CLASSES, NUM_CLASSES))
    np.fill_diagonal(between, 0)
    return Costs("matrix", of_labels, between)


def uniform():
    return named_costs.named("missed", NAMES, None)


def test_several_labels_cost_by_their_shares(rng):
    """With costs of one, that is the false negative rate."""
    labels = rng.random((120, NUM_CLASSES)) < 0.3
    labels[~labels.any(axis=-1), 0] = True
    examples, classes = np.nonzero(labels)
    truths = Truths.of_entries(examples, classes, np.ones(len(classes)), SEVERAL)
    scores = ((rng.random(labels.shape) + labels) / 2).astype(np.float32)
    given = Predictions(
        np.zeros(120), scores, truths.classes[:, 0], np.zeros(120, int), truths=truths
    )
    candidates = -np.unique(-scores)
    rates = sets.false_negative_rates(scores, labels, thresholds=candidates)
    for risk in (0.05, 0.2):
        index = int(sets.risk_controlled_index(rates, error=risk))
        found = cost_thresholds.threshold(given, uniform(), risk)
        # Thresholds at which no label is found have the same rates as the one before.
        rate = np.asarray(rates)[:, candidates == np.float32(found)].mean()
        assert rate == pytest.approx(np.asarray(rates)[:, index].mean(), abs=1e-6)
        mean = uniform().mean(given, set_rules.at_threshold(found))
        assert mean == pytest.approx(rate, abs=1e-6)


def test_costs_of_one_are_coverages(rng):
    examples = draw(rng, 99)
    for coverage in (0.5, 0.9, 0.95):
        expected = thresholds.conformal_threshold(examples, coverage)
        risk = float(thresholds.error_of(coverage))
        assert cost_thresholds.threshold(examples, uniform(), risk) == expected


@pytest.mark.parametrize(("kind", "risk"), [("macro", 0.3), ("matrix", 0.4)])
def test_the_mean_cost_of_new_examples_is_at_most_the_risk(rng, kind, risk):
    """Calibrations on 100 examples, each with as many new ones, of a known law."""
    costs = matrix(rng) if kind == "matrix" else named_costs.named("macro", NAMES, COUNTS)
    found = []
    for _ in range(200):
        threshold = cost_thresholds.threshold(draw(rng, 100), costs, risk)
        found.append(costs.mean(draw(rng, 100), set_rules.at_threshold(threshold)))
    error = np.std(found) / np.sqrt(len(found))
    assert np.mean(found) <= risk + 2 * error
    # The bound is nearly reached: what one further example can cost, and a step of the cost.
    assert np.mean(found) >= risk - 2 * costs.largest / 100 - 3 * error


def test_too_few_examples_are_refused(rng):
    with pytest.raises(UserError, match=r"costs of up to 1 needs at least 9 examples .* are 8"):
        cost_thresholds.threshold(draw(rng, 8), uniform(), 0.1)
    cost_thresholds.threshold(draw(rng, 9), uniform(), 0.1)


def write(path, rows):
    path.write_text("\n".join(["label,chosen,cost", *rows]))
    return str(path)


EVERY = [f"{name},,{cost}" for cost, name in enumerate(NAMES, start=1)]


def test_a_table_has_costs_of_labels_and_of_similar_classes(tmp_path):
    path = write(tmp_path / "costs.csv", [*EVERY, "elm,fir,0.5", "elm,oak,9"])
    costs = named_costs.named(path, NAMES, None)
    assert costs.of_labels.tolist() == [1, 2, 3, 4, 5, 6]
    chosen = np.eye(NUM_CLASSES, dtype=bool)[[0, 3, 2, 3, 5]]
    labels = np.array([1, 2, 2, NUM_CLASSES, 2])
    # A class that the model does not know costs the most, and no class makes a set dearer.
    assert costs.of_sets(chosen, labels).tolist() == [2, 0.5, 0, 6, 3]
    assert costs.of_sets(np.zeros_like(chosen), labels).tolist() == [2, 3, 3, 6, 3]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (EVERY[1:], "it has none for ash"),
        ([*EVERY, EVERY[0]], "row 8: it must have a label"),
        ([*EVERY, "elm,oak,1", "elm, oak ,2"], "row 9: it must have a label"),
        ([*EVERY, "elm,beech,1"], "row 8: beech"),
        ([*EVERY, "elm,oak,-1"], "row 8: its cost must be"),
        ([*EVERY[1:], "ash,,0"], "row 7: its cost must be"),
    ],
)
def test_what_is_no_table_of_costs_is_refused(tmp_path, rows, message):
    path = write(tmp_path / "costs.csv", rows)
    with pytest.raises(UserError, match=message):
        named_costs.named(path, NAMES, None)


def test_a_taxonomy_costs_by_the_height_at_which_the_set_and_the_label_meet():
    # Two of the genera have one species, and one family has one genus.
    genera, families = ("a", "a", "b", "c", "d", "d"), ("x", "x", "x", "y", "z", "z")
    paths = tuple(zip(families, genera, NAMES, strict=True))
    tree = ClassTree(("family", "genus", "species"), paths)
    costs = named_costs.named("taxonomy", NAMES, None, tree)
    expected = np.ones((NUM_CLASSES, NUM_CLASSES))
    for label, (family, genus, _) in enumerate(paths):
        for other, (of_other, other_genus, _) in enumerate(paths):
            if family == of_other:
                expected[label, other] = 1 / 3 if genus == other_genus else 2 / 3
            if label == other:
                expected[label, other] = 0
    np.testing.assert_allclose(costs.between, expected)
    with pytest.raises(UserError, match="--costs=taxonomy needs a taxonomy of the classes"):
        named_costs.named("taxonomy", NAMES, None)


def test_macro_costs_need_the_numbers_of_training_examples():
    with pytest.raises(UserError, match="--costs=macro needs the number of training examples"):
        named_costs.named("macro", NAMES, None)
