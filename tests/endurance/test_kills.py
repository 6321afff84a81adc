"""Runs that are killed at any moment, or meet a full disk or other devices, and end as unbroken."""

import functools
import json
import random
import resource
import signal
import time

import pytest

from tests.parts.program.data import small_prepared
from tests.parts.program.forked import TIME_LIMIT
from tests.parts.program.program import Program, checkpoints, outcome

STEPS_PER_EPOCH = 19
NUM_KILLS = 24
DIGITS = (
    "--config.num_epochs=8",
    "--config.model.name=mlp",
    "--config.checkpoint.every_steps=3",
)
# Between them all kinds of state: momentum, moving averages, ROLE's estimated labels, two heads.
LOSSES = {
    "role": ("--config=configs/digits.py:role", "--config.optimizer.average_decay=0.9"),
    "average_k": ("--config=configs/digits.py:average_k", "--config.parallel=shard_map"),
}


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


def timed(running):
    """The seconds up to the first epoch's end, and from there to the end of the run."""
    start = time.monotonic()
    running.read_until("epoch 1/")
    first_epoch = time.monotonic()
    assert running.end().returncode == 0
    return first_epoch - start, time.monotonic() - first_epoch


@pytest.mark.parametrize("loss", LOSSES)
def test_kills_at_random_moments_change_nothing(unbroken, tmp_path, loss):
    program, whole = unbroken(loss)
    # How long it takes to the end of the first epoch, and from there, here and now.
    with program.start(tmp_path / "timed") as running:
        starting, training = timed(running)
    draw = random.Random(loss)
    kills = finished = 0
    while kills < NUM_KILLS // len(LOSSES):
        workdir = tmp_path / f"run-{finished}"
        # One in six falls before the first step or in its compilation; the others are so close that
        # a run meets several, in steps, evaluations, saves and deletions.
        early = draw.random() < 1 / 6
        seconds = starting * draw.random() if early else starting + training * draw.random() / 3
        with program.start(workdir, moment="in a compilation" if early else None) as running:
            if running.killed_after(seconds):
                kills += 1
            else:
                finished += 1
                assert outcome(workdir) == outcome(whole)
    workdir = tmp_path / f"run-{finished}"
    program.complete(workdir)
    assert outcome(workdir) == outcome(whole)


# From `tests.parts.program.interrupted`, in an order in which each comes up: half a line is
# dropped by the next start, and a deletion needs checkpoints.
MOMENTS = (
    "before the configuration",
    "in a line of metrics",
    "before old metrics are dropped",
    "before the checksums",
    "before the renaming",
    "before the deletion",
    "in the deletion",
    "before the curves",
    "before the results",
)


def test_kills_at_the_worst_moments_change_nothing(unbroken, tmp_path):
    program, whole = unbroken("role")
    workdir = tmp_path / "run"
    for moment in MOMENTS:
        done = program.run(workdir, moment=moment)
        assert (done.returncode, done.stderr) == (-signal.SIGKILL, ""), moment
        assert not (workdir / "results.json").exists()
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
    kept = checkpoints(workdir)
    assert kept[-1] > STEPS_PER_EPOCH
    done = program.complete(workdir)
    assert "continuing after epoch" in done.stdout
    assert done.stderr == ""
    assert outcome(workdir) == outcome(whole)


def test_other_numbers_of_devices_go_on(unbroken, tmp_path):
    program, whole = unbroken("role")
    workdir = tmp_path / "run"
    for devices, epoch in ((8, 2), (1, 5)):
        with program.start(workdir, devices=devices) as running:
            running.read_until(f"epoch {epoch}/")
            running.send(signal.SIGKILL)
            assert running.end().stderr == ""
    done = program.complete(workdir)
    assert "continuing after epoch" in done.stdout
    results, expected = (
        json.loads((path / "results.json").read_text()) for path in (workdir, whole)
    )
    for split in ("validation", "test"):
        # Sums over devices are rounded in another order. That moves the loss by 1e-8, or by up to
        # 3e-4 (one of three seeds) after the input of a rectifier has changed its sign.
        assert results[split]["loss"] == pytest.approx(expected[split]["loss"], rel=5e-3)


def test_minutes_save_in_the_middle_of_epochs_too(unbroken, tmp_path):
    program, whole = unbroken("role")
    workdir = tmp_path / "run"
    # Shorter than a step; never by steps.
    often = ("--config.checkpoint.every_steps=100000", "--config.checkpoint.every_minutes=1e-6")
    with program.start(workdir, *often) as running:
        running.read_until("epoch 3/")
        running.send(signal.SIGKILL)
        running.end()
    assert any(step % STEPS_PER_EPOCH for step in checkpoints(workdir))
    program.complete(workdir, *often)
    assert outcome(workdir) == outcome(whole)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    """The program on photographs that a process decodes."""
    folder = tmp_path_factory.mktemp("streamed")
    small_prepared.plantnet(folder)
    return Program(
        (
            "--config=configs/plantnet300k.py:cross_entropy",
            f"--config.dataset.data_dir={folder / 'data'}",
            "--config.num_epochs=3",
            "--config.dataset.batch_size=2",
            "--config.dataset.num_workers=1",
            "--config.model.name=mlp",
            "--config.eval.ks=(1,2)",
            "--config.select_by=top_1_accuracy",
        ),
    )


def test_signals_to_a_run_with_processes_that_decode_change_nothing(streamed, tmp_path):
    streamed.complete(tmp_path / "unbroken", moment="never")
    workdir = tmp_path / "run"
    for number in (signal.SIGTERM, signal.SIGINT):
        with streamed.start(workdir, moment="never") as running:
            running.read_until("/3  training: ")
            # As a terminal or a scheduler sends it: to the processes that decode too.
            running.send(number, to_group=True)
            done = running.end()
        assert done.returncode == 128 + number, done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"stopped by {number.name}: saved after step ")
    done = streamed.complete(workdir, moment="never")
    assert done.stderr == ""
    assert outcome(workdir) == outcome(tmp_path / "unbroken")


def test_processes_that_decode_end_with_a_killed_run(streamed, tmp_path):
    with streamed.start(tmp_path / "run", moment="never") as running:
        running.read_until("/3  training: ")
        running.send(signal.SIGKILL)
        killed = time.monotonic()
        # They hold the run's standard output too: this returns when the last of them has ended,
        # or when all are killed at the limit for a hang.
        running.end()
        assert time.monotonic() - killed < TIME_LIMIT / 5
