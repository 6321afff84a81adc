"""Conformal rules by name: the flag, what is stored, the words, and the exported program."""

import dataclasses
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.parts.program.sealed import unsealed
from train.data.taxonomy import ClassTree
from train.evaluation import conformal_sets
from train.evaluation.conformal_rules import RULES
from train.evaluation.predictions import Predictions
from train.foundation import files
from train.foundation.errors import UserError
from train.prediction import exported_classifier, exported_program, rule_flags
from train.prediction.calibrated_rule import CalibratedRule, calibrate

NONE = {"top_k": None, "average_k": None, "coverage": None, "rule": None}
COVERAGE = 0.75
WITH_SCORES = [name for name, rule in RULES.items() if rule.score is not None]


class FakeClassifier:
    """Takes probabilities of six classes as features, and counts the looks at its validation."""

    num_classes = 6
    class_counts = np.array([90, 50, 20, 10, 5, 3])
    spec = SimpleNamespace(inputs="features", has_images=False, name="fake", attribution=None)
    classes = SimpleNamespace(names=tuple("abcdef"))
    tree = ClassTree.of(("genus", "species"), zip("ABBCCC", strict=True), "abcdef")
    origin = ("loss", "none")
    image_shape = (6,)

    def __init__(self, workdir=None):
        self.workdir = workdir
        self.network_name = "none"
        self.asked = 0
        rng = np.random.default_rng(3)
        scores = rng.dirichlet(np.ones(6), size=60).astype(np.float32)
        # Two examples of the last class are too few for a limit of its own.
        labels = np.append(rng.integers(0, 5, size=58), [5, 5])
        self.validation = Predictions(np.zeros(60), scores, labels, np.zeros(60, int))

    def predict(self, _):
        self.asked += 1
        return self.validation

    def scores(self):
        return lambda inputs: inputs


def calibrated(name, classifier=None):
    values = NONE | {"coverage": COVERAGE, "rule": name}
    return calibrate(classifier or FakeClassifier(), rule_flags.chosen(values))


def test_a_class_without_training_examples_is_refused_before_anything_is_predicted():
    classifier = FakeClassifier()
    classifier.class_counts = np.array([0, 50, 20, 10, 5, 3])
    with pytest.raises(UserError, match="pas needs training examples of every class; 1 of 6"):
        calibrated("pas", classifier)
    assert classifier.asked == 0


@pytest.mark.parametrize("name", WITH_SCORES)
def test_limits_are_found_once_and_read_as_they_were(name, tmp_path):
    classifier = FakeClassifier(tmp_path)
    counts = classifier.class_counts
    expected = conformal_sets.calibrate(
        RULES[name], classifier.validation, COVERAGE, counts, classifier.tree
    )
    for _ in range(2):
        found = calibrated(name, classifier).conformal
        np.testing.assert_array_equal(found.limits, expected.limits)
        assert found.limits.dtype == np.float32
    assert classifier.asked == 1


def test_limits_of_other_parameters_are_found_again(tmp_path, monkeypatch):
    classifier = FakeClassifier(tmp_path)
    calibrated("saps", classifier)
    assert set(unsealed(tmp_path / "calibration.json")) == {
        "coverage_0.75_saps_rank_penalty=0.2",
        "calibrated_on",
    }
    other = dataclasses.replace(RULES["saps"], score={"kind": "saps", "rank_penalty": 0.5})
    monkeypatch.setitem(RULES, "saps", other)
    calibrated("saps", classifier)
    assert classifier.asked == 2


def test_limits_of_nan_are_not_stored_as_infinite(tmp_path):
    classifier = FakeClassifier(tmp_path)
    classifier.validation.scores[7] = np.nan
    found = calibrated("class_conditional", classifier).conformal
    assert np.isnan(found.limits).all()
    assert set(unsealed(tmp_path / "calibration.json")) == {"calibrated_on"}


BY_CLASS = [name for name, rule in RULES.items() if rule.quantile in ("classes", "middle")]


@pytest.mark.parametrize("name", BY_CLASS)
def test_limits_of_too_few_examples_of_every_class_are_refused(name, tmp_path):
    # Of 60 examples of six classes, each class needs 39.
    chosen = rule_flags.chosen(NONE | {"coverage": 0.975, "rule": name})
    classifier = FakeClassifier(tmp_path)
    # And when they are kept.
    for _ in range(2):
        with pytest.raises(UserError, match=name):
            calibrate(classifier, chosen)
    # Six examples of each class are enough for this.
    fewer = rule_flags.chosen(NONE | {"coverage": 0.8, "rule": name})
    assert calibrate(classifier, fewer).conformal.limits.shape == (6,)


def test_programs_of_earlier_versions_are_judged_by_their_limits(tmp_path, caplog):
    path = tmp_path / "program"
    path.write_bytes(b"program")
    described = {"classes": ["a", "b"], "features": {"shape": ["n", 2]}}

    def read(**changed):
        path.with_name("program.json").write_text(json.dumps(described | changed))
        return exported_classifier.read(path)

    with pytest.raises(UserError, match="class_conditional"):
        read(rule="coverage=0.9, rule=class_conditional", quantiles=[None, None])
    with pytest.raises(UserError, match="interpolated"):
        read(rule="coverage=0.9, rule=interpolated", quantiles=[0.75, 0.75])
    assert not caplog.messages
    read(rule="coverage=0.9, rule=class_conditional", quantiles=[0.5, None])
    assert "1 of 2 classes" in caplog.text
    read(rule="coverage=0.9, rule=interpolated", quantiles=[0.75, 0.5])
    read(rule="coverage=0.9, rule=aps", quantiles=0.5)
    assert len(caplog.messages) == 1


def test_programs_of_any_number_of_examples_have_the_sets_of_each_rule():
    rules = {name: calibrated(name) for name in RULES}
    (number,) = jax.export.symbolic_shape("n")
    every = jax.jit(lambda rows: {name: rule.choose(rows) for name, rule in rules.items()})
    batch = jax.ShapeDtypeStruct((number, 6), np.float32)
    exported = jax.export.export(every, platforms=("cpu", "cuda", "tpu"))(batch)
    program = jax.export.deserialize(bytearray(exported.serialize()))
    rows = np.random.default_rng(0).dirichlet(np.ones(6), size=33).astype(np.float32)
    chosen = program.call(rows)
    for name, rule in rules.items():
        made = rule.conformal or (lambda table, rule=rule: rule.choose(table))
        np.testing.assert_array_equal(chosen[name], made(rows), err_msg=name)
        assert 0 < np.mean(chosen[name]) < 1


def test_the_exported_file_has_the_rule_and_its_limits():
    classifier = FakeClassifier()
    program = exported_program.serialize(classifier, calibrated("class_conditional"))
    _, chosen = jax.export.deserialize(bytearray(program)).call(classifier.validation.scores)
    assert np.asarray(chosen)[:, 5].all()
    rule = calibrated("class_conditional")
    described = json.loads(files.to_json(exported_program.describe(classifier, rule)))
    assert described["rule"] == "coverage=0.75, rule=class_conditional"
    assert described["rule_in_words"] == rule.in_words()
    assert (described["threshold"], described["score"]) == (None, {"kind": "lac"})
    assert described["quantiles"][5] is None
    np.testing.assert_array_equal(np.float32(described["quantiles"][:5]), rule.conformal.limits[:5])
    described = json.loads(files.to_json(exported_program.describe(classifier, calibrated("pas"))))
    assert described["score"] == {"kind": "pas", "class_counts": [90, 50, 20, 10, 5, 3]}
    top = exported_program.describe(classifier, CalibratedRule("top_k", 1, None))
    assert not {"score", "quantiles"} & top.keys()
