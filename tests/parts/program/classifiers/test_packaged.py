"""A program as a classifier: its scores are those of its run, and its sets those of its rule."""

import hashlib
import json

import jax
import numpy as np
import pytest

from train.classifiers import fitted, loading, packaged, trained
from train.classifiers.flags import ChosenClassifier
from train.data.examples import Examples
from train.foundation import files
from train.foundation.errors import UserError
from train.package import program
from train.reports import rules

NAMES = [str(digit) for digit in range(10)]
TEXT = "coverage=0.9, new_score=mahalanobis"


@pytest.fixture(scope="module")
def run(finished_run):
    return trained.load(finished_run)


@pytest.fixture(scope="module")
def written(run, tmp_path_factory):
    """A program that can say "none of these", and its description."""
    path = tmp_path_factory.mktemp("program") / "p"
    rule = fitted.find(run, rules.parse(TEXT))
    path.write_bytes(content := program.serialize(run, rule))
    described = program.describe(run, rule)
    described["digest"] = hashlib.sha256(content).hexdigest()
    path.with_name("p.json").write_bytes(files.to_json(files.with_checksum(described)))
    return path


@pytest.fixture(scope="module")
def examples(run):
    """Digits, and noise; some are of a class that the classifier does not know."""
    noise = np.random.default_rng(0).integers(0, 256, (35, 8, 8, 1), np.uint8)
    pixels = np.concatenate([run.load_dataset().test.rows(np.arange(35)), noise])
    return Examples.of_source(pixels, np.arange(70) % 11, [*NAMES, "letter"], "here")


def test_its_scores_are_those_of_its_run(run, written, examples):
    found = loading.load(ChosenClassifier(weights=str(written)))
    assert (found.title, found.classes, found.inputs) == (str(written), run.classes, "images")
    assert (found.shape, found.reader.fit.size) == (run.shape, run.reader.fit.size)
    ours, theirs = (one.score(examples, new_score="mahalanobis") for one in (found, run))
    for name in ("values", "outliers"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=1e-6)
    for name in ("labels", "ranks", "indices", "known"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert ours.class_names == theirs.class_names == (*NAMES, "letter")
    assert np.isnan(ours.loss[~ours.known]).all()
    assert np.isfinite(ours.loss[ours.known]).all()
    scores, outliers = (jax.jit(one) for one in (found.scores(), found.outliers("mahalanobis")))
    np.testing.assert_allclose(scores(examples.array), ours.values, rtol=1e-5)
    np.testing.assert_allclose(outliers(examples.array), ours.outliers, rtol=1e-5)
    with pytest.raises(UserError, match="new_score must be mahalanobis, the score of "):
        found.score(examples, new_score="logit")


def test_another_taxonomy_is_above_its_classes(written, tmp_path):
    lines = [f"{name},{'low' if int(name) < 5 else 'high'}" for name in NAMES]
    (tmp_path / "t.csv").write_text("\n".join(["digit,half", *lines]))
    chosen = ChosenClassifier(weights=str(written), taxonomy=str(tmp_path / "t.csv"))
    chosen.check()
    found = loading.load(chosen)
    assert found.classes.tree.ranks == ("half", "digit")
    assert found.own_rule.tree is None


WRONG = {
    "missing required field `classes`": lambda plain: plain.pop("classes"),
    "it has neither images nor features": lambda plain: plain.pop("images"),
    "its steps give pixels of shape": lambda plain: plain["images"]["steps"].pop(),
    "the rule is damaged": lambda plain: plain["rule"].update(limits=None),
    "coverage must be": lambda plain: plain["rule"].update(rule="coverage=2"),
    "one of the two was changed": lambda plain: plain.update(digest="x"),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_description_that_is_damaged_is_told_in_one_line(written, tmp_path, message):
    described = json.loads(written.with_name("p.json").read_text())
    del described["sha256"]
    WRONG[message](described)
    path = tmp_path / "q"
    path.write_bytes(written.read_bytes())
    for plain, told in ((described, "it was changed"), (files.with_checksum(described), message)):
        path.with_name("q.json").write_text(json.dumps(plain))
        with pytest.raises(UserError, match=told) as raised:
            packaged.read(path)
        assert "\n" not in str(raised.value)
