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


def complete_together(program, workdir):
    with start_together(program, workdir) as pair:
        for process in pair:
            done = process.end()
            assert done.returncode == 0, done.stderr
            # Nor are there messages of the libraries about their connections.
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
    assert done.returncode in (1, -signal.SIGABRT)
    # What aborts in JAX has its messages.
    if done.returncode == 1:
        assert "error: another process ended, whose own message says why, or" in done.stderr


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


AT_END = (
    "stopped by SIGTERM: saved after step 39, at the end of the training; the same command "
    "continues from there\n"
)


@pytest.mark.parametrize(
    ("moments", "line"),
    [
        (("SIGTERM before the first step",) * 2, "stopped by SIGTERM\n"),
        # The run has one epoch. The other process learns of the signal after it.
        ((None, "SIGTERM in a validation"), AT_END),
        (("SIGTERM in the evaluation after training",) * 2, AT_END),
    ],
)
def test_signals_outside_of_steps_stop_both_which_go_on(tmp_path, moments, line):
    workdir = tmp_path / "run"
    with start_together(program(1), workdir, moments=moments) as pair:
        ended = [process.end() for process in pair]
    assert [(done.returncode, done.stderr) for done in ended] == [(143, line)] * 2
    assert not (workdir / "results.json").exists()
    complete_together(program(1), workdir)


def test_both_refuse_what_one_cannot_read_or_leave_it_out(tmp_path):
    pictures.write_classes(tmp_path / "photos", ("ash", "birch", "cedar", "dogwood", "elm"), 12)
    (tmp_path / "photos" / "ash" / "0.png").write_bytes(b"no image")
    (tmp_path / "photos" / "elm" / "12.png").symlink_to(tmp_path / "gone.png")
    fields = ("dataset.batch_size=8", "eval.ks=(1,3)", "model.name=mlp", "num_epochs=1")
    given = [f"--config.{field}" for field in (f"dataset.path={tmp_path}/photos", *fields)]
    given.append("--config.dataset.num_workers=1")
    refused = Program(("--config=configs/images.py:cross_entropy", *given))
    with start_together(refused, tmp_path / "run") as pair:
        for process in pair:
            done = process.end()
            assert done.returncode == 2, done.stderr
            assert "cannot be read: ash/0.png, elm/12.png; " in done.stderr
    assert list(tmp_path.glob("run/*")) == []
    skipping = (*refused.arguments, "--config.dataset.skip_unreadable=True")
    with start_together(Program(skipping), tmp_path / "run") as pair:
        for process in pair:
            done = process.end()
            assert done.returncode == 0, done.stderr
    results, seen = (
        json.loads((tmp_path / "run" / f"{name}.json").read_text())
        for name in ("results", "seen_images")
    )
    assert results["left_out"] == len(seen["unreadable"]) == 2


def refused_by_both(*of_pair, **given):
    """The line with which both processes end."""
    with start_together(*of_pair, **given) as pair:
        ended = [process.end() for process in pair]
    assert [done.returncode for done in ended] == [2, 2], ended
    (line,) = {done.stderr for done in ended}
    return line


def test_what_differs_between_two_is_refused_by_both(tmp_path):
    trained, workdir = program(1), tmp_path / "run"
    apart = refused_by_both(trained, workdir, other_workdir=tmp_path / "other")
    assert "--workdir, a folder that all share, must be the same in all processes" in apart
    assert not (tmp_path / "other").exists()
    assert [*workdir.iterdir()] == []
    complete_together(trained, workdir)
    # One process could see by itself that it does not fit the run.
    seed = refused_by_both(trained, workdir, of_second=("--config.seed=5",))
    longer = refused_by_both(
        Program((*trained.arguments, "--config.num_epochs=2")), workdir, of_second=("--extend",)
    )
    assert seed == longer
    assert "the configuration, with --extend, must be the same in all processes" in seed


def test_a_mistake_ends_both(tmp_path):
    with start_together(program(0), tmp_path / "run") as pair:
        for process in pair:
            done = process.end()
            assert done.returncode == 2
            assert "config.num_epochs must be" in done.stderr
    assert list(tmp_path.glob("run/*")) == []
