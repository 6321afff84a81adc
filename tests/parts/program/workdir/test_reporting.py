"""What a run writes and shows: metrics, events, results, curves, the bar and the closing table."""

import contextlib
import dataclasses
import errno
import io
import json
import os
import pty
import re
import struct
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image
from tensorboardX.proto.event_pb2 import Event, SessionLog

from train.configuration import (
    CheckpointFields,
    Config,
    DatasetFields,
    EvaluationFields,
    LossFields,
    ModelFields,
    OptimizerFields,
)
from train.evaluation import evaluated
from train.evaluation.metric import LOSS, Metric, from_json
from train.evaluation.outcomes import Outcomes
from train.evaluation.summaries import Evaluation
from train.foundation import files, json_files
from train.foundation.errors import UserError
from train.foundation.ranks import Ranks
from train.training.losses import LOSSES
from train.workdir import figure_style, plots, terminal
from train.workdir.classes import Classes
from train.workdir.facts import Facts
from train.workdir.reporting import Reporter, show_finished
from train.workdir.run_files import read_config, read_facts, read_results

CONFIG = Config(
    seed=0,
    num_epochs=3,
    select_by="macro_top_3_accuracy",
    dataset=DatasetFields(name="digits", batch_size=4),
    model=ModelFields(name="linear"),
    loss=LossFields(name="noised_balanced", of_losses={"k": 3}),
    optimizer=OptimizerFields(learning_rate=0.1, weight_decay=0.0, decay_epochs=(2, 3)),
    eval=EvaluationFields(ks=(1, 3)),
    checkpoint=CheckpointFields(),
)
RESULTS = {
    "config": CONFIG.to_plain(),
    "num_parameters": np.int64(12),
    "parameters_digest": "ab",
    "num_classes": 10,
    "devices": 8,
    "versions": {"jax": jax.__version__},
    "best_epoch": 2,
    "epoch_seconds": [1.5, np.float32(0.5)],
    "examples_per_second": 1234.5,
    "validation": {"loss": 0.25, "top_1_accuracy": 0.5, "macro_top_3_accuracy": 0.75},
    "test": {
        "loss": 0.125,
        "top_1_accuracy": 0.9625,
        "macro_top_3_accuracy": 0.99125,
        "few_top_3_accuracy": float("nan"),
        "average_3_set_size": 3.0125,
    },
}
STEPS_PER_EPOCH = 20
# 4 sets of 1 class, 3 of 2 and 3 of 5.
SIZES = {Metric.set_size(3): np.array([0, 4, 3, 0, 0, 3])}
OUTCOMES = Outcomes(
    labels=np.array([0, 1, 1], np.int32),
    ranks=np.array([0, 2, 1], np.int32),
    average_ks=np.array([3], np.int32),
    in_average_sets=np.array([[True, False, True]]),
)
TESTS = {"test": Evaluation({}, SIZES, OUTCOMES)}
FACTS = Facts(Classes(("daisy", "dandelion"), (3, 200)), (8, 8, 1))


def reporter(workdir, *, first_step=0, config=CONFIG, facts=FACTS, listed=None, unlogged=()):
    return Reporter(
        workdir,
        config,
        facts,
        listed,
        steps_per_epoch=STEPS_PER_EPOCH,
        first_step=first_step,
        optimizes_top_k=LOSSES[config.loss.name].optimizes_top_k,
        unlogged=unlogged,
    )


def train(reporter, steps):
    """Reports steps, step i with loss i, and the epochs that they end."""
    for step in steps:
        reporter.training_step(
            step,
            {
                "loss": float(step),
                "accuracy": 0.5,
                "learning_rate": 0.125,
            },
        )
        if step % STEPS_PER_EPOCH == 0:
            epoch = step // STEPS_PER_EPOCH
            validation = from_json({**RESULTS["validation"], "few_top_3_accuracy": float("nan")})
            found = Evaluation(validation, SIZES, OUTCOMES)
            reporter.epoch(epoch, step, 1.25, found, is_best=epoch < 3)


def refuse_constant(name):
    raise AssertionError(f"{name} is not JSON")


def parse(text):
    return json.loads(text, parse_constant=refuse_constant)


def lines(workdir):
    return [parse(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def where(workdir):
    return [(line["split"], line["step"]) for line in lines(workdir)]


def events(path):
    """The events of a file: length, its checksum, the event, its checksum; one after the other."""
    stream = io.BytesIO(path.read_bytes())
    found = []
    while header := stream.read(12):
        (length, _) = struct.unpack("<QI", header)
        found.append(Event.FromString(stream.read(length)))
        assert len(stream.read(4)) == 4
    return found


def event_files(workdir):
    return sorted((workdir / "tensorboard").iterdir())


FIRST_EPOCH = [("train", 5), ("train", 10), ("train", 15), ("train", 20), ("validation", 20)]


def test_a_run_keeps_how_it_normalizes_from_its_beginning(tmp_path):
    by_half, by_tenth = (
        dataclasses.replace(FACTS, mean=(number,), std=(number,)) for number in (0.5, 0.1)
    )
    for facts, first_step, kept in (
        (FACTS, 0, None),
        (by_half, 0, 0.5),
        (by_tenth, 7, 0.5),
        (by_tenth, 0, 0.1),
    ):
        reporter(tmp_path, facts=facts, first_step=first_step).close()
        assert read_facts(tmp_path, FACTS.classes, FACTS.image_shape).mean == (kept and (kept,))
        assert (tmp_path / "data.json").exists() == (kept is not None)


def test_a_list_of_files_that_is_too_large_to_read_is_not_written(tmp_path, monkeypatch):
    listed = SimpleNamespace(to_plain=lambda: {"paths": ["ash.png"] * 100})
    reporter(tmp_path / "small", listed=listed).close()
    assert (tmp_path / "small" / "data_files.json").exists()
    monkeypatch.setattr(json_files, "LARGEST", 1000)
    reporter(tmp_path / "large", listed=listed).close()
    assert not (tmp_path / "large" / "data_files.json").exists()


def test_steps_are_logged_as_means_over_a_window_and_epochs_after_them(tmp_path):
    with reporter(tmp_path / "new" / "run") as report:
        train(report, range(1, 24))
        # A line is there to be read as soon as it is logged.
        assert where(tmp_path / "new" / "run") == FIRST_EPOCH
    # Closing logs the steps since the last log.
    assert where(tmp_path / "new" / "run") == [*FIRST_EPOCH, ("train", 23)]
    logged = lines(tmp_path / "new" / "run")
    assert logged[1] == {
        "step": 10,
        "epoch": 1,
        "split": "train",
        "loss": 8.0,  # The mean of 6, ..., 10.
        "accuracy": 0.5,
        "learning_rate": 0.125,
    }
    assert logged[4] == {
        "step": 20,
        "epoch": 1,
        "split": "validation",
        "seconds": 1.25,
        "loss": 0.25,
        "top_1_accuracy": 0.5,
        "macro_top_3_accuracy": 0.75,
        "few_top_3_accuracy": None,
    }
    assert logged[5]["epoch"] == 2
    assert logged[5]["loss"] == 22.0


def test_steps_that_were_not_logged_are_handed_on(tmp_path):
    with reporter(tmp_path / "unbroken") as report:
        train(report, range(1, 21))
    with contextlib.suppress(KeyboardInterrupt), reporter(tmp_path / "broken") as report:
        train(report, range(1, 9))
        unlogged = report.unlogged
        raise KeyboardInterrupt
    assert [metrics["loss"] for metrics in unlogged] == [6, 7, 8]
    with reporter(tmp_path / "broken", first_step=8, unlogged=unlogged) as report:
        train(report, range(9, 21))
    assert lines(tmp_path / "broken") == lines(tmp_path / "unbroken")


def test_an_exception_writes_no_pending_steps(tmp_path):
    def interrupted():
        with reporter(tmp_path) as report:
            train(report, range(1, 8))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert where(tmp_path) == [("train", 5)]


def test_a_resumed_run_drops_what_it_is_about_to_repeat(tmp_path):
    with reporter(tmp_path) as report:
        train(report, range(1, 36))
    before = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    # Killed in the middle of a line, after a line that no run has written.
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'null\n{"step": 3, "epoch": 1, "split": "train", "loss"')
    with reporter(tmp_path, first_step=20) as report:
        assert (tmp_path / "metrics.jsonl").read_bytes() == b"".join(before[:5])
        train(report, range(21, 41))
    assert where(tmp_path) == [
        *FIRST_EPOCH,
        *[("train", step) for step in (25, 30, 35, 40)],
        ("validation", 40),
    ]
    # A last line that is JSON without a line end is torn, too: the next one would be joined to it.
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 40}')
    with reporter(tmp_path, first_step=40):
        assert where(tmp_path)[-1] == ("validation", 40)
    with reporter(tmp_path, first_step=0):
        assert where(tmp_path) == []


def test_tensorboard_has_the_same_numbers_and_hides_repeated_steps(tmp_path):
    with reporter(tmp_path) as report:
        train(report, range(1, 24))
    with reporter(tmp_path, first_step=20) as report:
        train(report, range(21, 41))
    first, second = event_files(tmp_path)
    for path, purged_from, steps in [
        (first, 1, [5, 10, 15, 20, 20, 23]),
        (second, 21, [25, 30, 35, 40, 40]),
    ]:
        version, session, *rest = events(path)
        assert version.file_version == "brain.Event:2"
        assert session.session_log.status == SessionLog.START
        assert session.step == purged_from
        assert [event.step for event in rest] == steps
    _, _, _, step_10, *_, validation, _ = events(first)
    assert {value.tag: value.simple_value for value in step_10.summary.value} == {
        "train/loss": 8.0,
        "train/accuracy": 0.5,
        "train/learning_rate": 0.125,
    }
    *scalars, sizes = validation.summary.value
    # A metric without a value does not have a chart.
    assert {value.tag: value.simple_value for value in scalars} == {
        "validation/loss": 0.25,
        "validation/top_1_accuracy": 0.5,
        "validation/macro_top_3_accuracy": 0.75,
    }
    assert sizes.tag == "validation/average_3_set_sizes"
    assert (sizes.histo.num, sizes.histo.sum, sizes.histo.sum_squares) == (10, 25, 91)
    assert (sizes.histo.min, sizes.histo.max) == (1, 5)
    assert list(sizes.histo.bucket) == [0, 4, 3, 0, 3]
    assert list(sizes.histo.bucket_limit) == [0.5, 1.5, 2.5, 4.5, 5.5]


def test_tensorboard_shows_the_test_and_the_learning_curves_at_the_end(tmp_path):
    with reporter(tmp_path) as report:
        train(report, range(1, 61))
        report.results(RESULTS, TESTS)
    *_, test, last = events(event_files(tmp_path)[0])
    assert [value.tag for value in test.summary.value] == [
        # What does not have a value does not have a chart.
        *(f"test/{name}" for name in RESULTS["test"] if name != "few_top_3_accuracy"),
        "test/average_3_set_sizes",
    ]
    (shown,) = last.summary.value
    assert (test.step, last.step, shown.tag) == (60, 60, "learning_curves")
    assert shown.image.encoded_image_string == (tmp_path / "learning_curves.png").read_bytes()
    with Image.open(tmp_path / "learning_curves.png") as picture:
        assert (shown.image.width, shown.image.height) == picture.size


def test_the_configuration_is_written_once_and_read_back(tmp_path):
    assert read_config(tmp_path / "run") is None
    with reporter(tmp_path / "run"):
        written = read_config(tmp_path / "run")
    assert written == CONFIG.to_plain()
    assert written["optimizer"]["decay_epochs"] == [2, 3]
    with reporter(tmp_path / "run", config=dataclasses.replace(CONFIG, seed=1)):
        assert read_config(tmp_path / "run") == written
    for broken in ('{"seed": 0', "[]"):
        (tmp_path / "run" / "config.json").write_text(broken)
        with pytest.raises(UserError, match=r"config.json is not the configuration of a run"):
            read_config(tmp_path / "run")


def test_results_are_strict_json(tmp_path):
    with reporter(tmp_path) as report:
        train(report, range(1, 61))
        report.results(RESULTS, TESTS)
    results = parse((tmp_path / "results.json").read_text())
    assert list(results) == [*RESULTS, "digests", "sha256"]
    assert results["test"] == {**RESULTS["test"], "few_top_3_accuracy": None}
    assert results["epoch_seconds"] == [1.5, 0.5]
    assert results["num_parameters"] == 12
    assert not list(tmp_path.glob(".*"))


def test_a_crash_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    files.write_whole(path, b"old")

    def crash(*_):
        raise KeyboardInterrupt

    # When the new content is written, not yet in the place of the old.
    with monkeypatch.context() as context:
        context.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            files.write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    files.write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_made_is_named_as_the_user_knows_it(tmp_path):
    path = tmp_path / "missing" / "results.json"
    with pytest.raises(FileNotFoundError) as raised:
        files.write_whole(path, b"new")
    assert raised.value.filename == str(path)


def test_a_full_disk_is_one_error_that_names_the_file(tmp_path, monkeypatch):
    report = reporter(tmp_path)
    open_full = Path("/dev/full").open
    with monkeypatch.context() as patched:
        patched.setattr(files, "open_to_add", lambda _: open_full("ab"))
        with pytest.raises(OSError, match=r"No space left on device: '.*metrics\.jsonl'") as caught:
            train(report, range(1, 6))
    assert caught.value.errno == errno.ENOSPC
    report.close()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*learning_curves\.png'"):
        report.results(RESULTS, TESTS)
    assert not (tmp_path / "results.json").exists()
    assert not list(tmp_path.glob(".*"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps(CONFIG.to_plain()))
    (tmp_path / "other" / "classes.json").write_bytes(files.to_json(FACTS.classes.to_plain()))
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*tfevents.*'"),
        reporter(tmp_path / "other") as report,
    ):
        train(report, range(1, 6))


def test_a_run_that_begins_anew_counts_anew(tmp_path):
    """A run that was stopped before its first checkpoint may leave other images out."""
    path = tmp_path / "classes.json"
    others = dataclasses.replace(FACTS.classes, training_images=(1,) * len(FACTS.classes.names))
    path.write_bytes(files.to_json(others.to_plain()))
    with reporter(tmp_path):
        pass
    assert json.loads(path.read_text()) == FACTS.classes.to_plain()


def closing_words(tmp_path, capsys, results=RESULTS):
    with reporter(tmp_path) as report:
        train(report, range(1, 61))
        report.results(results, TESTS)
    return capsys.readouterr().out


def test_a_pipe_gets_plain_lines(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    output = closing_words(tmp_path / "run", capsys)
    assert "\x1b" not in output
    assert "\r" not in output
    printed = output.splitlines()
    assert printed[:3] == [
        "epoch 1/3  training: loss 18, accuracy 50.00%  "
        "validation: loss 0.25, top-1 50.00%, macro top-3 75.00%  1.2 s  "
        "best macro top-3 accuracy so far",
        "epoch 2/3  training: loss 38, accuracy 50.00%  "
        "validation: loss 0.25, top-1 50.00%, macro top-3 75.00%  1.2 s  "
        "best macro top-3 accuracy so far",
        "epoch 3/3  training: loss 58, accuracy 50.00%  "
        "validation: loss 0.25, top-1 50.00%, macro top-3 75.00%  1.2 s",
    ]
    rows = [" ".join(line.split()) for line in printed]
    for row in [
        "test, with the parameters of epoch 2, which has the best macro top-3 accuracy on "
        "validation: loss 0.125",
        # No column for the classes of few images, because there is no number for them.
        "accuracy all macro set size",
        "top-1 96.25% - -",
        "top-3 - 99.12% -",
        "average-3 - - 3.013",
        "results run/results.json",
        "learning curves run/learning_curves.png",
        "metrics run/metrics.jsonl",
        "configuration run/config.json",
        "TensorBoard run/tensorboard",
        "checkpoints run/checkpoints",
    ]:
        assert row in rows


def test_a_balanced_test_has_a_table_and_outcomes_of_its_own(tmp_path, capsys):
    kept = {name: array for name, array in vars(OUTCOMES).items() if array is not None}
    balanced = Outcomes(**{name: array[..., :2] for name, array in kept.items()})
    tests = {**TESTS, "balanced_test": Evaluation({}, SIZES, balanced)}
    results = {**RESULTS, "balanced_test": {"macro_top_3_accuracy": 0.625}}
    with reporter(tmp_path) as written:
        train(written, range(1, 61))
        written.results(results, tests)
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    start = rows.index("on the class-balanced test set:")
    assert rows.index("top-3 - 99.12% -") < start < rows.index("top-3 62.50%")
    assert "balanced test outcomes" in " ".join(rows)
    for split, outcomes in (("test", OUTCOMES), ("balanced_test", balanced)):
        found = Outcomes.read(tmp_path / f"outcomes_{split}.npz")
        for name, array in vars(outcomes).items():
            np.testing.assert_array_equal(getattr(found, name), array, strict=True)


def test_a_metric_of_another_kind_has_a_column_of_its_own():
    values = {Metric.set_size(3): 3.0, Metric("top", 3, "micro", "regret"): 0.5}
    values[Metric.accuracy("top", 3)] = 0.25
    table = terminal._table(values)
    assert [column.header for column in table.columns] == ["accuracy", "all", "set size", "regret"]


def test_a_table_says_of_how_many_classes_and_examples_it_is(tmp_path, capsys):
    labels, class_counts = np.array([0, 0, 0, 0, 1, 1]), np.array([3, 200, 200, 200])
    names = ("daisy", "dandelion", "\x1b[31mrose", "tulip")
    found = evaluated.to_json(labels, len(labels), class_counts, names)
    results = {
        **RESULTS,
        "test": {"loss": 0.5, "few_top_1_accuracy": 0.25, "macro_top_1_accuracy": 0.5},
        "evaluated": {"test": found},
    }
    rows = [" ".join(line.split()) for line in closing_words(tmp_path, capsys, results).split("\n")]
    start = rows.index("accuracy macro few")
    assert rows[start + 2] == "top-1 50.00% 25.00%"
    assert rows[start + 4 : start + 6] == ["classes 2 1", "examples 6 4"]
    assert (r"classes without examples in this split, not counted: 2 (\x1b[31mrose, tulip)") in rows
    # With many classes a line names the first, and a file not all of a million.
    absent = evaluated.to_json(np.array([0]), 1, None, [f"c{index}" for index in range(2000)])
    assert (absent["classes_without_examples"], len(absent["named"])) == (1999, 1000)
    assert absent["groups"] == {"all": {"classes": 1, "examples": 1}}
    shown = {**results, "evaluated": {"test": absent}}
    terminal.show_results(shown, CONFIG, {}, optimizes_top_k=False)
    line = next(one for one in capsys.readouterr().out.split("\n") if "without examples" in one)
    assert line.endswith(": 1,999 (c1, c2, c3, c4, c5, c6, c7, c8, c9, c10 and 1,989 more)")


def test_examples_of_several_classes_are_counted_beside_their_labels(tmp_path, capsys):
    found = evaluated.to_json(np.array([0, 0, 1, 1, 1]), 3, None, ["daisy", "rose"])
    assert found["groups"]["all"] == {"classes": 2, "examples": 5}
    assert evaluated.num_examples(found) == 3
    assert "num_examples" not in evaluated.to_json(np.array([0, 1]), 2, None, ["daisy", "rose"])
    results = {**RESULTS, "evaluated": {"test": found}}
    output = closing_words(tmp_path, capsys, results)
    assert "labels are counted: 3 examples have these:\n" in output
    rows = [" ".join(line.split()) for line in output.split("\n")]
    assert any(row.startswith("labels 5") for row in rows)
    assert not any(row.startswith("examples ") for row in rows)


def test_a_run_with_ranks_names_the_command_that_reports_them(tmp_path, capsys):
    ranks = Ranks(("family", "genus", "species"), (("a", "b"), ("a", "c")))
    facts = dataclasses.replace(FACTS, classes=dataclasses.replace(FACTS.classes, ranks=ranks))
    with reporter(tmp_path, facts=facts) as report:
        train(report, range(1, 61))
        report.results(RESULTS, TESTS)
    command = f"python -m train.evaluate --workdir={tmp_path}"
    assert f"accuracies and sets by family, genus: {command}\n" in capsys.readouterr().out
    assert "accuracies and sets by" not in closing_words(tmp_path / "plain", capsys)


def test_bounds_of_sets_of_k_classes_that_promise_nothing_are_named(capsys):
    estimate = {"coverage": 0.75, "interval": [0.5, 0.875], "coverage_at_least": 0.0}
    of_ks = {
        "top_1": {**estimate, "backward_coverage": 0.0},
        "top_3": estimate | {"backward_coverage": 0.5},
    }
    terminal._show_top_k_estimates({"top_k_estimates": of_ks})
    assert capsys.readouterr().out.splitlines()[1:] == [
        "lower bound by backward conformal sets, to first order: top-3 50.0; no bound for top-1",
        "lower bound by backward conformal sets, for any classifier: no bound for top-1, top-3",
    ]


def test_a_finished_run_is_shown_again_without_being_touched(tmp_path, capsys):
    assert read_results(tmp_path) is None
    shown = closing_words(tmp_path, capsys)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    results = read_results(tmp_path)
    assert results["test"]["few_top_3_accuracy"] is None
    show_finished(tmp_path, CONFIG, results, optimizes_top_k=True)
    again = capsys.readouterr().out
    assert again.startswith("this run is finished")
    assert again.splitlines()[1:] == shown.splitlines()[-len(again.splitlines()) + 1 :]
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    (tmp_path / "results.json").write_text("{")
    assert read_results(tmp_path) is None


def test_a_path_is_printed_whole_however_long(tmp_path, capsys):
    workdir = tmp_path / ("long" * 40)
    output = closing_words(workdir, capsys)
    assert f"results          {workdir}/results.json\n" in output
    # What is not there is not listed.
    assert "checkpoints" not in output


@pytest.mark.parametrize(
    ("loss", "parameters", "k"),
    [
        ("noised_balanced", {"k": 3}, 3),
        ("expected_imbalanced", {"k": 5}, 5),
        ("smooth_top_k_hinge", {"k": 2, "tau": 1.0}, 2),
        ("noised_balanced", {"k": 1}, None),
        ("cross_entropy", {"k": 3}, None),
        ("cross_entropy", {}, None),
        ("expected_positive_regularization", {"k": 3}, None),
    ],
)
def test_the_numbers_of_a_top_k_loss_come_with_a_note(tmp_path, capsys, loss, parameters, k):
    config = dataclasses.replace(CONFIG, loss=LossFields(name=loss, of_losses=parameters))
    with reporter(tmp_path, config=config) as report:
        train(report, range(1, 21))
        report.results({**RESULTS, "config": config.to_plain()}, TESTS)
    output = " ".join(capsys.readouterr().out.split())
    if k is None:
        assert "Note" not in output
    else:
        assert f"{loss} with k = {k} is a top-{k} loss" in output
        assert f"Read its top-{k} accuracy: it does not optimise the top-1 accuracy" in output


@pytest.mark.parametrize(
    ("select_by", "best_epoch", "first_epoch", "hint"),
    [
        (
            "top_3_accuracy",
            2,
            3,
            " --config.select_by=macro_top_1_accuracy may select a later epoch.",
        ),
        ("macro_top_1_accuracy", 2, 3, ""),
        ("top_3_accuracy", 3, 3, None),
        ("top_3_accuracy", 1, 1, None),
        ("top_3_accuracy", 1, None, None),
    ],
)
def test_an_epoch_before_the_class_weights_comes_with_a_note(
    capsys, select_by, best_epoch, first_epoch, hint
):
    config = dataclasses.replace(CONFIG, select_by=select_by, loss=LossFields(name="cross_entropy"))
    begins = {} if first_epoch is None else {"class_weights_epoch": first_epoch}
    results = {**RESULTS, "best_epoch": best_epoch, **begins}
    terminal.show_results(results, config, {}, optimizes_top_k=False)
    output = " ".join(capsys.readouterr().out.split())
    if hint is None:
        assert "Note" not in output
    else:
        assert "Note: the selected epoch 2 is before the class weights start, in epoch 3." in output
        assert output.endswith(f"Its parameters were trained without them.{hint}")


def shown_on_a_terminal(tmp_path, monkeypatch, steps):
    """What a terminal of 120 columns gets from a run that resumes after its first epoch."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    chunks = []

    def read():
        # A terminal that has closed is an error to read from.
        with contextlib.suppress(OSError):
            while True:
                chunks.append(os.read(ours, 10_000))

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as context:
        context.setattr(sys, "stdout", terminal)
        with reporter(tmp_path, first_step=20) as report:
            train(report, steps)
    reader.join()
    os.close(ours)
    return b"".join(chunks).decode()


def test_a_terminal_gets_a_line_for_each_epoch_above_the_bar(tmp_path, monkeypatch):
    output = shown_on_a_terminal(tmp_path, monkeypatch, range(21, 41))
    assert output.startswith("continuing after epoch 1 of 3")
    assert "epoch 2/3  training: loss 38, accuracy 50.00%  validation: loss 0.25" in output


def test_a_terminal_gets_a_bar(tmp_path, monkeypatch):
    output = shown_on_a_terminal(tmp_path, monkeypatch, range(21, 31))
    _, _, first, *_, last = output.split("epoch ")
    for frame, epoch, fraction in [(first, "1/3", 1 / 3), (last, "2/3", 1 / 2)]:
        assert frame.startswith(epoch)
        done, to_do = (
            len("".join(re.findall(rf"\x1b\[{color}m([━╸╺]+)", frame))) for color in (91, 90)
        )
        # The bar is drawn in full characters; its two parts share at most one.
        assert abs(done - fraction * (done + to_do)) <= 1
    assert "loss 28, accuracy 50.00%" in last
    assert "examples/s" in last
    assert "left" in last
    assert "\x1b[" in output


def test_the_curves_are_an_image_with_the_whole_history(tmp_path, capsys):
    with reporter(tmp_path) as report:
        train(report, range(1, 31))
    with reporter(tmp_path, first_step=20) as report:
        train(report, range(21, 61))
        report.results(RESULTS, TESTS)
    with Image.open(tmp_path / "learning_curves.png") as image:
        image.load()
        assert image.format == "PNG"
        assert image.size == (1500, 750)
        # Something is drawn: neither only white, nor mostly ink.
        assert 0.5 < (np.asarray(image.convert("L")) == 255).mean() < 0.99


def test_the_curves_have_the_lines_of_both_splits(tmp_path):
    with reporter(tmp_path) as report:
        train(report, range(1, 61))
    figure = plots.learning_curves(
        lines(tmp_path),
        steps_per_epoch=STEPS_PER_EPOCH,
        best_epoch=2,
        select_by=Metric.accuracy("top", 3, "few"),
        accuracies=[Metric.accuracy("top", 1), Metric.accuracy("top", 3, "few")],
    )
    loss, accuracy = figure.axes
    drawn = {line.get_label(): line for line in loss.lines[:-1] + accuracy.lines[:-1]}
    assert set(drawn) == {
        "training loss",
        "validation loss",
        "training accuracy",
        "validation top-1 accuracy",
        "validation few top-3 accuracy",
    }
    np.testing.assert_array_equal(drawn["training loss"].get_xdata()[:4], [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_array_equal(drawn["training loss"].get_ydata()[:2], [3.0, 8.0])
    np.testing.assert_array_equal(drawn["validation loss"].get_xdata(), [1.0, 2.0, 3.0])
    assert np.isnan(drawn["validation few top-3 accuracy"].get_ydata()).all()
    assert [list(axes.lines[-1].get_xdata()) for axes in figure.axes] == [[2.0, 2.0]] * 2
    assert figure.get_suptitle() == (
        "dotted: epoch 2, selected for the best validation few top-3 accuracy: -"
    )
    assert loss.get_xlabel() == accuracy.get_xlabel() == "epoch"
    assert loss.get_ylabel() == "loss"
    assert accuracy.get_ylabel() == "accuracy"


def test_curves_of_nothing_are_drawn_all_the_same():
    figure = plots.learning_curves(
        [], steps_per_epoch=1, best_epoch=0, select_by=LOSS, accuracies=[]
    )
    assert figure_style.encode(figure, ".png").startswith(b"\x89PNG")
