"""Signals and damaged checkpoints in the middle of epochs, met as users meet them."""

import signal

import pytest

from tests.train.program import Program, checkpoints, flip_a_bit, outcome, truncate

pytestmark = [pytest.mark.slow, pytest.mark.long]

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
    """Sends a signal after an epoch; the step that is said to be saved, and the lines before."""
    running.read_until(f"epoch {epoch}/")
    running.send(number, to_group=to_group)
    done = running.end()
    assert done.returncode == 128 + number, done.stderr
    *warnings, line = done.stderr.splitlines()
    assert line.startswith(f"stopped by {number.name}: saved after step ")
    assert line.endswith("the same command goes on from there")
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
        return f"going on after epoch {epoch} of 8{within}\n"

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
