"""Rules of the program: their texts, files, observations, and what they need of the classes."""

import json

import numpy as np
import pytest

from tests.parts.program.reports.made_scores import (
    COUNTS,
    NAMES,
    NUM_CLASSES,
    PATHS,
    TREE,
    draw,
)
from topk_jax import rules
from train.data.classes import Classes
from train.data.taxonomy import ClassTree
from train.foundation.errors import UserError
from train.reports.rules import from_json, parse
from train.scores.observations import COMBINATIONS

TEXTS = (
    "top_k=3",
    "average_k=2.5",
    "coverage=0.9",
    "coverage=0.9, rule=aps, max_names=2, combine=trained",
    "coverage=0.8, rule=taxonomic",
    "coverage=0.8, new_score=energy",
    "risk=0.2, costs=taxonomy, combine=maximum",
    "utility=1,0.7,0.5",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_rule_is_the_same_after_its_text_and_a_file(text):
    rng = np.random.default_rng(1)
    calibration = draw(rng, 400, groups=150, tree=TREE)
    rule = parse(text)
    assert str(rule) == text
    assert str(parse(str(rule))) == text
    assert not rule.is_fitted or not rule.needs_limits
    fitted = rule.fit(calibration, "these")
    assert fitted.is_fitted
    plain = json.loads(json.dumps(fitted.to_json(), allow_nan=False))
    again = from_json(plain, calibration.classes)
    assert str(again) == plain["rule"] == text
    assert again.combination == fitted.combination
    assert again.promise == fitted.promise
    assert again.in_words == fitted.in_words == plain["in_words"]
    assert plain["promised"] == (None if fitted.promise is None else fitted.promise.coverage)
    new = draw(rng, 90)
    answers = (one.answer(new.values, new.outliers) for one in (fitted, again))
    for first, second in zip(*answers, strict=True):
        np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    assert (fitted.tree is not None) == ("names" in text or "taxonomic" in text)
    if fitted.tree is not None:
        assert "a species, or all of a part of the taxonomy, such as a genus" in fitted.in_words
    assert fitted.in_words.startswith(
        "Each set is the answer for all examples of an observation"
    ) == ("combine" in text)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_limits_of_observations_come_from_their_pooled_scores(name):
    calibration = draw(np.random.default_rng(2), 400, groups=150)
    rule = parse(f"coverage=0.8, combine={name}").fit(calibration, "these")
    weights = (1.0, 0.0) if rule.combination.weights is None else rule.combination.weights
    pooled, labels = [], []
    for group in dict.fromkeys(calibration.groups):
        rows = calibration.values[calibration.groups == group].astype(np.float64)
        logs = np.log(np.maximum(rows, np.finfo(np.float32).tiny))
        if name == "maximum":
            found = rows.max(axis=0)
        elif name == "probabilities":
            found = rows.mean(axis=0)
        else:
            weight = weights[0] + weights[1] * np.log2(len(rows))
            found = np.exp(weight * (logs.mean(axis=0) - logs.mean(axis=0).max()))
        pooled.append(found / found.sum())
        labels.append(calibration.labels[calibration.groups == group][0])
    of_labels = np.sort(np.array(pooled)[np.arange(len(labels)), labels])[::-1]
    rank = -(-(len(labels) + 1) * 8 // 10)
    assert float(rule.rule.limits) == pytest.approx(of_labels[rank - 1], rel=1e-5)
    assert rule.calibrated_on.examples == len(labels)


def test_examples_of_unknown_classes_do_not_calibrate():
    scores = draw(np.random.default_rng(3), 200, num_labels=NUM_CLASSES + 2)
    rule = parse("coverage=0.9").fit(scores, "these")
    known = scores.take(np.flatnonzero(scores.known))
    expected = rules.fit("coverage=0.9", known.values, known.labels)
    assert rule.rule.limits == expected.limits
    assert rule.calibrated_on.examples == len(known)


@pytest.mark.parametrize("text", ["coverage=0.9, rule=taxonomic", "risk=0.1, costs=taxonomy"])
def test_limits_for_another_taxonomy_are_refused(text):
    plain = parse(text).fit(draw(np.random.default_rng(4), 200, tree=TREE), "these").to_json()
    tree = ClassTree(TREE.ranks, tuple((path[0], "one genus" + path[0], path[2]) for path in PATHS))
    with pytest.raises(ValueError, match="for another taxonomy or other costs"):
        from_json(plain, Classes(NAMES, COUNTS, tree))


def test_sets_need_no_table_of_costs_but_another_one_is_refused(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("label,cost\n" + "".join(f"{name},1\n" for name in NAMES))
    scores = draw(np.random.default_rng(5), 200)
    plain = parse(f"risk=0.2, costs={path}").fit(scores, "these").to_json()
    path.write_text("label,cost\n" + "".join(f"{name},2\n" for name in NAMES))
    with pytest.raises(ValueError, match="for another taxonomy or other costs"):
        from_json(plain, scores.classes)
    path.unlink()
    assert from_json(plain, scores.classes).costs is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("coverage=2", "--sets=coverage=2: "),
        ("many=2", "--sets=many=2: "),
        ("coverage=0.9, combine=any", "combine must be one of log_probabilities, .* got 'any'"),
        ("coverage=0.9, costs=missed", "--sets=coverage=0.9, costs=missed: "),
    ],
)
def test_another_text_is_a_mistake_of_one_line(text, message):
    with pytest.raises(UserError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("coverage=0.95", "coverage=0.95: a coverage of 0.95 needs at least .* there are 12"),
        ("coverage=0.5, rule=taxonomic", "needs a taxonomy of the classes: give --taxonomy"),
        ("coverage=0.5, max_names=1", "needs a taxonomy of the classes: give --taxonomy"),
        ("coverage=0.5, combine=maximum", "the examples to calibrate on must have groups"),
        ("top_k=13", "must be from 1 to 12, the number of classes; got 13"),
    ],
)
def test_what_a_rule_lacks_is_said_with_its_text(text, message):
    scores = draw(np.random.default_rng(6), 12)
    with pytest.raises(UserError, match=message) as caught:
        parse(text).fit(scores, "these")
    assert str(caught.value).startswith(f"{text}: ")
