"""Runs that are killed, or sent signals, at random moments, and end as an unbroken one.

Beside `tests/endurance`, which knows the worst moments, these draw the signal, the moment, the
processes that get it, and whether a second one follows.
"""

import random
import signal
import time
from contextlib import suppress

from tests.parts.program.forked import TIME_LIMIT
from tests.parts.program.program import Program, outcome

NUM_STOPS = 20
PROGRAM = Program(
    (
        "--config=configs/digits.py:role",
        "--config.num_epochs=4",
        "--config.model.name=mlp",
        "--config.model.width=8",
        "--config.dataset.batch_size=256",
        "--config.optimizer.average_decay=0.9",
        "--config.checkpoint.every_steps=2",
    ),
    compiled_quickly=True,
)
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)


def stop(workdir, draw, whole):
    """Starts the run, and stops it at some moment; False if it had come to its end before."""
    # Where it falls decides who takes it in: the start, a compilation, a step, a save, the end.
    seconds = whole * draw.random()
    number = draw.choice(SIGNALS)
    second = draw.choice((None, None, None, *SIGNALS))
    with PROGRAM.start(workdir) as running:
        # The run may end at that very moment.
        with suppress(ProcessLookupError):
            if not running.ends_within(seconds):
                running.send(number, to_group=draw.random() < 0.5)
                if second is not None and not running.ends_within(draw.random() / 10):
                    running.send(second)
        ended = running.end()
    said = f"{number.name} after {seconds:.3f} s, then {second}: {ended}"
    if ended.returncode == 0:
        # A second signal in the last moments may find the results written.
        assert ended.stderr == "", said
        return True
    assert is_an_end(ended, number, second), said
    return False


def is_an_end(ended, first, second):
    """Whether a run may end so after the signals."""
    sent = {first, second} - {None}
    for number in sent:
        # The system ends it at once: by a kill, by SIGTERM if there is nothing to save, or by the
        # second signal.
        by_system = number != signal.SIGINT or second == signal.SIGINT
        if by_system and (ended.returncode, ended.stderr) == (-number, ""):
            return True
        told = ended.stderr.startswith(f"stopped by {number.name}")
        if ended.returncode == 128 + number and told and ended.stderr.count("\n") == 1:
            return True
    # The line of the first one was printed before the second one came.
    return ended.returncode in {-number for number in sent} and ended.stderr.count("\n") == 1


def test_stops_at_random_moments_change_nothing(tmp_path, run_seed):
    draw = random.Random(run_seed)
    PROGRAM.complete(tmp_path / "unbroken")
    begun = time.monotonic()
    PROGRAM.complete(tmp_path / "timed")
    whole = time.monotonic() - begun
    assert whole < TIME_LIMIT / 5
    expected = outcome(tmp_path / "unbroken")
    finished = 0
    for index in range(NUM_STOPS):
        workdir = tmp_path / f"run-{finished}"
        if stop(workdir, draw, whole):
            finished += 1
            assert outcome(workdir) == expected, f"stop {index}"
    workdir = tmp_path / f"run-{finished}"
    PROGRAM.complete(workdir)
    assert outcome(workdir) == expected
