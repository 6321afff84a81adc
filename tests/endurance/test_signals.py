"""Signals and damaged checkpoints in the middle of epochs, met as users meet them."""

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
from tests.parts.program.program import Program, checkpoints, flip_a_bit, outcome, truncate

STEPS_PER_EPOCH = 19
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


def stop(running, epoch, number, *, to_group):
    """Sends a signal after an epoch; returns the step that was saved, and the lines before."""
    running.read_until(f"epoch {epoch}/")
    running.send(number, to_group=to_group)
    done = running.end()
    assert done.returncode == 128 + number, done.stderr
    *warnings, line = done.stderr.splitlines()
    assert line.startswith(f"stopped by {number.name}: saved after step ")
    assert line.endswith("the same command continues from there")
    step = int(line.split("after step ")[1].split(",")[0])
    assert epoch * STEPS_PER_EPOCH < step < 8 * STEPS_PER_EPOCH
    assert f"in epoch {1 + step // STEPS_PER_EPOCH} of 8" in line
    return step, warnings, done.stdout


def is_of_skipping(warnings, checkpoint):
    (line,) = warnings
    return line.startswith(f"warning: skipped the checkpoint {checkpoint}: ")


def test_signals_and_damage_in_the_middle_of_epochs_change_nothing(unbroken, tmp_path):
    workdir = tmp_path / "run"

    def at(step):
        return workdir / "checkpoints" / str(step)

    def goes_on_from(step):
        epoch, in_epoch = divmod(step, STEPS_PER_EPOCH)
        within = f" and {in_epoch} of {STEPS_PER_EPOCH} steps" if in_epoch else ""
        return f"continuing after epoch {epoch} of 8{within}\n"

    with PROGRAM.start(workdir) as running:
        first, warnings, _ = stop(running, 1, signal.SIGTERM, to_group=False)
    assert not warnings
    assert checkpoints(workdir)[-1] == first
    with PROGRAM.start(workdir) as running:
        second, warnings, printed = stop(running, 3, signal.SIGINT, to_group=True)
    assert not warnings
    assert goes_on_from(first) in printed
    before = checkpoints(workdir)[-2]
    flip_a_bit(at(second))
    with PROGRAM.start(workdir) as running:
        third, warnings, printed = stop(running, 5, signal.SIGTERM, to_group=True)
    assert is_of_skipping(warnings, at(second))
    assert goes_on_from(before) in printed
    before = checkpoints(workdir)[-2]
    truncate(at(third))
    done = PROGRAM.complete(workdir)
    assert is_of_skipping(done.stderr.splitlines(), at(third))
    assert goes_on_from(before) in done.stdout
    assert outcome(workdir) == outcome(unbroken)


# The command from its first instruction on, with all its imports, and then a line.
FROM_THE_START = """
from train.foundation import interruption
interruption.begin()
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
