"""A study is killed, continued by the same command, and has the results of runs made alone."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.parts.program.forked import ROOT
from train.study import plan

STUDY = """
select_by = "top_1_accuracy"
seeds = [0, 1]
fields.num_epochs = 20
fields.model.name = "linear"

[[arms]]
name = "focal"
config = "digits:focal"

[[arms]]
name = "cross-entropy"
config = "digits:cross_entropy"

[[contrasts]]
name = "of losses"
first = "focal"
second = "cross-entropy"
metric = "top_1_accuracy"
"""
LIMIT = 300
TIMES = ("epoch_seconds", "examples_per_second", "data_wait_share")


def results(workdir):
    found = json.loads((workdir / "results.json").read_text())
    return {name: value for name, value in found.items() if name not in TIMES}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_study_is_killed_continued_and_equals_runs_alone(tmp_path, number):
    file, runs = tmp_path / "study.toml", tmp_path / "runs"
    file.write_text(STUDY)
    command = [sys.executable, "-m", "train.compare", f"--study={file}", f"--runs={runs}"]
    command += ["--jobs=2"]
    options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **options) as process:
        end = time.monotonic() + LIMIT
        while len(list(runs.glob("*/metrics.jsonl"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=LIMIT)
    if number == signal.SIGTERM:
        assert process.returncode == 128 + number
        assert errors == "stopped by SIGTERM: the same command continues from here\n"
    # No run goes on, and both save: at once, or soon after the command was killed.
    logs = [*runs.glob("*.log")]
    assert len(logs) == 2
    while not all("stopped by SIGTERM" in log.read_text() for log in logs):
        assert time.monotonic() < end
        time.sleep(0.05)
    ended = subprocess.run(command, timeout=LIMIT, check=False, **options)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "of losses" in ended.stdout
    # The first was stopped; the last shared the process of another one.
    study = plan.read(file)
    for arm, seed in zip(study.arms, study.seeds, strict=True):
        run = arm.run({}, seed)
        alone = [sys.executable, *run.command(tmp_path / "alone"), "--nocluster"]
        subprocess.run(alone, timeout=LIMIT, check=True, **options)
        shared, alone = runs / run.name, tmp_path / "alone" / run.name
        assert results(shared) == results(alone)
        for name in ("config.json", "outcomes_test.npz"):
            assert (shared / name).read_bytes() == (alone / name).read_bytes()
