"""Two processes of the program: what becomes of one when the other ends, or is told to."""

import os
import signal
import time

import pytest

from tests.train.program import Program, checkpoints, outcome, start_together

# A peer's death is to be told within a minute.
MOST_SECONDS = 60

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


def program(folder, num_epochs):
    # On one thread each, and by small batches, for the epochs to be long enough to be hit.
    flags = ("--config.dataset.batch_size=16", f"--config.num_epochs={num_epochs}")
    return Program(folder, ("--config=configs/digits.py:cross_entropy", *flags))


@pytest.mark.parametrize("killed", [0, 1])
def test_the_death_of_a_peer_ends_the_other_within_a_minute(tmp_path, folder, killed):
    with start_together(program(folder, 1000), tmp_path / "run") as pair:
        pair[0].read_until("epoch 1/1000")
        os.kill(pair[killed].pid, signal.SIGKILL)
        died = time.monotonic()
        done = pair[1 - killed].end()
        assert time.monotonic() - died < MOST_SECONDS
    assert done.returncode not in (0, None)


@pytest.mark.parametrize(("number", "told"), [(signal.SIGTERM, 1), (signal.SIGINT, 0)])
def test_a_signal_to_one_stops_both_which_go_on_as_if_nothing_was(tmp_path, folder, number, told):
    three = program(folder, 3)
    workdir = tmp_path / "run"
    with start_together(three, workdir) as pair:
        pair[0].read_until("epoch 1/3")
        os.kill(pair[told].pid, number)
        for process in pair:
            done = process.end()
            assert done.returncode == 128 + number, done.stderr
            assert f"stopped by {number.name}: saved after step" in done.stderr
    assert checkpoints(workdir)[-1] < 3 * 78
    for where in (workdir, tmp_path / "unbroken"):
        with start_together(three, where) as pair:
            for process in pair:
                done = process.end()
                assert done.returncode == 0, done.stderr
    assert outcome(workdir)["metrics"] == outcome(tmp_path / "unbroken")["metrics"]


def test_a_mistake_ends_both(tmp_path, folder):
    with start_together(program(folder, 0), tmp_path / "run") as pair:
        for process in pair:
            done = process.end()
            assert done.returncode == 2
            assert "config.num_epochs must be" in done.stderr
    assert list(tmp_path.glob("run/*")) == []
