"""Means, intervals and paired differences, against scipy; and the notes beside them."""

import csv
import io
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from tests.parts.program.comparison.compared import TOP_1, TOP_3, compare, config, labels, make
from train.comparison import comparing, outputs
from train.foundation.console import printable_lines
from train.foundation.errors import UserError
from train.reports.metric import LOSS, Metric

OURS = {0: 0.91, 1: 0.94, 2: 0.95, 4: 0.97}
THEIRS = {0: 0.90, 1: 0.92, 2: 0.96, 3: 0.93}
SHARED = (0, 1, 2)


@pytest.fixture
def folder(tmp_path):
    """Two groups: one has the seeds 0, 1, 2 and 4, the other 0, 1, 2 and 3."""
    make(tmp_path, *THEIRS.items(), name="theirs")
    make(tmp_path, *OURS.items(), name="ours", loss="focal", loss__gamma=2.0)
    return tmp_path


def half_width(values):
    """Half of scipy's 95 % interval of a mean."""
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    return (interval.high - interval.low) / 2


def close(value):
    # Rounding of float64, and of the two quantiles of t.
    return pytest.approx(value, rel=1e-9)


def numbers(comparison, metric=TOP_1):
    return {
        table.groups.label(row.group): row.numbers[metric]
        for table in comparison.tables
        for row in table.rows
    }


def test_files_have_nothing_that_a_terminal_or_a_spreadsheet_obeys(tmp_path):
    name = "\x1b[31m\u202e\nx"
    for number, model in enumerate(("=cmd|' /C calc'!A0", f"a{name}")):
        make(tmp_path, (0, 0.9), name=f"run{number}", model__name=model)
    comparison = compare(tmp_path)
    for written in (outputs.to_csv(comparison), outputs.to_markdown(comparison)):
        assert printable_lines(written) == written
        assert r"a\x1b[31m\u202e" in written
    lines = list(csv.DictReader(io.StringIO(outputs.to_csv(comparison))))
    assert {line["model.name"] for line in lines} >= {"'=cmd|' /C calc'!A0"}
    # The heads, the line below them, and the rows.
    assert outputs.to_markdown(comparison).count("\n|") == 4


@pytest.mark.parametrize("baseline", ["loss=cross_entropy", "loss.name=cross_entropy"])
def test_differences_are_of_the_shared_seeds(folder, baseline):
    found = numbers(compare(folder, baseline=baseline))
    paired = [OURS[seed] - THEIRS[seed] for seed in SHARED]
    difference = found["loss=focal"].differences.summary
    assert difference.mean == close(np.mean(paired))
    assert difference.half_width == close(half_width(paired))
    # Not the interval of two samples, which is wider here.
    assert list(found["loss=focal"].differences) == list(SHARED)
    assert found["loss=cross_entropy"].differences == {}


@pytest.mark.parametrize("finished", [(0.05,), (0.2,), (0.05, 0.2)])
def test_a_sweep_has_its_baseline_whichever_runs_are_finished(finished, tmp_path):
    rates = {rate: config(optimizer__learning_rate=rate) for rate in (0.05, 0.2)}
    planned = [SimpleNamespace(name=str(rate), config=one) for rate, one in rates.items()]
    baseline = comparing.check_planned(planned, wanted=None, baseline="learning_rate=0.05")
    assert baseline == "optimizer.learning_rate=0.05"
    for rate in finished:
        make(tmp_path, (0, 0.5), name=str(rate), optimizer__learning_rate=rate)
    comparison = compare(tmp_path, baseline=baseline, is_planned=True)
    assert comparison.tables[0].has_baseline == (0.05 in finished)
    lacking = "no run of optimizer.learning_rate=0.05 is finished"
    assert (lacking in comparison.notes) == (0.05 not in finished)


def test_one_seed_has_no_interval(tmp_path):
    make(tmp_path, (0, 0.5), (1, 0.6))
    make(tmp_path, (1, 0.75), name="other", loss="focal")
    comparison = compare(tmp_path, baseline="loss=cross_entropy")
    number = numbers(comparison)["loss=focal"]
    assert (number.values.summary.mean, number.values.summary.half_width) == (0.75, None)
    assert number.differences.summary.mean == close(0.15)
    assert number.differences.summary.half_width is None


def test_no_shared_seed_is_said(tmp_path):
    make(tmp_path, (0, 0.5))
    make(tmp_path, (1, 0.75), name="other", loss="focal")
    comparison = compare(tmp_path, baseline="loss=cross_entropy")
    assert numbers(comparison)["loss=focal"].differences == {}
    assert comparison.notes == ("no seed shared with the baseline: loss=focal",)


def test_a_baseline_can_be_any_label_of_the_table(tmp_path):
    for gamma in (1.0, 2.0):
        for epochs in ([15, 25], [9]):
            fields = {"loss__gamma": gamma, "optimizer__decay_epochs": epochs}
            make(tmp_path, (0, 0.5), name=f"{gamma}-{epochs}", loss="focal", **fields)
    for label in labels(compare(tmp_path)):
        (table,) = compare(tmp_path, baseline=label).tables
        assert [table.groups.label(row.group) for row in table.rows if row.is_baseline] == [label]
    with pytest.raises(UserError, match=r"'gamma=1.0' are 2: gamma=1.0, decay_epochs=\(9,\); "):
        compare(tmp_path, baseline="gamma=1.0")
    for words in ("gamma=3.0", "gama=1.0", "gamma"):
        with pytest.raises(UserError, match=words.partition("=")[0]):
            compare(tmp_path, baseline=words)


# Metrics.


def test_the_usual_metrics_are_what_selected_and_the_top_k_accuracies(tmp_path):
    make(tmp_path, (0, 0.5))
    assert compare(tmp_path).metrics == (TOP_3, TOP_1)
    make(tmp_path, (1, 0.5), name="b", select_by="loss")
    # In the order of the groups.
    assert compare(tmp_path).metrics == (LOSS, TOP_3, TOP_1)


def test_the_split_is_that_which_was_asked_for(tmp_path):
    make(tmp_path, (0, 0.25), split="validation")
    assert numbers(compare(tmp_path, split="validation"))["loss=cross_entropy"].values == {0: 0.25}
    with pytest.raises(UserError, match="the runs have no metrics on test"):
        compare(tmp_path)


def test_metrics_that_some_runs_lack_are_said(folder):
    macro = Metric.accuracy("average", 5, "macro")
    with pytest.raises(UserError, match="macro_average_5_accuracy"):
        compare(folder, wanted=[macro])
    results = folder / "ours-0" / "results.json"
    content = json.loads(results.read_text())
    content["test"]["macro_average_5_accuracy"] = 0.5
    results.write_text(json.dumps(content))
    # No class of that kind: a metric without a value.
    make(folder, (5, None), name="ours", loss="focal", loss__gamma=2.0)
    comparison = compare(folder, wanted=[macro, TOP_1])
    assert numbers(comparison, macro)["loss=focal"].values == {0: 0.5}
    assert numbers(comparison, macro)["loss=cross_entropy"].values.summary is None
    assert str(folder / "ours-5") in comparison.notes[1]


def test_losses_of_two_kinds_are_not_compared(folder):
    comparison = compare(folder, wanted=[LOSS, TOP_1], baseline="loss=cross_entropy")
    assert numbers(comparison, LOSS)["loss=focal"].differences == {}
    assert numbers(comparison)["loss=focal"].differences
    assert any("values of different losses cannot be compared" in one for one in comparison.notes)
    make(folder, (0, 0.5), name="slow", optimizer__learning_rate=0.01)
    comparison = compare(folder, wanted=[LOSS], baseline="loss=cross_entropy,learning_rate=0.05")
    slow = numbers(comparison, LOSS)["loss=cross_entropy, learning_rate=0.01"]
    assert slow.differences.summary.mean == 0


# Outputs.


def test_csv_has_a_line_a_group_of_all_data_sets(folder):
    make(folder, (0, 0.5), (1, 0.7), name="c", dataset="synthetic_species", loss__gamma=3.0)
    comparison = compare(folder, wanted=[TOP_1], baseline="loss=cross_entropy")
    lines = list(csv.DictReader(io.StringIO(outputs.to_csv(comparison))))
    assert list(lines[0]) == [
        "data_set",
        "loss.name",
        "seeds",
        "top_1_accuracy",
        "top_1_accuracy_half_width",
        "top_1_accuracy_seeds",
        "top_1_accuracy_difference",
        "top_1_accuracy_difference_half_width",
        "top_1_accuracy_difference_seeds",
    ]
    assert [line["top_1_accuracy_difference_seeds"] for line in lines] == [
        "0",
        str(len(SHARED)),
        "0",
    ]
    assert [(line["data_set"], line["loss.name"], line["seeds"]) for line in lines] == [
        ("digits", "cross_entropy", "4"),
        ("digits", "focal", "4"),
        ("synthetic_species", "cross_entropy", "2"),
    ]
    assert float(lines[1]["top_1_accuracy"]) == close(0.9425)
    assert lines[0]["top_1_accuracy_difference"] == ""


@pytest.mark.parametrize(
    ("field", "value", "baseline"),
    [
        ("label_smoothing", 0.1, "label_smoothing=0.0"),
        ("class_weights", "class_balanced", "class_weights=none"),
    ],
)
def test_losses_that_are_evaluated_alike_are_compared(folder, field, value, baseline):
    # Both are evaluated without smoothed labels and class weights.
    values = {seed: value + 0.01 for seed, value in THEIRS.items()}
    make(folder, *values.items(), name="changed", **{f"loss__{field}": value})
    for path in folder.glob("ours-*"):
        shutil.rmtree(path)
    comparison = compare(folder, wanted=[LOSS], baseline=baseline)
    (difference,) = [one for one in numbers(comparison, LOSS).values() if one.differences]
    assert set(difference.differences) == set(THEIRS)
    assert not any("cannot be compared" in one for one in comparison.notes)
