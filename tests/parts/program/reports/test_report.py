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
    UNKNOWN,
    draw,
)
from topk_jax.rules import CONFORMAL
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
        found = report(scores, calibration, TEXTS, on="others", is_optional=False)
    return scores, calibration, json.loads(json.dumps(found, allow_nan=False))


def near(value):
    return pytest.approx(value, rel=1e-6)


def members_of(text, scores, calibration):
    """The sets of a rule by the references; None if it has none here."""
    kind, value = text.split("=")
    one = calibration.truths is None
    of_references = {
        "top_k": lambda: reference.top_k_set(scores.values, k=int(value)),
        "average_k": lambda: reference.threshold_set(
            scores.values, reference.average_k_threshold(calibration.values, k=float(value))
        ),
        "coverage": lambda: reference.threshold_set(
            scores.values,
            reference.conformal_threshold(
                calibration.values, calibration.labels, error=round(1 - float(value), 10)
            ),
        ),
        "adaptive": lambda: reference.adaptive_set(scores.values, error=0.1),
        "average_error": lambda: reference.threshold_set(
            scores.values, reference.average_error_threshold(calibration.values, error=0.1)
        ),
    }
    if kind == "coverage" and not one:
        return None
    return of_references[kind]()


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
    row = {
        "coverage": (inside * shares).sum() / len(scores),
        "macro": of_class.mean(),
        **{name: of_class[one].mean() for name, one in shots.items()},
        "set_size": members.sum(axis=1).mean(),
        "empty": (~members.any(axis=1)).mean(),
    }
    if scores.truths is not None and scores.truths.kind == "several":
        targets = np.zeros((len(scores), NUM_CLASSES), bool)
        np.put_along_axis(targets, classes, True, axis=1)
        right = members & targets
        sums = members.sum(axis=1) + targets.sum(axis=1)
        of_classes = members.sum(axis=0) + targets.sum(axis=0)
        row["missed_labels"] = 1 - (right.sum(axis=1) / targets.sum(axis=1)).mean()
        row["example_f1"] = (2 * right.sum(axis=1) / sums).mean()
        row["macro_f1"] = (
            2 * right.sum(axis=0)[of_classes > 0] / of_classes[of_classes > 0]
        ).mean()
    return row


def test_rows_are_what_the_sets_of_the_references_are_worth(made):
    scores, calibration, found = made
    known = scores.take(np.flatnonzero(scores.known))
    compared = 0
    for text in TEXTS:
        if "rule=" in text or (members := members_of(text, known, calibration)) is None:
            continue
        row = found["sets"][text]
        for name, value in expected(members, known).items():
            assert row[name] == near(value), (text, name)
        compared += 1
    assert compared >= 6
    assert found["loss"] == near(known.loss.mean())
    assert found["calibrated_on"] == {"on": "others", "examples": len(calibration)}
    for text, row in found["sets"].items():
        # Rows of other rules, by what the rule itself answers.
        rule = parse(text).fit(calibration if parse(text).needs_limits else known, "others")
        hits = np.asarray(rule.answer(known.values).members)
        for name, value in expected(hits, known).items():
            assert row[name] == near(value), (text, name)
        assert row["interval"][0] < row["coverage"] < row["interval"][1] or row["coverage"] == 1


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
    assert [row["coverage"] for row in listed["best"]] == near(sorted(hits.values())[::-1][:5])
    assert all(row["coverage"] == near(hits[row["class"]]) for row in listed["worst"])
    best = scores.values.argmax(axis=1)
    for pair in found["confusions"]:
        names = np.array(scores.class_names)
        of_pair = (names[scores.labels] == pair["label"]) & (names[best] == pair["predicted"])
        assert pair["examples"] == of_pair.sum()


def test_unknown_classes_are_counted_apart_with_and_without_none_of_these():
    rng = np.random.default_rng(5)
    scores, calibration = draw(rng, 300, num_labels=NUM_CLASSES + 2), draw(rng, 400)
    text = "coverage=0.8, new_score=energy"
    found = report(scores, calibration, ["top_k=3", text], on="others", is_optional=False)
    new = ~scores.known
    assert found["unknown_classes"] == {
        "examples": new.sum(),
        "classes": {
            name: (scores.labels == NUM_CLASSES + i).sum() for i, name in enumerate(UNKNOWN)
        },
    }
    assert found["sets"]["top_k=3"]["coverage_of_all"] == near((scores.ranks < 3).mean())
    rule, row = parse(text).fit(calibration, "others"), found["sets"][text]
    alone = scores.outliers > rule.rule.known_to
    members = np.asarray(parse("coverage=0.9").fit(calibration, "").answer(scores.values).members)
    members = members & ~alone[:, None]
    says_new = (scores.outliers >= rule.rule.new_from) | ~members.any(axis=1)
    hits = members[np.arange(300), np.where(new, 0, scores.labels)] & ~new
    assert row["coverage"] == near(hits[~new].mean())
    assert row["set_size"] == near(members[~new].sum(axis=1).mean())
    assert row["none_of_these"] == near(says_new[~new].mean())
    assert row["coverage_of_all"] == near(np.where(new, says_new, hits).mean())
    assert row["unknown"]["none_of_these"] == near(says_new[new].mean())
    assert row["unknown"]["set_size"] == near(members[new].sum(axis=1).mean())
    assert found["none_of_these"] == {
        "auroc": near(reference.auroc(scores.outliers, new)),
        "oscr_area": near(reference.oscr_area(-scores.outliers, scores.ranks == 0, new)),
    }


def test_votes_for_unknown_classes_are_missed():
    rng = np.random.default_rng(15)
    scores = draw(rng, 100, num_labels=NUM_CLASSES + 2, kind="votes")
    found = report(scores, draw(rng, 100, kind="votes"), ["top_k=3"], on="", is_optional=False)
    known = scores.take(np.flatnonzero(scores.known))
    assert (known.truths.classes >= NUM_CLASSES).any()
    hits = known.truths.mean((known.class_ranks < 3) & (known.truths.classes < NUM_CLASSES))
    assert found["sets"]["top_k=3"]["coverage"] == near(hits.mean())
    assert found["evaluated"]["groups"]["all"]["classes"] <= NUM_CLASSES


def test_utilities_costs_and_answers_have_columns_of_their_own():
    rng = np.random.default_rng(6)
    scores, calibration = draw(rng, 200), draw(rng, 500)
    texts = ["utility=1,0.7,0.5", "risk=20, costs=macro", "max_error=0.4"]
    rows = report(scores, calibration, texts, on="others", is_optional=False)["sets"]
    rules = [parse(text).fit(calibration, "others") for text in texts]
    sets = [np.asarray(rule.answer(scores.values).members) for rule in rules]
    hits = [members[np.arange(200), scores.labels] for members in sets]
    worth = np.array([0, 1, 0.7, 0.5, *[0] * (NUM_CLASSES - 3)])
    row = rows[texts[0]]
    assert row["utility"] == near((hits[0] * worth[sets[0].sum(axis=1)]).mean())
    for k in (1, 3, 5):
        assert row["utility_of"][f"top_k={k}"] == near(worth[k] * (scores.ranks < k).mean())
    costs = sum(COUNTS) / (NUM_CLASSES * np.array(COUNTS))
    assert rows[texts[1]]["mean_cost"] == near((costs[scores.labels] * ~hits[1]).mean())
    answered = sets[2].any(axis=1)
    assert rows[texts[2]]["answered"] == near(answered.mean())
    assert rows[texts[2]]["error_of_answers"] == near(1 - hits[2].sum() / answered.sum())


def test_a_taxonomy_has_numbers_by_rank():
    rng = np.random.default_rng(7)
    scores, calibration = draw(rng, 150, tree=TREE), draw(rng, 300, tree=TREE)
    found = report(
        scores, calibration, ["top_k=1", "coverage=0.9, max_names=1"], on="", is_optional=False
    )
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


def test_several_labels_have_a_mean_average_precision():
    scores = draw(np.random.default_rng(8), 90, kind="several")
    targets = np.zeros(scores.values.shape, bool)
    np.put_along_axis(targets, scores.truths.classes, True, axis=1)
    present = targets.any(axis=0)
    found = report(scores, scores, ["top_k=1"], on="", is_optional=False)
    wanted = reference.mean_average_precision(scores.values[:, present], targets[:, present])
    assert found["mean_average_precision"] == near(wanted)


def test_rules_of_conformal_limits_list_the_classes_that_they_cover_least():
    rng = np.random.default_rng(9)
    scores, calibration = draw(rng, 200, tree=TREE), draw(rng, 900, tree=TREE)
    texts = [f"{name}=0.8" for name in CONFORMAL]
    rows = report(scores, calibration, texts, on="", is_optional=False)["sets"]
    assert len(rows) == len(CONFORMAL)
    for text, row in rows.items():
        members = np.asarray(parse(text).fit(calibration, "").answer(scores.values).members)
        hits = members[np.arange(200), scores.labels]
        of_class = [hits[scores.labels == c].mean() for c in np.unique(scores.labels)]
        assert [one["coverage"] for one in row["least_covered"]] == near(sorted(of_class)[:5])


def test_optional_rules_that_the_examples_are_too_few_for_are_left_out(caplog):
    rng = np.random.default_rng(10)
    scores, few = draw(rng, 50), draw(rng, 12)
    texts = ["top_k=3", "top_k=40", "coverage=0.9", "coverage=0.95"]
    found = report(scores, few, texts, on="others", is_optional=True)
    assert [*found["sets"]] == ["top_k=3", "coverage=0.9"]
    assert "coverage=0.95: a coverage of 0.95 needs at least 1 / 0.05 - 1 = 19" in caplog.text
    with pytest.raises(UserError, match=r"coverage=0.95: .* 19 examples"):
        report(scores, few, texts[-1:], on="others", is_optional=False)
    with pytest.raises(UserError, match="no examples to calibrate on"):
        report(scores, None, texts[-1:], on="others", is_optional=False)
    unknown = dataclasses.replace(scores, labels=np.full(50, NUM_CLASSES))
    with pytest.raises(UserError, match="none of the examples is of a class"):
        report(unknown, few, texts[:1], on="others", is_optional=False)


def test_scores_of_two_kinds_are_not_compared():
    scores = draw(np.random.default_rng(11), 50)
    doubled = dataclasses.replace(scores, values=scores.values / 2)
    for pair in ((scores, doubled), (doubled, scores)):
        with pytest.raises(UserError, match="must both be probabilities"):
            report(*pair, ["margin=0.8"], on="", is_optional=False)


def test_observations_are_rated_by_the_same_rules_and_by_other_combinations(caplog):
    rng = np.random.default_rng(12)
    scores, calibration = draw(rng, 300, groups=80), draw(rng, 400, groups=150)
    texts = ["top_k=1", "coverage=0.9", "coverage=0.9, combine=trained"]
    # The last needs 199 examples, and there are fewer observations.
    asked = [*texts, "coverage=0.995"]
    found = report(scores, calibration, asked, on="others", is_optional=False)
    assert [*found["sets"]] == [*texts[:2], asked[-1]]
    of_groups = found["observations"]
    assert [*of_groups["sets"]] == texts
    assert of_groups["combined_by"] == "log_probabilities"
    assert of_groups["calibrated_on"]["on"] == "observations of others"
    for text, name in zip(
        texts, ("log_probabilities", "log_probabilities", "trained"), strict=True
    ):
        combination = Combination(name).fit(calibration)
        pooled, rule = combine(scores, combination).scores, parse(text.partition(", combine")[0])
        ready = rule.fit(combine(calibration, combination).scores, "")
        assert of_groups["sets"][text] == rate(pooled, ready)
    # The limits of a file are enough.
    fitted = fit(scores, calibration, asked, on="others", is_optional=False)
    caplog.clear()
    again = report(scores, None, asked, on="others", fitted=fitted, is_optional=False)
    assert again == found
    assert not caplog.records


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
    found = report(scores, calibration, usual((1, 3, 5)), on="others", is_optional=True)
    table.show(found, "made", full=False)
    short = capsys.readouterr().out
    lines = short.rstrip().splitlines()
    assert len(lines) <= 20
    assert lines[0].startswith("made: ")
    assert "12 classes" in lines[0]
    assert lines[0].endswith("limits from others (400)")
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
    assert "least covered" in full
    assert "genera" in full
