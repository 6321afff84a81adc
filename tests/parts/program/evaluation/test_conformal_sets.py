"""The conformal rules of the program, each against the references and what it refuses."""

import dataclasses

import jax
import numpy as np
import pytest

from tests import reference
from topk_jax import sets
from train.data.taxonomy import ClassTree
from train.evaluation import conformal_sets, predictions
from train.evaluation.conformal_rules import RULES
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError

NUM_CLASSES = 6
# Powers of two: quotients by frequencies are exact.
COUNTS = np.array([1, 2, 4, 8, 16, 1])
COVERAGE, ERROR = 0.8, 0.2
TREE = ClassTree.of(
    ("genus", "species"),
    [(f"genus {label // 2}",) for label in range(NUM_CLASSES)],
    [f"species {label}" for label in range(NUM_CLASSES)],
)
# A score of the penalties of 32 bits is that near; no other score of these is.
NEAR = 1e-6


def draw(number, seed):
    """Probabilities in sixteenths, so that scores tie and are exact; the last class is rare."""
    rng = np.random.default_rng(seed)
    scores = rng.multinomial(16, rng.dirichlet(np.ones(NUM_CLASSES), size=number)) / 16
    labels = np.array([rng.choice(NUM_CLASSES, p=row) for row in scores]) % (NUM_CLASSES - 1)
    labels[:2] = NUM_CLASSES - 1
    return Predictions(np.zeros(number), scores.astype(np.float32), labels, np.zeros(number, int))


@pytest.fixture(scope="module")
def calibrated_on():
    return draw(120, 1)


@pytest.fixture(scope="module")
def examples():
    return draw(40, 2)


def of_labels(scores, labels):
    return scores[np.arange(len(labels)), labels]


def expected_scores(rule, examples):
    """The scores [n, L] of a rule, in float64."""
    if rule.needs_taxonomy:
        return reference.node_scores(examples.scores, TREE.taxonomy)
    kind = rule.score or {"kind": "lac"}
    counts = {"class_counts": COUNTS} if rule.needs_class_counts else {}
    return reference.conformal_scores(examples.scores, **kind, **counts)


def expected_limits(rule, scores, labels):
    """The quantiles of the scores [n, L] of a rule, in float64."""
    own = of_labels(scores, labels)
    of_all = reference.conformal_quantile(own, error=ERROR)
    of_classes = reference.class_conditional_quantiles(
        own, labels, error=ERROR, num_classes=NUM_CLASSES
    )
    return {
        "all": of_all,
        "classes": of_classes,
        "middle": (np.minimum(of_classes, 1.0) + of_all) / 2,
        # The authors choose no clusters if a class has so few examples.
        "clusters": np.full(NUM_CLASSES, of_all),
    }[rule.quantile]


@pytest.mark.parametrize("name", RULES)
def test_the_sets_of_a_rule_are_those_of_the_references(name, examples, calibrated_on, monkeypatch):
    # Several chunks, all of one size.
    monkeypatch.setattr(predictions, "CHUNK", 40)
    rule = RULES[name]
    found = conformal_sets.calibrate(rule, calibrated_on, COVERAGE, COUNTS, TREE)
    of_all = expected_scores(rule, calibrated_on)
    limits = expected_limits(rule, of_all, calibrated_on.labels)
    # For the default rule it is the smallest probability.
    shown = 1 - limits if rule.score is None else limits
    np.testing.assert_allclose(found.limits, shown, rtol=NEAR)
    assert found.limits.shape == np.shape(limits)
    assert found.num_in_every_set == (1 if name == "class_conditional" else 0)
    scores = expected_scores(rule, examples)
    np.testing.assert_array_equal(found(examples.scores), scores <= limits + NEAR)


def test_classes_with_many_examples_make_clusters():
    rng = np.random.default_rng(3)
    labels = np.arange(480) % NUM_CLASSES
    # Half of the classes are easy.
    scores = np.where(labels < 3, rng.uniform(0.7, 1.0, 480), rng.uniform(0.2, 0.5, 480))
    table = np.repeat((1 - scores[:, None]) / (NUM_CLASSES - 1), NUM_CLASSES, axis=1)
    table[np.arange(480), labels] = scores
    many = Predictions(np.zeros(480), table.astype(np.float32), labels, np.zeros(480, int))
    found = conformal_sets.calibrate(RULES["clustered"], many, COVERAGE, None)
    expected = sets.clustered_quantiles(
        1 - scores.astype(np.float32),
        labels,
        key=jax.random.key(0),
        error=ERROR,
        num_classes=NUM_CLASSES,
    )
    np.testing.assert_array_equal(found.limits, expected)
    assert len(np.unique(found.limits)) > 1


def test_what_a_rule_needs_is_said(calibrated_on):
    def refused(name, examples, counts, coverage=COVERAGE, tree=TREE):
        with pytest.raises(UserError) as error:
            conformal_sets.calibrate(RULES[name], examples, coverage, counts, tree)
        return str(error.value)

    assert "pas needs the number of training examples of each class" in refused(
        "pas", calibrated_on, None
    )
    without = refused("taxonomic", calibrated_on, None, tree=None)
    assert "taxonomic needs a taxonomy of the classes: give --taxonomy" in without
    none = np.where(np.arange(NUM_CLASSES) < 2, 0, COUNTS)
    assert "of every class; 2 of 6 classes have none" in refused("pas", calibrated_on, none)
    doubled = dataclasses.replace(calibrated_on, scores=2 * calibrated_on.scores)
    for name, rule in RULES.items():
        # Sums of probabilities, the largest of them beside penalties, and a largest score of 1.
        if name in ("aps", "raps", "saps", "interpolated", "taxonomic"):
            assert "add up to 1" in refused(name, doubled, COUNTS)
        elif rule.score is not None:
            assert "needs probabilities, from 0 to 1" in refused(name, doubled, COUNTS)
        else:
            conformal_sets.calibrate(rule, doubled, COVERAGE, COUNTS)
        assert "999 examples" in refused(name, calibrated_on, COUNTS, 0.999)
