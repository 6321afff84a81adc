"""Every rule and every outlier score makes the same sets in ONNX Runtime as in JAX."""

from functools import partial

import jax
import numpy as np
import pytest

from tests.parts.program.package.onnx import in_onnx
from tests.parts.program.prediction import fitted_rules
from topk_jax import sets
from topk_jax.rules import CONFORMAL
from train.classifiers import outliers
from train.data import taxonomy
from train.data.classes import Classes

NUM_CLASSES = 12
NAMES = tuple(f"{label // 3} {label}" for label in range(NUM_CLASSES))
TREE = taxonomy.first_words(NAMES)
assert TREE is not None
CLASSES = Classes(NAMES, tuple(range(1, NUM_CLASSES + 1)), TREE)
LOGITS = 2 * np.random.default_rng(0).normal(size=(30, NUM_CLASSES)).astype(np.float32)


def probabilities_of(logits):
    found = np.array(jax.nn.softmax(logits))
    # Equal ones, a certain class, and the same for all.
    found[1, :4] = found[1, 0]
    found[2] = np.eye(found.shape[1])[3]
    found[3] = 1 / found.shape[1]
    return found


PROBABILITIES = probabilities_of(LOGITS)


def conformal(kind, limit=0.6):
    """A rule with limits of classes, one of which is infinite, or with one limit."""
    more = {}
    if kind in ("class_conditional", "clustered", "interpolated"):
        limit = ["inf", *np.linspace(0.1, 0.9, NUM_CLASSES).tolist()[1:]]
    if kind == "pas":
        more, limit = {"class_counts": list(CLASSES.training_images)}, -1.0
    if kind == "taxonomic":
        more = {"tree": TREE.digest}
    return fitted_rules.of(f"coverage=0.9, rule={kind}", limit, classes=CLASSES, **more)


def of(text, limits=None, **more):
    return fitted_rules.of(text, limits, classes=CLASSES, **more)


RULES = {
    "top_k": of("top_k=3"),
    "average_k": of("average_k=2.5", 0.04),
    "adaptive": of("adaptive=0.9"),
    "max_error": of("max_error=0.1", 0.3),
    "utility": of("utility=u65"),
    "max_names": of("average_k=2.5, max_names=2", 0.04, tree=TREE.digest),
    "lac": of("coverage=0.9", 0.04),
    **{kind: conformal(kind) for kind in CONFORMAL if kind != "lac"},
    **{
        f"{kind}, {limit}": conformal(kind, limit)
        for kind in ("aps", "raps")
        for limit in (0.0, 0.95)
    },
}


def answers(rule, *, outliers=None):
    """The parts of the answer that a rule gives, as a function of probabilities."""

    def answer(probabilities):
        found = rule.answer(probabilities, outliers)
        return tuple(one for one in found if one is not None)

    return answer


@pytest.mark.parametrize("name", RULES)
def test_a_rule(name):
    check(RULES[name], PROBABILITIES)


@pytest.mark.parametrize(("text", "limit"), [("top_k=3", None), ("max_error=0.1", 0.3)])
def test_of_many_classes(text, limit):
    """The largest of many are selected by other operations."""
    logits = 4 * np.random.default_rng(0).normal(size=(6, 6000)).astype(np.float32)
    check(fitted_rules.of(text, limit, classes=6000), probabilities_of(logits))


def check(rule, probabilities):
    call = in_onnx.lowered(answers(rule), probabilities)
    expected = jax.jit(answers(rule))(probabilities)
    for rows in (slice(None), slice(1, 2)):
        for found, wanted in zip(call(probabilities[rows]), expected, strict=True):
            np.testing.assert_array_equal(found, wanted[rows])
    sizes = np.asarray(expected[0]).sum(axis=-1)
    # Neither empty nor full all along, so that the comparison says something.
    assert 0 < sizes.sum() < sizes.size * probabilities.shape[1]


def outliers_of(name):
    if name in outliers.OF_LOGITS:
        return partial(sets.outlier_scores, kind=name)
    # More than one block of those to which distances are computed.
    known = np.random.default_rng(2).normal(size=(5000, NUM_CLASSES)).astype(np.float32)
    if name == "neighbors":
        return lambda features: sets.neighbor_scores(features, known, k=3)
    whitening = np.tril(known[:NUM_CLASSES])
    return lambda features: sets.mahalanobis_scores(features, known[:9], whitening)


@pytest.mark.parametrize("name", [*outliers.OF_LOGITS, "neighbors", "mahalanobis"])
def test_an_outlier_score(name):
    in_onnx.check(outliers_of(name), LOGITS)


def test_none_of_these():
    rule = of("coverage=0.9, new_score=energy", 0.04, known_to=-4.0, new_from=-5.0)
    energy = outliers_of("energy")

    def infer(logits):
        answer = rule.answer(jax.nn.softmax(logits), energy(logits))
        return answer.members, answer.none_of_these

    in_onnx.check(infer, LOGITS)
    says_new = np.asarray(infer(LOGITS)[1])
    assert 0 < says_new.sum() < len(says_new)
