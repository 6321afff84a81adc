"""The report of sets against float64 references, with ties and with absent classes."""

import dataclasses

import numpy as np
import pytest

from tests import reference
from train.evaluation import predictions, summaries
from train.evaluation.conformal_rules import RULES
from train.evaluation.metric import Metric
from train.evaluation.predictions import Predictions
from train.evaluation.set_report import set_report
from train.foundation.errors import UserError
from train.workdir import rule_figure, terminal

NUM_CLASSES = 12
KS = (1, 3, 5)
COVERAGES = (0.5, 0.75, 0.9)
# Absent among the labels: the last two. At each border of the shots, and of the groups by count.
COUNTS = np.array([0, 10, 11, 19, 20, 50, 51, 100, 101, 2001, 30, 5])
SHOTS = {"few": COUNTS < 20, "medium": (COUNTS >= 20) & (COUNTS <= 100), "many": COUNTS > 100}


def draw(rng, number, parts=16, evenness=0.3):
    # Sixteenths: many ties, sums of exactly 1, and the same numbers in 32 bits and 64.
    even = np.full(NUM_CLASSES, evenness)
    scores = rng.multinomial(parts, rng.dirichlet(even, size=number)) / parts
    labels = rng.integers(0, NUM_CLASSES - 2, size=number).astype(np.int32)
    return Predictions(
        rng.random(number), scores.astype(np.float32), labels, reference.label_ranks(scores, labels)
    )


@pytest.fixture(scope="module")
def examples():
    return draw(np.random.default_rng(1), 101)


@pytest.fixture(scope="module")
def validation():
    # Other scores, so that the thresholds differ from the thresholds of the examples.
    return draw(np.random.default_rng(2), 67, parts=32, evenness=1.0)


@pytest.fixture(scope="module")
def report(examples, validation):
    with pytest.MonkeyPatch.context() as patch:
        # Several chunks, the last of them smaller.
        patch.setattr(predictions, "CHUNK", 16)
        return set_report(examples, validation, ks=KS, coverages=COVERAGES, class_counts=COUNTS)


def expected_accuracies(chosen, labels):
    hits = chosen[np.arange(len(labels)), labels]
    return {
        "": reference.accuracy(hits),
        "macro_": reference.macro_accuracy(hits, labels, num_classes=NUM_CLASSES),
        **{
            f"{shot}_": value
            for shot, value in reference.shot_accuracy(hits, labels, class_counts=COUNTS).items()
        },
    }


def near(value):
    # Counts are exact; their quotients and means are of 32 bits.
    return pytest.approx(value, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("k", KS)
def test_top_k_and_average_k_metrics_equal_the_references(report, examples, validation, k):
    metrics = report["metrics"]
    threshold = reference.average_k_threshold(validation.scores, k=k)
    assert report["thresholds"][f"average_{k}"] == threshold
    chosen_by = {
        f"top_{k}": reference.top_k_set(examples.scores, k=k),
        f"average_{k}": reference.threshold_set(examples.scores, threshold),
    }
    for rule, chosen in chosen_by.items():
        for kind, value in expected_accuracies(chosen, examples.labels).items():
            assert metrics[f"{kind}{rule}_accuracy"] == near(value)
    sizes = chosen.sum(axis=-1)
    # The counts end at the largest set: there may be a million classes.
    assert sizes.max() < NUM_CLASSES
    assert metrics[f"average_{k}_set_size"] == near(sizes.mean())
    counts = report["set_size_counts"][f"average_{k}"]
    groups = {"all": np.ones(NUM_CLASSES, bool), **SHOTS}
    assert counts.keys() == groups.keys()
    for group, classes in groups.items():
        of_group = sizes[classes[examples.labels]]
        assert counts[group] == [(of_group == size).sum() for size in range(sizes.max() + 1)]
    assert metrics["loss"] == near(examples.loss.mean())


@pytest.mark.parametrize("coverage", COVERAGES)
def test_sets_of_a_coverage_equal_the_references(report, examples, validation, coverage):
    error = 1 - coverage  # Exact: the coverages' own last digit is tested below.
    thresholds = {
        "conformal": reference.conformal_threshold(
            validation.scores, validation.labels, error=round(error, 10)
        ),
        "average_error": reference.average_error_threshold(
            validation.scores, error=round(error, 10)
        ),
    }
    chosen_by = {
        kind: reference.threshold_set(examples.scores, threshold)
        for kind, threshold in thresholds.items()
    }
    chosen_by["adaptive"] = reference.adaptive_set(examples.scores, error=round(error, 10))
    wrong = [
        reference.conformal_threshold(examples.scores, examples.labels, error=round(error, 10)),
        reference.average_error_threshold(examples.scores, error=round(error, 10)),
    ]
    # At 0.9 the thresholds are 0 and 1/16, because many scores have these values.
    assert coverage == 0.9 or not set(wrong) & set(thresholds.values())
    found = report["coverages"][str(coverage)]
    assert found.keys() == chosen_by.keys()
    for kind, chosen in chosen_by.items():
        sizes = chosen.sum(axis=-1)
        assert found[kind].get("threshold") == thresholds.get(kind)
        assert found[kind]["set_size"] == near(sizes.mean())
        assert found[kind]["empty_share"] == near((sizes == 0).mean())
        for name, value in expected_accuracies(chosen, examples.labels).items():
            assert found[kind][f"{name}coverage"] == near(value)


def test_set_sizes_are_counted_from_0(examples):
    thresholds = {3: 0.125}
    counts = summaries.summarize(examples, thresholds, COUNTS).size_counts[Metric.set_size(3)]
    sizes = reference.threshold_set(examples.scores, 0.125).sum(axis=-1)
    np.testing.assert_array_equal(counts, np.bincount(sizes))


def test_accuracies_by_count_are_over_the_examples_of_each_group(report, examples):
    rows = report["accuracy_by_count"]
    assert [(row["from"], row["to"]) for row in rows] == [
        (0, 10),
        (10, 50),
        (50, 500),
        (500, 2000),
        (2000, None),
    ]
    assert [row["classes"] for row in rows] == [3, 5, 3, 0, 1]
    assert sum(row["examples"] for row in rows) == len(examples.labels)
    for row in rows:
        upper = np.inf if row["to"] is None else row["to"]
        lower = row["from"] or -1
        counts = COUNTS[examples.labels]
        chosen = (counts > lower) & (counts <= upper)
        assert row["examples"] == chosen.sum()
        for k in KS:
            hits = reference.top_k_hits(examples.scores, examples.labels, k=k)[chosen]
            expected = hits.mean() if len(hits) else None
            assert row[f"top_{k}_accuracy"] == (None if expected is None else near(expected))


def test_scores_that_are_no_probabilities_have_conformal_sets_alone(examples, validation):
    doubled = dataclasses.replace(validation, scores=2 * validation.scores)
    for pair in ((examples, doubled), (doubled, validation)):
        found = set_report(*pair, ks=(1,), coverages=(0.5,), class_counts=COUNTS)
        assert list(found["coverages"]["0.5"]) == ["conformal"]


def test_nothing_is_said_by_shot_where_nobody_knows_the_counts(report, examples, validation):
    rest = set_report(examples, validation, ks=KS, coverages=COVERAGES, class_counts=None)
    assert not [name for name in str(rest).split("'") if name.startswith(("few", "many"))]
    assert "accuracy_by_count" not in rest
    assert rest["metrics"]["macro_top_3_accuracy"] == report["metrics"]["macro_top_3_accuracy"]
    # The report is the same to the last bit.
    assert rest["metrics"].items() <= report["metrics"].items()
    for coverage, kinds in rest["coverages"].items():
        for kind, values in kinds.items():
            assert values.items() <= report["coverages"][coverage][kind].items()
    assert (
        rest["set_size_counts"]["average_3"]["all"]
        == (report["set_size_counts"]["average_3"]["all"])
    )


@pytest.fixture(scope="module")
def compared(examples, validation):
    """The report of two rules, with names of the classes."""
    rules = [RULES["lac"], RULES["pas"]]
    counts = np.maximum(COUNTS, 1)
    names = [f"class {index}" for index in range(NUM_CLASSES)]
    return set_report(
        examples,
        validation,
        ks=(1,),
        coverages=(0.75, 0.5),
        class_counts=counts,
        rules=rules,
        class_names=names,
    )


@pytest.mark.parametrize("coverage", [0.5, 0.75])
def test_what_conformal_rules_are_worth_equals_the_references(
    compared, examples, validation, coverage
):
    found = compared["conformal_rules"][str(coverage)]
    assert list(found) == ["lac", "pas"]
    lac = dict(compared["coverages"][str(coverage)]["conformal"])
    del lac["threshold"]
    assert {name: value for name, value in found["lac"].items() if name in lac} == lac
    counts = np.maximum(COUNTS, 1)
    scores, calibration = (
        reference.conformal_scores(one.scores, kind="pas", class_counts=counts)
        for one in (examples, validation)
    )
    own = calibration[np.arange(len(calibration)), validation.labels]
    # No scores are that near without being equal.
    chosen = scores <= reference.conformal_quantile(own, error=1 - coverage) + 1e-6
    sizes = chosen.sum(axis=-1)
    hits = chosen[np.arange(len(chosen)), examples.labels]
    assert found["pas"]["coverage"] == near(hits.mean())
    assert found["pas"]["set_size"] == near(sizes.mean())
    assert found["pas"]["empty_share"] == near((sizes == 0).mean())
    by_shot = reference.shot_accuracy(hits, examples.labels, class_counts=counts)
    assert found["pas"]["few_coverage"] == near(by_shot["few"])
    macro = reference.macro_accuracy(hits, examples.labels, num_classes=NUM_CLASSES)
    assert found["pas"]["macro_coverage"] == near(macro)

    of_classes = {}
    for index in set(examples.labels.tolist()):
        of_class = hits[examples.labels == index]
        of_classes[index] = (of_class.mean(), -len(of_class), index)
    least = sorted(of_classes.values())[:5]
    assert found["pas"]["least_covered"] == [
        {
            "class": f"class {index}",
            "index": index,
            "examples": -number,
            "coverage": pytest.approx(share),
        }
        for share, number, index in least
    ]


def test_names_of_unknown_classes_without_examples_change_nothing(examples, validation):
    names = [f"class {index}" for index in range(NUM_CLASSES)]
    of_known, of_all = (
        set_report(
            examples, validation, ks=KS, coverages=(), class_counts=COUNTS, class_names=given
        )
        for given in (names, [*names, "only for validation"])
    )
    assert of_all["evaluated"] == of_known["evaluated"]


def test_without_rules_nothing_is_said_of_them(report):
    assert "conformal_rules" not in report


def test_the_table_and_the_figure_of_rules_have_all_of_them(compared, capsys):
    terminal.show_report("title", {**compared, "calibrated_on": "validation", "coverages": {}})
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for coverage, rules in compared["conformal_rules"].items():
        assert f"conformal rules at a coverage of {coverage};" in shown
        for name, values in rules.items():
            least = min(one["coverage"] for one in values["least_covered"])
            cells = [
                *(values[f"{average}coverage"] for average in ("", "macro_", "few_", "medium_")),
                *(values["many_coverage"], least),
            ]
            shares = ["-" if np.isnan(cell) else f"{cell:.1%}" for cell in cells]
            row = [name, *shares, f"{values['set_size']:.2f}"]
            assert row in [line.split() for line in shown.splitlines()]

    drawn = rule_figure.by_rule(compared["conformal_rules"])
    targets = compared["conformal_rules"]
    quantities = ("coverage", "macro_coverage", "set_size")
    for axes, quantity in zip(drawn.axes, quantities, strict=True):
        points = [line for line in axes.get_lines() if line.get_label().startswith("asked")]
        assert [line.get_label() for line in points] == ["asked: 75%", "asked: 50%"]
        # They differ without colour.
        assert len({line.get_marker() for line in points}) == 2
        for line, rules in zip(points, targets.values(), strict=True):
            # A row for each rule, so that equal numbers do not cover each other.
            np.testing.assert_array_equal(line.get_ydata(), [0, 1])
            values = [rules[name][quantity] for name in ("lac", "pas")]
            np.testing.assert_array_equal(line.get_xdata(), values)
        asked = [line.get_xdata()[0] for line in axes.get_lines() if line not in points]
        assert asked == ([] if quantity == "set_size" else [0.75, 0.5])
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["lac", "pas"]
    assert drawn.axes[0].yaxis_inverted()


def test_rules_without_limits_are_left_out_if_they_may_be(examples, validation):
    """Of 67 examples of ten classes, no class has the 19 that a coverage of 0.95 needs."""
    rules = [RULES[name] for name in ("lac", "class_conditional", "interpolated")]
    given = {"ks": (1,), "coverages": (0.75, 0.95), "class_counts": None, "rules": rules}
    with pytest.raises(UserError, match="class_conditional"):
        set_report(examples, validation, **given)
    found = set_report(examples, validation, **given, are_rules_optional=True)["conformal_rules"]
    assert [*found["0.75"]] == [rule.name for rule in rules]
    assert [*found["0.95"]] == ["lac"]


def test_observations_have_the_rules_that_they_suffice_for(examples, validation):
    """Each class has at least three examples, of which five are one plant."""

    def in_groups(some):
        count = {}
        groups = []
        for label in some.labels.tolist():
            count[label] = count.get(label, -1) + 1
            groups.append(f"plant {label} {count[label] // 5}")
        return dataclasses.replace(some, groups=np.array(groups, object))

    rules = [RULES["lac"], RULES["class_conditional"]]
    found = set_report(
        *map(in_groups, (examples, validation)),
        **{"ks": (1,), "coverages": (0.75,), "class_counts": None, "rules": rules},
    )
    assert [*found["conformal_rules"]["0.75"]] == ["lac", "class_conditional"]
    assert [*found["observations"]["conformal_rules"]["0.75"]] == ["lac"]
