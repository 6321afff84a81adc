"""Two processes of the program: what one does when the other ends, or gets a signal."""

import json
import os
import signal
import time

import pytest

from tests.parts.program.data import pictures
from tests.parts.program.program import Program, checkpoints, outcome, start_together

# A peer's death must be reported within a minute.
MOST_SECONDS = 60
NUM_EPOCHS = 6


def program(num_epochs):
    # By small batches, for the epochs to be long enough to be hit.
    flags = ("--config.dataset.batch_size=32", f"--config.num_epochs={num_epochs}")
    return Program(("--config=configs/digits.py:cross_entropy", *flags))


def end_together(*of_pair, code, **given):
    """The last lines of two processes that end with one code."""
    with start_together(*of_pair, **given) as pair:
        ended = [process.end() for process in pair]
    assert [done.returncode for done in ended] == [code] * 2, ended
    return [done.stderr for done in ended]


@pytest.mark.parametrize("killed", [0, 1])
def test_the_death_of_a_peer_ends_the_other_within_a_minute(tmp_path, killed):
    with start_together(program(1000), tmp_path / "run") as pair:
        pair[0].read_until("epoch 1/1000")
        os.kill(pair[killed].pid, signal.SIGKILL)
        died = time.monotonic()
        done = pair[1 - killed].end()
        assert time.monotonic() - died < MOST_SECONDS
    assert done.returncode in (1, -signal.SIGABRT)
    # What aborts in JAX has its messages.
    if done.returncode == 1:
        assert "error: another process ended, whose own message says why, or" in done.stderr


def test_a_signal_to_one_stops_both_which_go_on_as_if_nothing_was(tmp_path):
    # Some more than two: the run must not be at its end when the signal comes, on a busy machine.
    trained, workdir = program(NUM_EPOCHS), tmp_path / "run"
    for number, told, epoch in ((signal.SIGTERM, 1, 1), (signal.SIGINT, 0, 2)):
        with start_together(trained, workdir) as pair:
            pair[0].read_until(f"epoch {epoch}/{NUM_EPOCHS}")
            os.kill(pair[told].pid, number)
            for process in pair:
                done = process.end()
                assert done.returncode == 128 + number, done.stderr
                assert f"stopped by {number.name}: saved after step" in done.stderr
        assert epoch * 39 < checkpoints(workdir)[-1] < NUM_EPOCHS * 39
    for folder in (workdir, tmp_path / "unbroken"):
        assert end_together(trained, folder, code=0) == ["", ""]
    assert outcome(workdir)["metrics"] == outcome(tmp_path / "unbroken")["metrics"]


def test_both_refuse_what_one_cannot_read_or_leave_it_out(tmp_path):
    pictures.write_classes(tmp_path / "photos", ("ash", "birch", "cedar", "dogwood", "elm"), 12)
    (tmp_path / "photos" / "ash" / "0.png").write_bytes(b"no image")
    (tmp_path / "photos" / "elm" / "12.png").symlink_to(tmp_path / "gone.png")
    fields = ("dataset.batch_size=8", "eval.ks=(1,3)", "model.name=mlp", "num_epochs=1")
    fields = (f"dataset.path={tmp_path}/photos", "dataset.num_workers=1", *fields)
    given = ("--config=configs/images.py:cross_entropy", *(f"--config.{field}" for field in fields))
    for line in end_together(Program(given), tmp_path / "run", code=2):
        assert line.startswith("error: 2 of 61 images of config.dataset.path ")
        assert "also elm/12.png; " in line
    assert list(tmp_path.glob("run/*")) == []
    skipping = Program((*given, "--config.dataset.skip_unreadable=True"))
    end_together(skipping, tmp_path / "run", code=0)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["left_out"] == 2


def test_what_differs_between_two_is_refused_by_both(tmp_path):
    lines = end_together(program(1), tmp_path / "run", code=2, of_second=("--config.seed=5",))
    assert "the configuration must be the same in all processes" in lines[0]
    assert lines[0] == lines[1]
    assert list(tmp_path.glob("run/*")) == []
