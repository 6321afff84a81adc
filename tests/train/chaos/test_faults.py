"""Calls of the system that fail in a command: a disk that is full, broken, or slow to answer.

The command comes to the same result or ends in one line. Afterwards the same command, without a
fault, comes to the result that it has always had.
"""

import json
from functools import partial

import pytest

from tests.train.chaos import faulted, preloaded
from tests.train.chaos.material import COMMANDS, Material, Within, why_not
from tests.train.chaos.preloaded import CALLS, HALF, Fault

pytestmark = [pytest.mark.slow, pytest.mark.long]

# The trials of each command.
NUMBERS = {
    "train.main of a finished run": 12,
    "train.main of an unfinished run": 20,
    "train.evaluate": 8,
    "train.predict": 8,
    "train.compare": 12,
    "train.tables": 4,
}


class Faults:
    """Commands of one run in which calls fail."""

    def __init__(self, folder):
        self.material = Material(folder)
        self._library = preloaded.build(folder)
        self._counts = folder / "counts"
        self.num_errors = 0
        # How many calls each command makes if none fails.
        none = Fault("open", 0, lasting=False, error=HALF)
        self.counts = {name: self._count(name, none) for name in COMMANDS}

    def run(self, name, fault):
        command = COMMANDS[name]
        self._counts.unlink(missing_ok=True)
        told = faulted.environment(command.module, self.material.at, fault, self._counts)
        within = Within("tests.train.chaos.faulted", told, self._library)
        return command.run(self.material.at, within)

    def _count(self, name, none):
        self.material.renew(is_training=COMMANDS[name].is_training)
        assert why_not(name, self.material, self.run(name, none)) is None
        return json.loads(self._counts.read_text())


def drawn_fault(counts, draw):
    """One of the calls that a command makes, and how it fails."""
    call = draw.choice([call for call, number in counts.items() if number])
    return Fault(
        call, draw.randint(1, counts[call]), draw.random() < 0.5, error=draw.choice(CALLS[call])
    )


def why_failed(faults, name, fault):
    """Why a command may not end so with a fault, or afterwards without; None if it may."""
    material, command = faults.material, COMMANDS[name]
    material.renew(is_training=command.is_training)
    ended = faults.run(name, fault)
    if (wrong := why_not(name, material, ended)) is not None:
        return wrong
    faults.num_errors += ended.returncode != 0
    if fault.error == HALF and ended.returncode != 0:
        return f"no call failed, and it ended with {ended}"
    again = command.run(material.at)
    if (wrong := why_not(name, material, again)) is not None or again.returncode != 0:
        return f"after {ended}, without a fault: {wrong or again}"
    return None


def test_commands_and_failing_calls(trials_of, tmp_path):
    trials = trials_of("commands and failing calls of the system")
    faults = Faults(tmp_path)
    # Otherwise nothing is tried.
    for call in ("open", "read", "write", "rename", "sync"):
        assert faults.counts["train.main of an unfinished run"][call] > 0, faults.counts
    for name, number in NUMBERS.items():
        for index in range(number):
            fault = drawn_fault(faults.counts[name], trials.draw(f"{name} {index}"))
            trials.attempt(f"{name} {index}, {fault}", partial(why_failed, faults, name, fault))
    trials.check()
    # Many a fault is of a file that a command can do without.
    assert trials.number / 10 < faults.num_errors
