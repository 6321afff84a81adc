"""Limits of the system within which nothing can be done: one line, before anything is imported."""

import resource
import subprocess

import pytest

from tests.parts.program import limited
from tests.parts.program.forked import ROOT

LIMITS = {
    "-v": (resource.RLIMIT_AS, 400_000 * 1024, "0.41 GB of address space", "2 GB"),
    "-d": (resource.RLIMIT_DATA, 10**9, "1 GB of data", "2 GB"),
    "-n": (resource.RLIMIT_NOFILE, 8, "8 open files", "64"),
}


@pytest.mark.parametrize("option", LIMITS)
@pytest.mark.parametrize("command", ["main", "evaluate"])
def test_a_limit_that_is_too_low_is_one_line(option, command):
    kind, value, what, needed = LIMITS[option]
    done = subprocess.run(
        limited.command([("limit", kind, value)], f"train.{command}"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: this process may have {what} (`ulimit {option}`); the program needs at least "
        f"{needed}\n"
    )
