"""What a run writes and shows: metrics, events, results, curves, the bar and the closing table."""

import dataclasses
import io
import json
import os
import pty
import re
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from configs import digits
from train.configuration.parsing import parse
from train.data.classes import Classes
from train.foundation.errors import UserError
from train.reports.metric import Metric, from_json
from train.reports.outcomes import Outcomes
from train.reports.summaries import Evaluation
from train.run import trackers
from train.run.reporting import Reporter
from train.run.run_folder import Facts, read_facts

GIVEN = json.loads(digits.get_config("noised_top_k_hinge").to_json())
GIVEN |= {"num_epochs": 3, "select_by": "macro_top_3_accuracy", "eval": {"ks": [1, 3]}}
CONFIG = parse(GIVEN)
RESULTS = {
    "config": CONFIG.to_plain(),
    "num_classes": 10,
    "best_epoch": 2,
    "best_step": 40,
    "selected_by": CONFIG.select_by,
    "validation": {"loss": 0.25, "top_1_accuracy": 0.5, "macro_top_3_accuracy": 0.75},
    "test": {
        "loss": 0.125,
        "top_1_accuracy": 0.9625,
        "macro_top_3_accuracy": 0.99125,
        "few_top_3_accuracy": None,
    },
    "balanced_test": {"macro_top_3_accuracy": 0.625},
}
# What trackers and TensorBoard do not have.
NO_VALUE = {"few_top_3_accuracy": None}
# 4 sets of 1 class, 3 of 2 and 3 of 5.
SIZES = {Metric.set_size(3): np.array([0, 4, 3, 0, 0, 3])}
OUTCOMES = Outcomes(
    labels=np.array([0, 1, 1], np.int32),
    ranks=np.array([0, 2, 1], np.int32),
    average_ks=np.array([3], np.int32),
    average_set_sizes=np.array([[1, 2, 6]], np.int32),
    in_average_sets=np.array([[True, False, True]]),
)
FACTS = Facts(Classes(("daisy", "dandelion"), (3, 200)), (8, 8, 1))
DATASET = SimpleNamespace(seen=None, alike=None)
FIRST_EPOCH = [("train", 5), ("train", 10), ("train", 15), ("train", 20), ("validation", 20)]


def reporter(workdir, *, first_step=0, facts=FACTS, config=CONFIG, steps=20, pending=()):
    made = {"steps_per_epoch": steps, "first_step": first_step, "pending": pending}
    return Reporter(workdir, config, facts, DATASET, **made)


def train(reporter, steps, steps_per_epoch=20):
    """Reports steps, step i with loss i, and the epochs that they end."""
    for step in steps:
        reporter.training_step(step, {"loss": float(step), "accuracy": 0.5})
        if step % steps_per_epoch == 0:
            metrics = from_json(RESULTS["validation"] | NO_VALUE)
            found = Evaluation(metrics, SIZES, OUTCOMES)
            reporter.epoch(step // steps_per_epoch, step, 1.25, found, is_best=step < 60)


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def where(workdir):
    return [(line["split"], line["step"]) for line in lines(workdir)]


def events(path):
    """The events of a file: length, its checksum, the event, its checksum; one after the other."""
    stream = io.BytesIO(path.read_bytes())
    while header := stream.read(12):
        yield Event.FromString(stream.read(struct.unpack("<QI", header)[0]))
        assert len(stream.read(4)) == 4


def test_a_run_keeps_how_it_normalizes_from_its_beginning(tmp_path):
    by_half, by_tenth = (
        dataclasses.replace(FACTS, mean=(number,), std=(number,)) for number in (0.5, 0.1)
    )
    for facts, first_step, kept in ((by_half, 0, 0.5), (by_tenth, 7, 0.5), (by_tenth, 0, 0.1)):
        with reporter(tmp_path, facts=facts, first_step=first_step):
            pass
        assert read_facts(tmp_path) == facts
        assert read_facts(tmp_path).mean == (kept,)


def test_steps_are_logged_as_means_over_a_window_and_go_on_after_a_stop(tmp_path):
    workdir = tmp_path / "new" / "run"
    with reporter(workdir) as report:
        train(report, range(1, 24))
        # A line is there to be read as soon as it is logged.
        assert where(workdir) == FIRST_EPOCH
        pending = report.pending
    logged = lines(workdir)
    step = {"step": 10, "epoch": 1, "split": "train"}
    assert logged[1] == {**step, "loss": 8.0, "accuracy": 0.5}  # The mean of 6, ..., 10.
    epoch = {"step": 20, "epoch": 1, "split": "validation", "seconds": 1.25}
    assert logged[4] == {**epoch, **RESULTS["validation"], **NO_VALUE}
    with reporter(workdir, first_step=23, pending=pending) as report:
        train(report, range(24, 26))
    assert lines(workdir)[-1]["loss"] == 23.0  # The mean of 21, ..., 25.


def test_a_resumed_run_drops_what_it_is_about_to_repeat(tmp_path):
    file = tmp_path / "metrics.jsonl"
    with reporter(tmp_path) as report:
        train(report, range(1, 36))
    before = file.read_bytes().splitlines(keepends=True)
    # A kill tears a line, also one that is JSON without its end.
    for torn in (b'{"step": 3, "epoch": 1, "split": "train", "loss"', b'{"step": 40}'):
        file.write_bytes(b"".join(before) + torn)
        with reporter(tmp_path, first_step=20) as report:
            assert file.read_bytes() == b"".join(before[:5])
            train(report, range(21, 36))
        assert file.read_bytes() == b"".join(before)
    file.write_bytes(b'null\n{"step": 40, "epoch": 2}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged: .*; delete it$"):
        reporter(tmp_path, first_step=40)
    file.unlink()
    with reporter(tmp_path, first_step=40):
        assert where(tmp_path) == []


def test_metrics_events_a_tracker_and_results_have_the_same_numbers(tmp_path, monkeypatch):
    tracked = {}
    tracker = SimpleNamespace(
        start=lambda _workdir, _fields: None,
        write=lambda step, metrics: tracked.setdefault(step, {}).update(metrics),
        close=lambda _finished: None,
    )
    monkeypatch.setitem(trackers.KINDS, "wandb", lambda: tracker)
    config, tests = dataclasses.replace(CONFIG, trackers=("wandb",)), ("test", "balanced_test")
    with reporter(tmp_path, config=config) as report:
        train(report, range(1, 24))
    with reporter(tmp_path, config=config, first_step=20) as report:
        train(report, range(21, 61))
        report.results(RESULTS, dict.fromkeys(tests, Evaluation({}, SIZES, OUTCOMES)))
    assert json.loads((tmp_path / "results.json").read_text()) == RESULTS
    written = {}
    not_copied = ("step", "epoch", "split", "seconds", *NO_VALUE)
    for line in [*lines(tmp_path), *({"step": 60, "split": one} | RESULTS[one] for one in tests)]:
        metrics = {name: value for name, value in line.items() if name not in not_copied}
        named = {f"{line['split']}/{name}": value for name, value in metrics.items()}
        written.setdefault(line["step"], {}).update(named)
    assert tracked == written
    shown = {}
    for path, purged_from in zip(
        sorted((tmp_path / "tensorboard").iterdir()), (1, 21), strict=True
    ):
        version, session, *rest = events(path)
        assert version.file_version == "brain.Event:2"
        # TensorBoard hides what earlier files have from this step on.
        assert (session.session_log.status, session.step) == (SessionLog.START, purged_from)
        for event in rest:
            values = {value.tag: value.simple_value for value in event.summary.value}
            shown.setdefault(event.step, {}).update(values)
    assert shown.keys() == written.keys()
    for step, values in written.items():
        assert shown[step] == {name: np.float32(value) for name, value in values.items()}


def test_a_full_disk_is_one_error_that_names_the_file(tmp_path):
    with reporter(tmp_path) as report:
        report._metrics.close()
        report._metrics = Path("/dev/full").open("ab", buffering=0)  # noqa: SIM115
        with pytest.raises(OSError, match=r"No space left on device: '.*metrics\.jsonl'"):
            train(report, range(1, 6))


def test_a_finished_run_has_a_table_and_outcomes_for_each_test_split(tmp_path, capsys):
    kept = {name: array for name, array in vars(OUTCOMES).items() if array is not None}
    balanced = Outcomes(**{name: array[..., :2] for name, array in kept.items()})
    outcomes = {"test": OUTCOMES, "balanced_test": balanced}
    with reporter(tmp_path) as report:
        train(report, range(1, 61))
        report.results(RESULTS, {name: Evaluation({}, {}, one) for name, one in outcomes.items()})
    printed = capsys.readouterr().out.splitlines()
    rows = [" ".join(line.split()) for line in printed]
    start = rows.index("on the class-balanced test set:")
    assert rows.index("top-3 - 99.12%") < start < rows.index("top-3 62.50%")
    assert str(tmp_path) in printed[-1]
    assert printed[-1].endswith(f"python -m train.evaluate --workdir={tmp_path}")
    assert (tmp_path / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob(".*"))
    for split, written in outcomes.items():
        found = Outcomes.read(tmp_path / f"outcomes_{split}.npz")
        for name, array in vars(written).items():
            np.testing.assert_array_equal(getattr(found, name), array, strict=True)


def test_a_terminal_gets_a_line_for_each_epoch_above_the_bar(tmp_path, monkeypatch):
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with os.fdopen(theirs, "w") as terminal:
        with monkeypatch.context() as context:
            context.setattr(sys, "stdout", terminal)
            with reporter(tmp_path, first_step=20) as report:
                train(report, range(21, 41))
        output = os.read(ours, 10_000).decode()
    os.close(ours)
    assert output.startswith("continuing after epoch 1 of 3")
    assert "epoch 2/3  training: loss 38, accuracy 50.00%  validation: loss 0.25" in output


def test_the_seconds_of_an_epoch_are_told_once_before_it_ends(tmp_path, capsys):
    with reporter(tmp_path, steps=30) as report:
        train(report, range(1, 30), 30)
        told = r"an epoch takes about \d+\.\d s on 8 cpu devices"
        assert len(re.findall(told, capsys.readouterr().out)) == 1
        train(report, range(30, 60), 30)
    assert "an epoch takes" not in capsys.readouterr().out
