"""Many starts of one command for the price of one: `python -m tests.train.forked MODULE`.

Reads a JSON list of argument lists and prints one of `[exit code, output, errors]`. The module is
imported once, and each start is a fork made before any device is touched.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A limit for a hang; a start takes some seconds.
TIME_LIMIT = 300


@dataclass(frozen=True)
class Ended:
    """What a command left when it ended."""

    returncode: int
    stdout: str
    stderr: str


def start_each(
    module: str, starts: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> list[Ended]:
    """Starts a command with each of the argument lists, one after another."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.forked", module],
        input=json.dumps([list(arguments) for arguments in starts]),
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Ended(*result) for result in json.loads(done.stdout)]


def _fork(command: Callable[[], None], module: str, arguments: list[str]) -> list:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            sys.argv = [module, *arguments]
            command()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        errors.seek(0)
        return [status, output.read(), errors.read()]


def main() -> None:
    # Libraries have threads by then, none of which holds a lock that the commands need.
    warnings.filterwarnings("ignore", message=r".*os\.fork\(\)")
    module = importlib.import_module(sys.argv[1])
    command_line = importlib.import_module("train.command_line")
    starts = json.load(sys.stdin)
    results = [_fork(lambda: command_line.run(module.main), sys.argv[1], one) for one in starts]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
