"""A program as a classifier: its scores are those of its run, and its sets those of its rule."""

import hashlib
import json

import jax
import numpy as np
import pytest

from train.classifiers import fitted, flags, program, trained
from train.classifiers.flags import ChosenClassifier
from train.data.examples import Examples
from train.data.truths import Truths
from train.foundation.errors import UserError
from train.prediction import exported_program
from train.reports import rules

NAMES = [str(digit) for digit in range(10)]
TEXT = "coverage=0.9, new_score=mahalanobis"


def write(path, content, description):
    path.write_bytes(content)
    described = {**description, "digest": hashlib.sha256(content).hexdigest()}
    path.with_name(f"{path.name}.json").write_text(json.dumps(described))


@pytest.fixture(scope="module")
def run(finished_run):
    return trained.load(finished_run)


@pytest.fixture(scope="module")
def written(run, tmp_path_factory):
    """A program that can say "none of these", and its description."""
    path = tmp_path_factory.mktemp("program") / "p"
    rule = fitted.fitted(run, rules.parse(TEXT))
    write(path, exported_program.serialize(run, rule), exported_program.describe(run, rule))
    return path


@pytest.fixture(scope="module")
def examples(run):
    """Digits, and noise; some are of a class that the classifier does not know."""
    noise = np.random.default_rng(0).integers(0, 256, (35, 8, 8, 1), np.uint8)
    pixels = np.concatenate([run.load_dataset().test.rows(np.arange(35)), noise])
    return Examples.of_source(pixels, np.arange(70) % 11, [*NAMES, "letter"], "here")


def test_its_scores_are_those_of_its_run(run, written, examples):
    found = flags.load(ChosenClassifier(weights=str(written)))
    assert (found.title, found.classes, found.inputs) == (str(written), run.classes, "images")
    assert (found.shape, found.reader.fit.size) == (run.shape, run.reader.fit.size)
    given = {"new_score": "mahalanobis", "unknown": ("letter",)}
    ours, theirs = (one.score(examples, **given) for one in (found, run))
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
    with pytest.raises(UserError, match="new_score must be mahalanobis, the score of the program"):
        found.score(examples, new_score="logit")


def test_another_taxonomy_is_above_its_classes(written, tmp_path):
    lines = [f"{name},{'low' if int(name) < 5 else 'high'}" for name in NAMES]
    (tmp_path / "t.csv").write_text("\n".join(["digit,half", *lines]))
    chosen = ChosenClassifier(weights=str(written), taxonomy=str(tmp_path / "t.csv"))
    chosen.check()
    found = flags.load(chosen)
    assert found.classes.tree.ranks == ("half", "digit")
    assert found.own_rule.tree is None


def test_its_sets_follow_from_what_it_returns(written, examples):
    found = program.read(written).load()
    outputs = dict(zip(found.outputs, map(np.asarray, found.call(examples.array)), strict=True))
    answer = found.own_rule.answer(outputs["probabilities"], outputs["outlier_scores"])
    np.testing.assert_array_equal(answer.members, outputs["chosen"])
    np.testing.assert_array_equal(answer.none_of_these, outputs["none_of_these"])
    assert outputs["none_of_these"].sum() > 0
    assert found.own_rule.promise.coverage == 0.9


def test_labels_may_be_votes(run, written, examples):
    shares = np.tile(np.float32([0.75, 0.25]), (70, 1))
    classes = np.stack([np.arange(70) % 10, (np.arange(70) + 3) % 10], axis=1).astype(np.int32)
    voted = Examples.of_source(
        examples.array, np.arange(70) % 10, NAMES, "here", truths=Truths(classes, shares, "votes")
    )
    ours, theirs = (one.score(voted) for one in (program.read(written).load(), run))
    np.testing.assert_array_equal(ours.class_ranks, theirs.class_ranks)


WRONG = {
    "a number for each class": lambda plain: plain["classes"].pop(),
    "steps": lambda plain: plain["images"].pop("steps"),
    "steps ": lambda plain: plain["images"]["steps"].pop(),
    "expected 3": lambda plain: plain["images"].update(shape=["n", 8, 8]),
    "neither images nor features": lambda plain: plain.pop("images"),
    "no limits": lambda plain: plain["rule"].update(limits=None),
    "is not one of 10 classes": lambda plain: plain["rule"].update(limits=[0.1, 0.2]),
    "coverage must be": lambda plain: plain["rule"].update(rule="coverage=2"),
    "sets are not those": lambda plain: plain["rule"].update(limits=0.999),
    "is not the file that": lambda plain: plain.update(digest="x"),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_description_that_is_damaged_is_told_in_one_line(written, examples, tmp_path, message):
    described = json.loads(written.with_name("p.json").read_text())
    WRONG[message](described)
    path = tmp_path / "q"
    path.write_bytes(written.read_bytes())
    path.with_name("q.json").write_text(json.dumps(described))
    with pytest.raises(UserError, match=message.strip()) as raised:
        program.read(path).load().score(examples)
    assert "\n" not in str(raised.value)


def test_other_files_are_no_programs(tmp_path):
    write(tmp_path / "p", b"text", {"classes": ["a"], "rule": {"rule": "top_k=1"}})
    with pytest.raises(UserError, match=r"p is not a program that train.export wrote"):
        program.read(tmp_path / "p").load()
    with pytest.raises(UserError, match=r"--program .*q cannot be read: No such file"):
        program.read(tmp_path / "q")
    (tmp_path / "q").write_bytes(b"text")
    with pytest.raises(UserError, match=r"--program .*q needs its description .*q\.json"):
        program.read(tmp_path / "q")
