"""Each number of a report against a second path in 64 bits: sets of references, plain means."""

import dataclasses
import json

import numpy as np
import pytest

from tests import reference
from tests.parts.program.reports.made_scores import (
    COUNTS,
    NUM_CLASSES,
    TREE,
    draw,
)
from train.foundation.errors import UserError
from train.reports import intervals, table
from train.reports.halving import divide
from train.reports.report import fit, report, usual
from train.reports.rows import rate
from train.reports.rules import parse
from train.scores import scores as of_scores
from train.scores.observations import Combination, combine

TEXTS = [*usual((1, 3)), "adaptive=0.9", "average_error=0.9", "coverage=0.8, rule=aps"]
KINDS = {
    "one": {},
    "taxonomy": {"tree": TREE},
    "votes": {"kind": "votes"},
    "several": {"kind": "several"},
    "unknown": {"num_labels": NUM_CLASSES + 2},
    "groups": {"groups": 60},
}


@pytest.fixture(scope="module", params=KINDS)
def made(request):
    """The evaluated scores, those to calibrate on, and the report, in several chunks."""
    given = KINDS[request.param]
    rng = np.random.default_rng([*request.param.encode()])
    scores = draw(rng, 201, **given)
    calibration = draw(rng, 167, parts=32, **{**given, "num_labels": NUM_CLASSES - 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_scores, "CHUNK", 16 * NUM_CLASSES)
        found = reported(scores, calibration, TEXTS)
    return scores, calibration, json.loads(json.dumps(found, allow_nan=False))


def reported(scores, calibration, texts, *, is_optional=False):
    """The report on examples, with limits from others."""
    rules = [parse(text) for text in texts]

    def with_limits(rule):
        return rule.fit(calibration, "others")

    return report(scores, fit(rules, scores, with_limits, is_optional=is_optional))


def near(value):
    return pytest.approx(value, rel=1e-6)


def expected(members, scores):
    """What a row has of sets [n, L] of examples of known classes."""
    classes, shares = scores.labels[:, None], np.ones((len(scores), 1))
    if scores.truths is not None:
        classes, shares = scores.truths.classes, scores.truths.shares.astype(np.float64)
    inside = np.take_along_axis(members, classes, axis=1)
    weights, hits = np.zeros(NUM_CLASSES), np.zeros(NUM_CLASSES)
    np.add.at(weights, classes, shares)
    np.add.at(hits, classes, shares * inside)
    of_class = hits[weights > 0] / weights[weights > 0]
    counts = np.array(COUNTS)[weights > 0]
    shots = {"few": counts < 20, "medium": (counts >= 20) & (counts <= 100), "many": counts > 100}
    return {
        "coverage": (inside * shares).sum() / len(scores),
        "macro": of_class.mean(),
        **{name: of_class[one].mean() for name, one in shots.items()},
        "set_size": members.sum(axis=1).mean(),
        "empty": (~members.any(axis=1)).mean(),
    }


def test_rows_are_what_the_sets_of_their_rules_are_worth(made):
    scores, calibration, found = made
    known = scores.take(np.flatnonzero(scores.known))
    for text, row in found["sets"].items():
        rule = parse(text).fit(calibration, "others")
        members = np.asarray(rule.answer(known.values).members)
        for name, value in expected(members, known).items():
            assert row[name] == near(value), (text, name)
        assert row["interval"][0] < row["coverage"] < row["interval"][1] or row["coverage"] == 1
    assert [*found["sets"]] == TEXTS
    assert found["loss"] == near(known.loss.mean())
    assert found["calibrated_on"] == {"on": "others", "examples": len(calibration)}


def test_the_interval_is_exact_and_of_groups_if_there_are_some(made):
    scores, _, found = made
    known = scores.take(np.flatnonzero(scores.known))
    ranks = known.ranks[:, None] if known.class_ranks is None else known.class_ranks
    hits = ranks[:, 0] < 3 if known.truths is None else known.truths.mean(ranks < 3)
    row = found["sets"]["top_k=3"]
    if known.truths is None and known.groups is None:
        assert row["interval"] == intervals.exact(hits)
    if known.groups is not None:
        of = np.unique(known.groups.astype(str), return_inverse=True)[1]
        low, high = reference.cluster_interval(hits, of, num_groups=of.max() + 1)
        assert row["interval"] == pytest.approx([low, high], abs=1e-5)
        assert found["groups"] == of.max() + 1
        assert found["observations"]["examples"] == of.max() + 1


def test_classes_and_confusions_are_counted(made):
    scores, _, found = made
    if scores.truths is not None:
        return
    listed = found["classes_by_coverage"]
    assert listed["rule"] == "top_k=1"
    hits = {
        name: np.mean(scores.ranks[scores.labels == label] == 0)
        for label, name in enumerate(scores.classes.names)
        if (scores.labels == label).any()
    }
    assert [row["coverage"] for row in listed["worst"]] == near(sorted(hits.values())[:5])
    assert [row["coverage"] for row in listed["best"]] == near(sorted(hits.values())[:4:-1][:5])
    assert not {row["class"] for row in listed["best"]} & {row["class"] for row in listed["worst"]}
    assert all(row["coverage"] == near(hits[row["class"]]) for row in listed["worst"])
    best = scores.values.argmax(axis=1)
    for pair in found["confusions"]:
        names = np.array(scores.class_names)
        of_pair = (names[scores.labels] == pair["label"]) & (names[best] == pair["predicted"])
        assert pair["examples"] == of_pair.sum()


def test_votes_for_unknown_classes_are_missed():
    rng = np.random.default_rng(15)
    scores = draw(rng, 100, num_labels=NUM_CLASSES + 2, kind="votes")
    found = reported(scores, draw(rng, 100, kind="votes"), ["top_k=3"])
    known = scores.take(np.flatnonzero(scores.known))
    assert (known.truths.classes >= NUM_CLASSES).any()
    hits = known.truths.mean((known.class_ranks < 3) & (known.truths.classes < NUM_CLASSES))
    assert found["sets"]["top_k=3"]["coverage"] == near(hits.mean())
    assert found["evaluated"]["groups"]["all"]["classes"] <= NUM_CLASSES


def test_rules_that_may_not_answer_have_the_error_of_their_answers():
    rng = np.random.default_rng(6)
    scores, calibration = draw(rng, 200), draw(rng, 500)
    (row,) = reported(scores, calibration, ["max_error=0.4"])["sets"].values()
    members = np.asarray(parse("max_error=0.4").fit(calibration, "").answer(scores.values).members)
    hits, answered = members[np.arange(200), scores.labels], members.any(axis=1)
    assert row["answered"] == near(answered.mean())
    assert row["error_of_answers"] == near(1 - hits.sum() / answered.sum())


def test_a_taxonomy_has_numbers_by_rank():
    rng = np.random.default_rng(7)
    scores, calibration = draw(rng, 150, tree=TREE), draw(rng, 300, tree=TREE)
    found = reported(scores, calibration, ["top_k=1", "coverage=0.9, max_names=1"])
    taxonomy, labels = TREE.taxonomy, scores.labels
    heights = reference.mistake_heights(scores.values.argmax(axis=1), labels, taxonomy)
    assert found["mistake_height"] == near(heights[heights > 0].mean())
    rule = parse("coverage=0.9, max_names=1").fit(calibration, "")
    members, row = np.asarray(rule.answer(scores.values).members), rate(scores, rule)
    assert row == found["sets"][str(rule)]
    for depth, rank in enumerate(("family", "genus"), start=1):
        ranks = reference.ancestor_ranks(scores.values, labels, taxonomy, depth=depth)
        assert found["ranks"][rank]["top_k=1"] == near((ranks < 1).mean())
        hits = reference.ancestor_hits(members, labels, taxonomy, depth=depth)
        assert row["ranks"][rank]["coverage"] == near(np.mean(hits))
        counts = reference.node_counts(members, taxonomy, depth=depth)
        assert row["ranks"][rank]["set_size"] == near(np.mean(counts))
    heights = np.asarray(reference.set_heights(members, taxonomy))
    assert row["height"] == near(heights[heights >= 0].mean())
    assert row["names"] == near(np.mean(reference.name_counts(members, taxonomy)))


def test_optional_rules_that_the_examples_are_too_few_for_are_left_out(caplog):
    rng = np.random.default_rng(10)
    scores, few = draw(rng, 50), draw(rng, 12)
    texts = ["top_k=3", "top_k=40", "coverage=0.9", "coverage=0.95"]
    assert [*reported(scores, few, texts, is_optional=True)["sets"]] == ["top_k=3", "coverage=0.9"]
    assert "coverage=0.95: the limits need at least 19 examples" in caplog.text
    unknown = dataclasses.replace(scores, labels=np.full(50, NUM_CLASSES))
    for examples, asked in ((scores, texts[-1:]), (unknown, texts[:1])):
        with pytest.raises(UserError):
            reported(examples, few, asked)


def test_observations_are_rated_by_the_same_rules_and_by_other_combinations():
    rng = np.random.default_rng(12)
    scores, calibration = draw(rng, 300, groups=80), draw(rng, 400, groups=150)
    texts = ["top_k=1", "coverage=0.9", "coverage=0.9, combine=trained"]
    # The last needs 199 examples, and there are fewer observations.
    asked = [*texts, "coverage=0.995"]
    found = reported(scores, calibration, asked)
    assert [*found["sets"]] == [*texts[:2], asked[-1]]
    of_groups = found["observations"]
    assert [*of_groups["sets"]] == texts
    assert of_groups["combined_by"] == "log_probabilities"
    number = len(np.unique(calibration.groups))
    assert of_groups["calibrated_on"] == {"on": "others", "examples": number}
    for text in texts:
        name = "trained" if "trained" in text else "log_probabilities"
        combination = Combination(name).fit(calibration)
        pooled, rule = combine(scores, combination).scores, parse(text.partition(", combine")[0])
        ready = rule.fit(combine(calibration, combination).scores, "")
        assert of_groups["sets"][text] == rate(pooled, ready)


def test_halves_do_not_divide_groups_and_keep_unknown_classes_for_the_evaluation():
    scores = draw(np.random.default_rng(13), 200, groups=30, num_labels=NUM_CLASSES + 2)
    first, second = divide(scores)
    assert first.known.all()
    assert len(first) + len(second) == len(scores)
    assert not {*first.groups} & {*second.groups}
    assert 10 < len({*first.groups}) < 16
    assert (~second.known).sum() == (~scores.known).sum()
    np.testing.assert_array_equal(divide(scores)[0].values, first.values)
    alone = scores.take(np.flatnonzero(scores.groups == scores.groups[scores.known][0]))
    with pytest.raises(UserError, match="at least two groups of known classes; got 1"):
        divide(alone)


def test_the_table_has_20_lines_without_empty_columns_and_full_has_more(capsys):
    rng = np.random.default_rng(14)
    scores = draw(rng, 400, num_labels=NUM_CLASSES + 2, tree=TREE)
    calibration = draw(rng, 400, parts=256, tree=TREE)
    # Examples of another kind.
    scores.values[:100] = scores.values[::-1][:100]
    found = reported(scores, calibration, usual((1, 3, 5)))
    table.show(found, "made", full=False)
    short = capsys.readouterr().out
    lines = short.rstrip().splitlines()
    assert len(lines) <= 20
    assert "utility" not in short
    assert f"{(~scores.known).sum()}, of new 0, new 1" in short
    for text, row in found["sets"].items():
        (line,) = [one for one in lines if one.startswith(f"{text} ")]
        assert f" {100 * row['coverage']:.1f}%" in line
        assert bool(row.get("contradicted")) == (f"{text}: these examples contradict" in short)
    assert any(row.get("contradicted") for row in found["sets"].values())
    table.show(found, "made", full=True)
    full = capsys.readouterr().out
    assert full.startswith(short)
    assert "ranks genus coverage" in full
