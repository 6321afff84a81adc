"""Ctrl-C at any moment of a command, also in its imports."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.compilation import QUICK_FLAGS
from tests.parts.program.forked import ROOT, TIME_LIMIT
from tests.parts.program.program import Program, outcome

# All kinds of state: momentum, moving averages, and the estimated labels of ROLE.
PROGRAM = Program(
    (
        "--config=configs/digits.py:role",
        "--config.num_epochs=8",
        "--config.model.name=mlp",
        "--config.optimizer.average_decay=0.9",
        "--config.checkpoint.every_steps=4",
    ),
    compiled_quickly=True,
)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("interruptions") / "unbroken"
    PROGRAM.complete(workdir)
    return workdir


# The command from its first instruction on, with all its imports, and then a line.
FROM_THE_START = """
print("begun", flush=True)
import runpy
runpy.run_module("train.main", run_name="__main__", alter_sys=True)
"""
NUM_INTERRUPTS = 12


def interrupted(workdir, seconds):
    """The exit code and the errors of the command after Ctrl-C at some moment."""
    flags = f"--xla_force_host_platform_device_count=2 {QUICK_FLAGS}"
    with subprocess.Popen(
        [sys.executable, "-c", FROM_THE_START, *PROGRAM.arguments, f"--workdir={workdir}"],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "begun\n"
        limit = threading.Timer(TIME_LIMIT, process.kill)
        limit.start()
        try:
            _, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate()
        limit.cancel()
    return process.returncode, errors


def test_ctrl_c_at_random_moments_is_one_line_and_changes_nothing(unbroken, tmp_path):
    begun = time.monotonic()
    assert interrupted(tmp_path / "timed", TIME_LIMIT) == (0, "")
    whole = time.monotonic() - begun
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    for trial in range(NUM_INTERRUPTS):
        # A third of them in the imports.
        seconds = whole * draw.random() * (0.2 if trial % 3 == 0 else 1)
        code, errors = interrupted(tmp_path / "run", seconds)
        said = (seed, trial, seconds, code, errors)
        if code == 0:
            assert errors == "", said
            assert outcome(tmp_path / "run") == outcome(unbroken), said
            (tmp_path / "run").rename(tmp_path / f"finished-{trial}")
        else:
            assert code == 130, said
            assert errors.startswith("stopped by SIGINT"), said
            assert errors.count("\n") == 1, said
    PROGRAM.complete(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(unbroken)
