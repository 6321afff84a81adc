"""Two processes of the program: what becomes of one when the other ends, or is told to."""

import os
import signal
import time

import pytest

from tests.train.program import Program, checkpoints, outcome, start_together

# A peer's death is to be told within a minute.
MOST_SECONDS = 60
NUM_EPOCHS = 6

pytestmark = pytest.mark.long


def program(num_epochs):
    # By small batches, for the epochs to be long enough to be hit.
    flags = ("--config.dataset.batch_size=32", f"--config.num_epochs={num_epochs}")
    return Program(("--config=configs/digits.py:cross_entropy", *flags))


def complete_together(program, workdir):
    with start_together(program, workdir) as pair:
        for process in pair:
            done = process.end()
            assert done.returncode == 0, done.stderr
            # Neither is there what the libraries say of how they connect.
            assert done.stderr == ""
            assert "Gloo" not in done.stdout


@pytest.mark.parametrize("killed", [0, 1])
def test_the_death_of_a_peer_ends_the_other_within_a_minute(tmp_path, killed):
    with start_together(program(1000), tmp_path / "run") as pair:
        pair[0].read_until("epoch 1/1000")
        os.kill(pair[killed].pid, signal.SIGKILL)
        died = time.monotonic()
        done = pair[1 - killed].end()
        assert time.monotonic() - died < MOST_SECONDS
    assert done.returncode not in (0, None)


def test_a_signal_to_one_stops_both_which_go_on_as_if_nothing_was(tmp_path):
    # Some more than two: the run must not be at its end when the signal comes, on a busy machine.
    trained = program(NUM_EPOCHS)
    workdir = tmp_path / "run"
    for number, told, epoch in ((signal.SIGTERM, 1, 1), (signal.SIGINT, 0, 2)):
        with start_together(trained, workdir) as pair:
            pair[0].read_until(f"epoch {epoch}/{NUM_EPOCHS}")
            os.kill(pair[told].pid, number)
            for process in pair:
                done = process.end()
                assert done.returncode == 128 + number, done.stderr
                assert f"stopped by {number.name}: saved after step" in done.stderr
        assert epoch * 39 < checkpoints(workdir)[-1] < NUM_EPOCHS * 39
    complete_together(trained, workdir)
    complete_together(trained, tmp_path / "unbroken")
    assert outcome(workdir)["metrics"] == outcome(tmp_path / "unbroken")["metrics"]


def test_a_mistake_ends_both(tmp_path):
    with start_together(program(0), tmp_path / "run") as pair:
        for process in pair:
            done = process.end()
            assert done.returncode == 2
            assert "config.num_epochs must be" in done.stderr
    assert list(tmp_path.glob("run/*")) == []
