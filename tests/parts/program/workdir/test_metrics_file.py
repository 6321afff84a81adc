"""The metrics of a run as they are read back: what is not a line is left out, with a warning."""

import json

import pytest
from absl import logging

from train.workdir import metrics_file, run_files
from train.workdir.metrics_file import MetricsFile

LINES = [
    {"step": 5, "epoch": 1, "split": "train", "loss": 1.5, "accuracy": 0.5},
    {"step": 10, "epoch": 1, "split": "validation", "seconds": 0.5, "few_top_1_accuracy": None},
    {"step": 15, "epoch": 2, "split": "train", "loss": 1.0},
]


@pytest.fixture
def warned(monkeypatch):
    found = []
    monkeypatch.setattr(logging, "warning", lambda *words: found.append(words[0] % words[1:]))
    return found


def write(path, *lines, end=""):
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts) + end)
    return path


def test_a_torn_line_is_no_news(tmp_path, warned):
    path = write(tmp_path / "metrics.jsonl", *LINES, end='{"step": 20, "spl')
    assert metrics_file.read(path) == LINES
    MetricsFile(path, 10, None)
    assert [json.loads(line) for line in path.read_text().splitlines()] == LINES[:2]
    assert warned == []


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"step": 7}', "'split'"),
        ('{"step": 7, "split": "train", "loss": NaN}', "NaN"),
        ("\x1b]0;x\x07", "Expecting value"),
    ],
)
def test_a_bad_line_is_left_out_and_told(tmp_path, warned, bad, reason):
    path = write(tmp_path / "metrics.jsonl", LINES[0], bad, *LINES[1:], bad)
    assert run_files.read_metrics(tmp_path) == LINES
    (message,) = warned
    assert message.startswith(
        f"{path}: lines that are not metrics of a step, and are left out: 2, the first of them "
        "line 2: "
    )
    assert reason in message
    assert "\x1b" not in message
    MetricsFile(path, 15, None)
    assert [json.loads(line) for line in path.read_text().splitlines()] == LINES
