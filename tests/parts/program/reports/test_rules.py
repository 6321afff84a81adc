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
from train.reports.rules import from_json, parse

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
    fitted = rule.fit(calibration, "these")
    plain = json.loads(json.dumps(fitted.to_json(), allow_nan=False))
    again = from_json(plain, calibration.classes)
    assert str(again) == plain["rule"] == text
    assert again.combination == fitted.combination
    assert again.rule.promise == fitted.rule.promise
    assert again.in_words == fitted.in_words == plain["in_words"]
    assert plain["promised"] == (
        None if fitted.rule.promise is None else fitted.rule.promise.coverage
    )
    new = draw(rng, 90)
    answers = (one.answer(new.values, new.outliers) for one in (fitted, again))
    for first, second in zip(*answers, strict=True):
        np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    assert (fitted.tree is not None) == ("names" in text or "taxonomic" in text)


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
