"""What a run writes and shows: metrics, events, results, curves, the bar and the closing table."""

import contextlib
import dataclasses
import errno
import io
import json
import os
import pty
import struct
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import pytest
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
from train.data.classes import Classes
from train.foundation import files
from train.reports.metric import Metric, from_json
from train.reports.outcomes import Outcomes
from train.reports.summaries import Evaluation
from train.training.losses import LOSSES
from train.workdir.facts import Facts
from train.workdir.reporting import Reporter
from train.workdir.run_files import read_facts

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
    average_set_sizes=np.array([[1, 2, 6]], np.int32),
    in_average_sets=np.array([[True, False, True]]),
)
TESTS = {"test": Evaluation({}, SIZES, OUTCOMES)}
FACTS = Facts(Classes(("daisy", "dandelion"), (3, 200)), (8, 8, 1))


def reporter(workdir, *, first_step=0, facts=FACTS):
    return Reporter(
        workdir,
        CONFIG,
        facts,
        None,
        steps_per_epoch=STEPS_PER_EPOCH,
        first_step=first_step,
        optimizes_top_k=LOSSES[CONFIG.loss.name].optimizes_top_k,
        unlogged=(),
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
