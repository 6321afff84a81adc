"""The exported program takes any number of examples, of any number of classes, with every rule."""

from types import SimpleNamespace

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from train.evaluation.class_tree import ClassTree
from train.evaluation.conformal_rules import RULES
from train.evaluation.conformal_sets import ConformalSets
from train.foundation import ranks
from train.prediction import exported_program, inference
from train.prediction.calibrated_rule import CalibratedRule

BATCH_SIZES = (0, 1, 2, 33)


def classifier_of(num_classes):
    """A classifier of features, one for each class, whose network looks entries up."""

    def scores(features):
        order = jnp.argsort(features, axis=-1)
        return jax.nn.softmax(jnp.take_along_axis(features, order, axis=-1))

    spec = SimpleNamespace(inputs="features")
    return SimpleNamespace(spec=spec, image_shape=(num_classes,), scores=lambda: scores)


def calls(num_classes, rule):
    """The results of the exported program for batches, and of the inference."""
    classifier = classifier_of(num_classes)
    program = jax.export.deserialize(bytearray(exported_program.serialize(classifier, rule)))
    infer = jax.jit(inference.make(classifier, rule))
    for number in BATCH_SIZES:
        features = np.random.default_rng(number).normal(size=(number, num_classes))
        features = features.astype(np.float32)
        yield jax.device_get((tuple(program.call(features)), infer(features)))


@pytest.mark.parametrize("num_classes", [7, 100, 1000, 1081])
def test_the_likeliest_classes(num_classes):
    for k in (1, 5):
        for found, expected in calls(num_classes, CalibratedRule("top_k", float(k), None)):
            # The same operations on the same machine: to the last bit.
            jax.tree.map(np.testing.assert_array_equal, found, expected)
            assert (found[1].sum(axis=-1) == k).all()


class AllRules:
    """The sets of every other rule, [n, rules, L]."""

    new = None

    def __init__(self, num_classes):
        counts = np.arange(1, num_classes + 1)
        limits = np.linspace(0.1, 0.9, num_classes, dtype=np.float32)
        names = [f"{label // 10} {label}" for label in range(num_classes)]
        tree = ClassTree.of(ranks.first_words(names), names)
        self.rules = [
            CalibratedRule("average_k", 2.5, 0.01),
            CalibratedRule("average_k", 2.5, 0.01, tree=tree, max_names=2),
        ]
        for rule in RULES.values():
            of_classes = rule.quantile in ("classes", "clusters", "middle")
            sets = ConformalSets(
                rule,
                limits if of_classes else limits[num_classes // 2],
                counts if rule.needs_class_counts else None,
                tree if rule.needs_taxonomy else None,
            )
            self.rules.append(CalibratedRule("coverage", 0.9, None, sets))

    def answer(self, probabilities):
        return (jnp.stack([rule.choose(probabilities) for rule in self.rules], axis=1),)


@pytest.mark.slow
def test_every_other_rule():
    rule = AllRules(1000)
    for found, expected in calls(1000, rule):
        assert found[1].shape == (len(found[0]), len(rule.rules), 1000)
        # A score at its limit may be rounded to the other side of it.
        assert (found[1] != expected[1]).sum() <= found[1].size / 1000
