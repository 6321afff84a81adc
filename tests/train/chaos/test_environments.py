"""Commands in environments that are odd: variables, limits of the system, closed files.

Each is started as a user starts it, in a Python of its own: much is read when it is imported. A
command comes to the same result, or ends in one line.
"""

import codecs
import os
import resource
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from tests.compilation import QUICK_FLAGS
from tests.train import limited
from tests.train.chaos.material import COMMANDS, TIME_LIMIT, Material, why_not
from tests.train.forked import ROOT, Ended
from tests.train.limited import Change

pytestmark = [pytest.mark.slow, pytest.mark.long]

# The trials of each command.
NUMBERS = {
    "train.main of a finished run": 12,
    "train.main of an unfinished run": 6,
    "train.evaluate": 5,
    "train.predict": 8,
    "train.compare": 8,
}
# Values of variables; None to unset one. Nothing can be made in /proc, not even by root.
VARIABLES: Mapping[str, Sequence[str | None]] = {
    "JAX_PLATFORMS": ("bogus", "", "tpu", "cpu,bogus"),
    "JAX_COMPILATION_CACHE_DIR": ("/dev/null", "relative", "", "/proc/nowhere/cache", "/proc"),
    "JAX_DEBUG_NANS": ("1", "bogus"),
    "JAX_TRANSFER_GUARD": ("disallow", "bogus"),
    "XDG_CACHE_HOME": ("relative", "", "/dev/null", "/proc/nowhere", "/proc"),
    "HOME": (None, "", "/proc/nowhere", "/dev/null", "relative"),
    "TMPDIR": ("/proc/nowhere", "relative", "/dev/null", ""),
    "MPLCONFIGDIR": ("/proc/nowhere", "/dev/null", "relative"),
    "MPLBACKEND": ("bogus", "TkAgg", ""),
    "TFDS_DATA_DIR": ("", "relative", "/dev/null", "/proc/nowhere"),
    "LC_ALL": ("C", "POSIX", "xx_YY", ""),
    "PYTHONIOENCODING": ("ascii", "latin-1", "utf-16", "ascii:strict"),
    "PYTHONUTF8": ("0",),
    "PYTHONOPTIMIZE": ("1", "2"),
    "PYTHONWARNINGS": ("default", "ignore"),
    "COLUMNS": ("0", "-1", "1", "bogus", "999999"),
    "TERM": ("dumb", "", "bogus", None),
    "NO_COLOR": ("1",),
    "FORCE_COLOR": ("1",),
    "TZ": ("bogus", "", "Asia/Kathmandu"),
    "OMP_NUM_THREADS": ("0", "bogus", "1000"),
    "PATH": (None, ""),
    "CUDA_VISIBLE_DEVICES": ("bogus", "-1"),
}


def limits(kind: int, *values: int) -> list[Change]:
    return [("limit", kind, value) for value in values]


# What a process does before it becomes the command.
BEFORE: Mapping[str, Sequence[Change]] = {
    "open files": limits(resource.RLIMIT_NOFILE, 16, 32, 64, 200),
    "addresses": limits(resource.RLIMIT_AS, 600 * 2**20, 2**30, 2**32),
    "size of a file": limits(resource.RLIMIT_FSIZE, 0, 1000, 100_000),
    "stack": limits(resource.RLIMIT_STACK, 2**18, 2**20),
    "umask": [("umask", 0o777), ("umask", 0o077), ("umask", 0)],
    # As a service manager may.
    "closed": [("close", 0), ("close", 1), ("close", 2)],
}


@dataclass(frozen=True)
class Odd:
    """An environment: its variables, and what else is odd."""

    variables: Mapping[str, str | None]
    before: Mapping[str, Change]

    def __str__(self) -> str:
        return f"{dict(self.variables)}, {dict(self.before)}"


def drawn_environment(draw):
    kinds = [*VARIABLES, *BEFORE, *BEFORE]
    chosen = draw.sample(kinds, draw.choice((1, 1, 2, 3)))
    return Odd(
        {name: draw.choice(VARIABLES[name]) for name in chosen if name in VARIABLES},
        {name: draw.choice(BEFORE[name]) for name in chosen if name in BEFORE},
    )


def run(command, folder, odd):
    """Runs a command in an odd environment."""
    places = {"XLA_FLAGS": QUICK_FLAGS, "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **places, **odd.variables}
    given = {name: value for name, value in environment.items() if value is not None}
    try:
        done = subprocess.run(
            limited.command([*odd.before.values()], command.module, *command.arguments(folder)),
            # Where a relative folder of a variable is made.
            cwd=folder,
            env=given,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"no end in {TIME_LIMIT} s") from error
    return Ended(done.returncode, *map(read_output, (done.stdout, done.stderr)))


def read_output(output):
    """What was printed; in UTF-16, each ASCII character has a zero beside it."""
    plain = output.removeprefix(codecs.BOM_UTF16_LE).replace(b"\0", b"")
    return plain.decode(errors="replace")


def why_failed(name, material, odd):
    command = COMMANDS[name]
    material.renew(is_training=command.is_training)
    ended = run(command, material.at, odd)
    if "closed" in odd.before and ended.returncode in (0, 1, 2):
        # What would be looked at was not printed.
        return None if "Traceback" not in ended.stderr else ended.stderr
    return why_not(name, material, ended)


def test_commands_in_odd_environments(trials_of, tmp_path):
    trials = trials_of("commands in odd environments")
    material = Material(tmp_path)
    for name, number in NUMBERS.items():
        for index in range(number):
            odd = drawn_environment(trials.draw(f"{name} {index}"))
            trials.attempt(f"{name} {index}, {odd}", partial(why_failed, name, material, odd))
    trials.check()
