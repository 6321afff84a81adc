"""Every rule and every outlier score makes the same sets in ONNX Runtime as in JAX."""

from functools import partial

import jax
import numpy as np
import pytest

from tests.parts.program.prediction.onnx import in_onnx
from topk_jax import sets
from train.data import taxonomy
from train.evaluation import outlier_scores, utility_sets
from train.evaluation.conformal_rules import RULES
from train.evaluation.conformal_sets import ConformalSets
from train.evaluation.new_classes import NewClassLimits
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.new_class_rule import NewClassRule
from train.prediction.onnx import portable
from train.prediction.outliers import OutlierScore

NUM_CLASSES = 12
NAMES = [f"{label // 3} {label}" for label in range(NUM_CLASSES)]
TREE = taxonomy.first_words(NAMES)
LOGITS = 2 * np.random.default_rng(0).normal(size=(30, NUM_CLASSES)).astype(np.float32)


def probabilities_of(logits):
    found = np.array(jax.nn.softmax(logits))
    # Equal ones, a certain class, and the same for all.
    found[1, :4] = found[1, 0]
    found[2] = np.eye(found.shape[1])[3]
    found[3] = 1 / found.shape[1]
    return found


PROBABILITIES = probabilities_of(LOGITS)


def conformal(rule, num_classes=NUM_CLASSES, tree=TREE, limit=None):
    limits = np.linspace(0.1, 0.9, num_classes, dtype=np.float32)
    limits[0] = np.inf
    if rule.quantile == "all":
        limits = np.float32((-1 if rule.needs_class_counts else 0.6) if limit is None else limit)
    counts = np.arange(1, num_classes + 1) if rule.needs_class_counts else None
    tree = tree if rule.needs_taxonomy else None
    return CalibratedRule(
        "coverage", 0.9, None, ConformalSets(rule, limits, counts, tree), tree=tree
    )


def utility(name, num_classes=NUM_CLASSES):
    worth = utility_sets.of_sizes(name, num_classes)
    return CalibratedRule("utility", name, None, worth=worth)


OTHER_RULES = {
    "top_k": CalibratedRule("top_k", 3.0, None),
    "average_k": CalibratedRule("average_k", 2.5, 0.04),
    "all classes": CalibratedRule("average_k", float(NUM_CLASSES), -np.inf),
    "max_error": CalibratedRule("max_error", 0.1, 0.3),
    "utility": utility("u65"),
    "max_names": CalibratedRule("average_k", 2.5, 0.04, tree=TREE, max_names=2),
}


@pytest.mark.parametrize("name", [*OTHER_RULES, *RULES])
def test_a_rule(name):
    rule = OTHER_RULES[name] if name in OTHER_RULES else conformal(RULES[name])
    call = in_onnx.lowered(portable.answer(rule), PROBABILITIES)
    expected = jax.jit(rule.answer)(PROBABILITIES)
    for rows in (slice(None), slice(1, 2)):
        for found, wanted in zip(call(PROBABILITIES[rows]), expected, strict=True):
            np.testing.assert_array_equal(found, wanted[rows])
    sizes = np.asarray(expected[0]).sum(axis=-1)
    # Neither empty nor full all along, so that the comparison says something.
    assert 0 < sizes.sum() < sizes.size * NUM_CLASSES or name == "all classes"


ORDERED = [RULES[name] for name in ("aps", "raps", "saps")]


@pytest.mark.parametrize("limit", [0.0, 0.45, 0.95, np.inf])
@pytest.mark.parametrize("rule", ORDERED, ids=lambda rule: rule.name)
def test_forms_that_sort_have_the_sets_of_the_library(rule, limit):
    rule = conformal(rule, limit=limit)
    found, wanted = (
        jax.jit(form)(PROBABILITIES)[0] for form in (portable.answer(rule), rule.answer)
    )
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("form", ["sets", "utility"])
def test_forms_that_sort_for_many_classes(form):
    num_classes = 300
    logits = np.random.default_rng(1).normal(size=(40, num_classes)).astype(np.float32)
    probabilities = probabilities_of(logits)
    rule = utility("u80", num_classes)
    if form == "sets":
        rule = conformal(RULES["raps"], num_classes, limit=0.7)
    found, wanted = (
        jax.jit(form)(probabilities)[0] for form in (portable.answer(rule), rule.answer)
    )
    np.testing.assert_array_equal(found, wanted)


def outliers_of(name):
    if name in outlier_scores.OF_LOGITS:
        return partial(sets.outlier_scores, kind=name)
    known = np.random.default_rng(2).normal(size=(700, NUM_CLASSES)).astype(np.float32)
    if name == "neighbors":
        return lambda features: sets.neighbor_scores(features, known, k=3)
    whitening = np.tril(known[:NUM_CLASSES])
    return lambda features: sets.mahalanobis_scores(features, known[:9], whitening)


@pytest.mark.parametrize("name", outlier_scores.OF_LOGITS | outlier_scores.OF_FEATURES)
def test_an_outlier_score(name):
    in_onnx.check(outliers_of(name), LOGITS)


def test_none_of_these():
    rule = OTHER_RULES["average_k"]
    limits = NewClassLimits(known_to=-4.0, new_from=-5.0)
    new = NewClassRule(OutlierScore("energy", outliers_of("energy")), limits)

    def infer(logits):
        return new.add(rule.answer(jax.nn.softmax(logits)), logits)

    in_onnx.check(infer, LOGITS)
    says_new = np.asarray(infer(LOGITS)[1])
    assert 0 < says_new.sum() < len(says_new)
