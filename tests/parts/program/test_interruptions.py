"""A second signal, divergence and other configurations, met as users meet them."""

import re
import signal

import pytest

from tests.parts.program.program import Program, checkpoints

STEPS_PER_EPOCH = 19
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


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_run_at_once(tmp_path, second):
    with PROGRAM.start(tmp_path / "run", moment="held at the second save") as running:
        running.read_until("held at a save")
        running.send(signal.SIGTERM)
        running.read_until("took a signal in")
        running.send(second)
        done = running.end()
    assert (done.returncode, done.stderr) == (128 + second, f"stopped by {second.name}\n")


def test_a_signal_in_the_evaluation_after_training_is_told_and_the_run_continues(tmp_path):
    workdir, one_epoch = tmp_path / "run", "--config.num_epochs=1"
    done = PROGRAM.run(workdir, one_epoch, moment="SIGTERM in the evaluation after training")
    assert (done.returncode, len(done.stderr.splitlines())) == (128 + signal.SIGTERM, 1)
    assert not (workdir / "results.json").exists()
    done = PROGRAM.complete(workdir, one_epoch)
    assert "continuing after epoch 1 of 1\n" in done.stdout
    assert (workdir / "results.json").exists()


# Large constants in the step: it is compiled again for each.
RATES = {
    # The first step's own loss and gradient are finite, and nothing after them is.
    "at once": ("--config.optimizer.learning_rate=1e20", 1),
    "later": (
        "--config.optimizer.decay_epochs=(1,)",
        "--config.optimizer.decay_factor=1e25",
        STEPS_PER_EPOCH + 1,
    ),
}


@pytest.mark.parametrize("when", RATES)
def test_divergence_is_told_and_the_last_good_checkpoint_kept(tmp_path, when):
    *rate, bad_step = RATES[when]
    workdir = tmp_path / "run"
    # A checkpoint after every step: none may have what the bad one made.
    every_step = "--config.checkpoint.every_steps=1"
    done = PROGRAM.run(workdir, every_step, *rate)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"at step {bad_step} " in line
    # The first examples of the batch.
    size, numbers = re.findall(r"with (\d+) training examples, such as (.*)", line)[0]
    assert (size, len(set(map(int, numbers.split(", "))))) == ("64", 3)
    if bad_step == 1:
        return
    assert checkpoints(workdir)[-1] == bad_step - 1
    # It is complete and has finite numbers; and the same command comes to the same end.
    done = PROGRAM.run(workdir, every_step, *rate)
    assert (done.returncode, done.stderr) == (2, f"{line}\n")
    assert "continuing after epoch 1 of 8\n" in done.stdout
