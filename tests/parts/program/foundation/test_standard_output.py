"""Where standard output fails, every command ends in the same way."""

import os
import subprocess
import sys

import pytest

from tests.parts.program.forked import ROOT, TIME_LIMIT
from tests.parts.program.foundation.test_interruption import run

ENDS = {
    "a full disk": (1, "error: No space left on device: standard output\n"),
    "no reader": (141, ""),
}
# What a command prints with.
PRINTS = {
    "with print": "print('printed')",
    "with rich": "from train.foundation.console import show_line; show_line('printed')",
    "lines of JSON": """
from train.prediction import json_lines
with json_lines.writing(None) as output:
    output.write(b"printed")
""",
    "before a mistake": "print('printed', flush=True)\nraise UserError('is not reached')",
}


def into(target):
    """What starts a command so that its standard output fails."""
    if target == "a full disk":
        return ("sh", "-c", 'exec "$@" >/dev/full', "sh")
    return ("bash", "-c", 'exec {pipe}> >(:); wait $!; exec "$@" >&$pipe', "bash")


@pytest.mark.parametrize("target", ENDS)
@pytest.mark.parametrize("how", PRINTS)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_failure_ends_a_command(how, target, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    code, printed, errors = run(PRINTS[how], started_by=into(target), env=environment)
    assert (code, errors, printed) == (*ENDS[target], "")


def test_another_broken_pipe_is_an_error():
    assert run("raise BrokenPipeError(32, 'Broken pipe', 'a')") == (
        1,
        "",
        "error: Broken pipe: a\n",
    )


@pytest.mark.parametrize("target", ENDS)
@pytest.mark.parametrize(
    "arguments",
    [("train",), ("train.figures", "--help"), ("topk_jax._console", "--help")],
    ids=" ".join,
)
def test_a_failure_ends_help(arguments, target):
    done = subprocess.run(
        [*into(target), sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (*ENDS[target], "")
