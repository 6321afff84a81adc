"""Runs that are killed at any moment, get signals, or meet a full disk, and end as unbroken."""

import functools
import random
import resource
import signal
import time

import pytest

from tests.parts.program.data import small_prepared
from tests.parts.program.forked import TIME_LIMIT
from tests.parts.program.program import Program, checkpoints, outcome

STEPS_PER_EPOCH = 19
DIGITS = (
    "--config.num_epochs=8",
    "--config.model.name=mlp",
    "--config.checkpoint.every_steps=3",
)
# Between them all kinds of state: momentum, moving averages, ROLE's estimated labels, noise.
LOSSES = {
    "role": ("--config=configs/digits.py:role", "--config.optimizer.average_decay=0.9"),
    "noised_top_k_hinge": (
        "--config=configs/digits.py:noised_top_k_hinge",
        "--config.parallel=mesh",
    ),
}
NUM_KILLS = 10


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A loss to the program that trains with it, and the workdir of an unbroken run."""

    @functools.cache
    def run(loss):
        folder = tmp_path_factory.mktemp(loss)
        program = Program((*LOSSES[loss], *DIGITS))
        program.complete(folder / "unbroken")
        return program, folder / "unbroken"

    return run


@pytest.mark.parametrize("loss", LOSSES)
def test_kills_at_random_moments_change_nothing(unbroken, tmp_path, loss):
    program, whole = unbroken(loss)
    with program.start(tmp_path / "timed") as running:
        begun = time.monotonic()
        running.read_until("epoch 1/")
        starting = time.monotonic() - begun
        assert running.end().returncode == 0
        training = time.monotonic() - begun - starting
    draw = random.Random(loss)
    kills = finished = 0
    while kills < NUM_KILLS // len(LOSSES):
        workdir = tmp_path / f"run-{finished}"
        # So close that a run meets several, in steps, evaluations, saves and deletions.
        with program.start(workdir) as running:
            if running.killed_after(starting + training * draw.uniform(-0.1, 0.4)):
                kills += 1
            else:
                finished += 1
                assert outcome(workdir) == outcome(whole)
    workdir = tmp_path / f"run-{finished}"
    program.complete(workdir)
    assert outcome(workdir) == outcome(whole)


# From `tests.parts.program.interrupted`, in an order in which each comes up.
MOMENTS = (
    "before the checksums",
    "before the renaming",
    "in the deletion",
    "before the results",
)


def test_kills_at_the_worst_moments_and_signals_change_nothing(unbroken, tmp_path):
    program, whole = unbroken("role")
    workdir = tmp_path / "run"
    for moment in MOMENTS[:-1]:
        done = program.run(workdir, moment=moment)
        assert (done.returncode, done.stderr) == (-signal.SIGKILL, ""), moment
        # As if it had been in the middle of a line.
        with (workdir / "metrics.jsonl").open("a") as metrics:
            metrics.write('{"step": 1, "sp')
    for number, epoch in ((signal.SIGTERM, 2), (signal.SIGINT, 4)):
        with program.start(workdir) as running:
            running.read_until(f"epoch {epoch}/")
            running.send(number, to_group=True)
            done = running.end()
        assert done.returncode == 128 + number
        (line,) = done.stderr.splitlines()
        assert line == (
            f"stopped by {number.name}: saved after step {checkpoints(workdir)[-1]}; the same "
            "command continues from there"
        )
    assert program.run(workdir, moment=MOMENTS[-1]).returncode == -signal.SIGKILL
    done = program.complete(workdir)
    assert done.stderr == ""
    assert outcome(workdir) == outcome(whole)


def test_a_full_disk_keeps_the_last_good_checkpoint(unbroken, tmp_path):
    program, whole = unbroken("role")
    workdir = tmp_path / "run"
    with program.start(workdir) as running:
        running.read_until("epoch 2/")
        # No file may grow beyond this: a checkpoint's are several times as large, others are not.
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (200_000, 200_000))
        done = running.end()
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: cannot save a checkpoint in {workdir / 'checkpoints'}: ")
    assert checkpoints(workdir)[-1] > STEPS_PER_EPOCH
    assert "continuing after epoch" in program.complete(workdir).stdout
    assert outcome(workdir) == outcome(whole)


def test_processes_that_decode_end_with_the_run_and_change_nothing(tmp_path):
    small_prepared.plantnet(tmp_path)
    program = Program(
        (
            "--config=configs/plantnet300k.py:cross_entropy",
            f"--config.dataset.data_dir={tmp_path / 'data'}",
            "--config.num_epochs=3",
            "--config.dataset.batch_size=2",
            "--config.dataset.num_workers=1",
            "--config.model.name=mlp",
            "--config.eval.ks=(1,2)",
            "--config.select_by=top_1_accuracy",
        ),
    )
    program.complete(tmp_path / "unbroken", moment="never")
    workdir = tmp_path / "run"
    for number in (signal.SIGTERM, signal.SIGKILL):
        with program.start(workdir, moment="never") as running:
            running.read_until("/3  training: ")
            # As a scheduler sends it: to the processes that decode too.
            running.send(number, to_group=number == signal.SIGTERM)
            sent = time.monotonic()
            # They hold the run's standard output too: this returns when the last of them has ended.
            done = running.end()
            assert time.monotonic() - sent < TIME_LIMIT / 5
        if number == signal.SIGTERM:
            assert done.stderr.startswith("stopped by SIGTERM: saved after step ")
            assert done.stderr.count("\n") == 1
    program.complete(workdir, moment="never")
    assert outcome(workdir) == outcome(tmp_path / "unbroken")
