"""A classifier is trained, broken off and continued; what it reports is what its scores say."""

import json
import os
import signal

import numpy as np
import pytest

from tests import reference
from tests.promises import commands, moments, recomputed
from train.foundation import files

USUAL = [f"{kind}={k}" for kind in ("top_k", "average_k") for k in (1, 3, 5)]
USUAL += [f"coverage={asked}" for asked in (0.8, 0.9, 0.95)]
ASKED = [f"{kind}={asked}" for kind in ("average_error", "adaptive") for asked in (0.8, 0.95)]


@pytest.fixture(scope="module")
def report(digits, scores):
    """The rows of the report, and those of rules that it has only if they are asked for."""
    found, out = json.loads((digits.workdir / "evaluation_test.json").read_text()), digits.folder
    flags = {"workdir": digits.workdir, "sets": ASKED, "out": out / "asked.json"}
    commands.ok(commands.line("evaluate", **flags))
    rows = json.loads((out / "asked.json").read_text())["sets"]
    assert [*rows] == ASKED
    return {**found, "sets": found["sets"] | rows}


def test_the_command_trains_and_says_where_everything_is(digits):
    results = digits.results()
    assert str(digits.workdir) in digits.out
    for name in ("config.json", "metrics.jsonl", "results.json", "learning_curves.png"):
        assert (digits.workdir / name).stat().st_size > 0
    lines = recomputed.lines_of(digits.workdir)
    epochs = [line for line in lines if line["split"] == "validation"]
    assert [line["step"] for line in epochs] == [19, 38]
    best = min(epochs, key=lambda line: line["loss"])
    assert results["best_epoch"] == best["epoch"]
    recomputed.check(
        results["validation"], {name: best[name] for name in ("loss", "top_3_accuracy")}
    )
    # 1,257 images in two epochs: far above the 0.3 of guessing three of ten digits.
    assert results["test"]["top_3_accuracy"] > 0.8
    assert f"{results['test']['macro_top_3_accuracy']:.2%}" in digits.out


def test_the_scores_are_of_the_examples_of_the_split(digits, scores):
    for split, found in scores.items():
        np.testing.assert_array_equal(found["labels"], digits.dataset.splits[split].labels)
        np.testing.assert_allclose(found["scores"].sum(axis=1), 1, rtol=1e-5)
        counts = np.bincount(digits.dataset.train.labels, minlength=10)
        np.testing.assert_array_equal(found["class_counts"], counts)
        assert found["names"].tolist() == [f"example {place}" for place in range(270)]
        assert found["class_names"].tolist() == list(digits.dataset.class_names)


LIMITS = {
    "average_k": lambda found, k: reference.average_k_threshold(found["scores"], k=k),
    "coverage": lambda found, asked: reference.conformal_threshold(
        found["scores"], found["labels"], error=recomputed.error_of(asked)
    ),
    "average_error": lambda found, asked: reference.average_error_threshold(
        found["scores"], error=recomputed.error_of(asked)
    ),
}


def test_limits_are_of_validation_and_never_of_the_test(scores, report):
    for text in USUAL + ASKED:
        name, _, value = text.partition("=")
        if name not in LIMITS:
            assert "limit" not in report["sets"][text]
            continue
        of_validation, of_test = (
            LIMITS[name](scores[split], float(value)) for split in ("validation", "test")
        )
        assert report["sets"][text]["limit"] == pytest.approx(of_validation, rel=1e-5)
        # Otherwise nothing was shown.
        assert of_validation != pytest.approx(of_test, rel=1e-4)


def test_the_report_is_of_the_scores(scores, report):
    test = scores["test"]
    assert [*report["sets"]] == USUAL + ASKED
    assert report["loss"] == pytest.approx(test["loss"].mean(), rel=1e-5)
    for text, found in report["sets"].items():
        chosen = recomputed.sets_of(text, test["scores"], found.get("limit"))
        expected = recomputed.row(chosen, test["labels"], test["class_counts"])
        # Sums of probabilities in 32 bits: a class may cross the bound.
        slack = 1.5 / np.bincount(test["labels"]).min() if text.startswith("adaptive") else 0
        recomputed.check(found, expected, slack=slack)


def test_the_sets_have_the_coverage_that_is_asked_for(scores, report):
    number = len(scores["test"]["labels"])
    for text, found in report["sets"].items():
        name, _, asked = text.partition("=")
        if name == "coverage":
            # Four deviations of the two binomials of calibration and test.
            deviation = np.sqrt(2 * float(asked) * (1 - float(asked)) / number)
            assert found["coverage"] > float(asked) - 4 * deviation
            assert found["promised"] == float(asked)


def test_the_results_of_training_are_those_of_the_report(digits, scores, report):
    found, labels = digits.results()["test"], scores["test"]["labels"]
    assert found["loss"] == pytest.approx(report["loss"], rel=1e-5)
    # Two programs, whose rounding may turn one example.
    fewest = np.bincount(labels).min()
    for text in USUAL[:6]:
        name = text.replace("_k=", "_")
        row = report["sets"][text]
        for prefix in ("", "macro", "few", "medium", "many"):
            of_results = found[f"{prefix}_{name}_accuracy".removeprefix("_")]
            slack = 1.5 / (fewest if prefix else len(labels))
            expected = row.get(prefix or "coverage")
            assert of_results == (expected and pytest.approx(expected, abs=slack)), (prefix, text)


def test_a_run_that_was_cut_in_a_save_continues_bit_for_bit(digits):
    workdir = digits.broken[38]
    # It goes on in the middle of an epoch.
    assert latest_of(workdir) == 26
    commands.ok(commands.line("main", workdir=workdir, **digits.flags))
    recomputed.check_ended_alike(digits, workdir)


def test_a_run_that_was_cut_and_then_stopped_by_a_signal_continues_bit_for_bit(digits):
    workdir = digits.broken[26]
    assert latest_of(workdir) == 19
    line = commands.line("main", workdir=workdir, **digits.flags)

    def stop(step):
        if step == 26:
            os.kill(os.getpid(), signal.SIGTERM)

    with files.lock(workdir, "another run"):
        second = commands.run(line)
    assert (second.code, len(second.err.splitlines())) == (2, 1)
    assert f"another run is using {workdir}" in second.err
    with moments.before_checkpoints(workdir, stop):
        ended = commands.run(line)
    assert ended.code == 128 + signal.SIGTERM
    assert len(ended.err.splitlines()) == 1
    assert latest_of(workdir) >= 26
    commands.ok(line)
    recomputed.check_ended_alike(digits, workdir)


def latest_of(workdir):
    """The step of the latest checkpoint of a run that has no results."""
    assert not (workdir / "results.json").exists()
    return max(int(one.name) for one in (workdir / "checkpoints").iterdir() if one.name.isdecimal())


def test_a_finished_run_is_not_trained_again(digits):
    before = {path: path.read_bytes() for path in digits.workdir.glob("*.json*")}
    commands.ok(commands.line("main", workdir=digits.workdir, **digits.flags))
    assert {path: path.read_bytes() for path in digits.workdir.glob("*.json*")} == before


def test_a_run_of_another_configuration_is_not_continued(digits):
    fields = digits.flags["fields"] | {"loss.epsilon": 2.0}
    flags = digits.flags | {"workdir": digits.workdir, "fields": fields}
    ended = commands.run(commands.line("main", **flags))
    assert ended.code == 2
    assert "loss.epsilon: 1.0 -> 2.0" in ended.err
    assert "optimizer" not in ended.err
