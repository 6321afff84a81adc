"""The exported program takes any number of examples, of any number of classes, with every rule."""

import re
from types import SimpleNamespace

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from tests.parts.program.prediction import fitted_rules
from tests.rows import rows
from topk_jax.rules import CONFORMAL, Answer
from train.data import taxonomy
from train.data.classes import Classes
from train.package import program


def classifier_of(num_classes):
    """A classifier of features, one for each class, whose network looks entries up."""

    def scores(features):
        order = jnp.argsort(features, axis=-1)
        return jax.nn.softmax(jnp.take_along_axis(features, order, axis=-1))

    return SimpleNamespace(inputs="features", shape=(num_classes,), scores=lambda: scores)


def calls(num_classes, rule):
    """The results of the exported program for batches, and of the inference."""
    classifier = classifier_of(num_classes)
    found = exported(classifier, rule)
    infer = jax.jit(program.make(classifier, rule))
    for number in (1, 2, 33):
        features = np.random.default_rng(number).normal(size=(number, num_classes))
        features = features.astype(np.float32)
        yield jax.device_get((tuple(found.call(features)), infer(features)))


@pytest.mark.parametrize("num_classes", rows([7, 100, 1000, 1081], [10_000, 131_072]))
def test_the_likeliest_classes(num_classes):
    for k in (1, 5):
        rule = fitted_rules.of(f"top_k={k}", classes=num_classes)
        for found, expected in calls(num_classes, rule):
            # The same operations on the same machine: to the last bit.
            jax.tree.map(np.testing.assert_array_equal, found, expected)
            assert (found[1].sum(axis=-1) == k).all()


class AllRules:
    """The sets of every other rule, [n, rules, L]."""

    says_new, tree = False, None
    rule = SimpleNamespace(new_score=None)

    def __init__(self, num_classes):
        names = [f"{label // 10} {label}" for label in range(num_classes)]
        tree = taxonomy.first_words(names)
        classes = Classes(tuple(names), tuple(range(1, num_classes + 1)), tree)
        named = {"classes": classes, "tree": tree.digest}
        more = {"taxonomic": named, "pas": {"class_counts": list(classes.training_images)}}
        limits = np.linspace(0.1, 0.9, num_classes).tolist()
        self.rules = [fitted_rules.of("average_k=2.5", 0.01, classes=classes)]
        self.rules.append(fitted_rules.of("average_k=2.5, max_names=2", 0.01, **named))
        for kind in CONFORMAL:
            given = {"classes": classes, **more.get(kind, {})}
            has_many = kind in ("class_conditional", "clustered", "interpolated")
            of_kind = limits if has_many else limits[num_classes // 2]
            self.rules.append(fitted_rules.of(f"coverage=0.9, rule={kind}", of_kind, **given))

    def answer(self, probabilities, _outliers):
        members = [rule.answer(probabilities).members for rule in self.rules]
        return Answer(jnp.stack(members, axis=1))


@pytest.mark.parametrize("num_classes", rows([1000], [7, 100, 1081, 10_000]))
def test_every_other_rule(num_classes):
    rule = AllRules(num_classes)
    for found, expected in calls(num_classes, rule):
        assert found[1].shape == (len(found[0]), len(rule.rules), num_classes)
        # A score at its limit may be rounded to the other side of it.
        assert (found[1] != expected[1]).sum() <= found[1].size / 1000


def test_each_platform_has_its_own_selection():
    made = exported(classifier_of(1000), fitted_rules.of("top_k=5", classes=1000))
    text = made.mlir_module()
    lists = re.findall(r"stablehlo\.reduce\([^)]*init[^)]*\)(?:, \([^)]*init[^)]*\)){3,}", text)
    # On the CPU XLA's selection in two steps, elsewhere a reduction of ordered lists.
    assert (made.platforms, len(lists)) == (("cpu", "cuda", "tpu"), 1)
    assert len(re.findall(r"composite \"chlo\.top_k\"", text)) == 2


def exported(classifier, rule):
    return jax.export.deserialize(bytearray(program.serialize(classifier, rule)))
