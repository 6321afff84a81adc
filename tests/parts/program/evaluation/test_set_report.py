"""The report of sets against float64 references, with ties and with absent classes."""

import dataclasses

import numpy as np
import pytest

from tests import reference
from train.evaluation import predictions
from train.evaluation.conformal_rules import RULES
from train.evaluation.predictions import Predictions
from train.evaluation.set_report import set_report
from train.foundation.errors import UserError
from train.workdir import rule_figure

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
def test_sizes_of_sets_are_counted_by_shot(report, examples, validation, k):
    threshold = reference.average_k_threshold(validation.scores, k=k)
    sizes = reference.threshold_set(examples.scores, threshold).sum(axis=-1)
    # The counts end at the largest set: there may be a million classes.
    assert sizes.max() < NUM_CLASSES
    counts = report["set_size_counts"][f"average_{k}"]
    groups = {"all": np.ones(NUM_CLASSES, bool), **SHOTS}
    assert counts.keys() == groups.keys()
    for group, classes in groups.items():
        of_group = sizes[classes[examples.labels]]
        assert counts[group] == [(of_group == size).sum() for size in range(sizes.max() + 1)]


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


def test_names_of_unknown_classes_without_examples_change_nothing(examples, validation):
    names = [f"class {index}" for index in range(NUM_CLASSES)]
    of_known, of_all = (
        set_report(
            examples, validation, ks=KS, coverages=(), class_counts=COUNTS, class_names=given
        )
        for given in (names, [*names, "only for validation"])
    )
    assert of_all["evaluated"] == of_known["evaluated"]


def test_the_figure_of_rules_has_all_of_them(compared):
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
