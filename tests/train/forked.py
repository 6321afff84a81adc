"""Commands of the program, each in a process of its own, for the price of one start.

`python -m tests.train.forked` imports what the commands import, and forks for each start that it
reads. A start is a line of JSON, and so is what it left when it ended.
"""

import atexit
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A limit for a hang, in seconds; a start takes some of them.
TIME_LIMIT = 300
# All that takes time to import. No command is among them: their flags have the same names.
IMPORTED = (
    "grain",
    "jinja2",
    "matplotlib.pyplot",
    "scipy.special",
    "sklearn.datasets",
    "tensorboardX",
    "tensorflow_datasets",
    "train.evaluation.score_files",
    "train.evaluation.set_report",
    "train.experiment",
    "train.prediction.trained",
)


@dataclass(frozen=True)
class Start:
    """A start of a command.

    Attributes:
        module: the command's.
        arguments: the command line's.
        environment: what differs from the environment of the tests.
        folder: where it is started.
    """

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = str(ROOT)


@dataclass(frozen=True)
class Ended:
    """What a command left when it ended."""

    returncode: int
    stdout: str
    stderr: str


def start(module: str, *arguments: str, **options) -> Ended:
    """Starts a command, and waits for its end; the options are those of `Start`."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(asdict(Start(module, arguments, **options))) + "\n")
    server.stdin.flush()
    return Ended(*json.loads(server.stdout.readline()))


def start_each(
    module: str, starts: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> list[Ended]:
    """Starts a command with each of the argument lists, one after another."""
    return [start(module, *arguments, environment=environment) for arguments in starts]


@functools.cache
def _server() -> subprocess.Popen[str]:
    """The process that forks; one for all tests of this one."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.train.forked"],
        cwd=ROOT,
        # Whoever starts a command says how many devices it has.
        env={**os.environ, "XLA_FLAGS": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)
    return server


def _fork(start: Start) -> Ended:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            _run(start, output.fileno(), errors.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        errors.seek(0)
        return Ended(status, output.read(), errors.read())


def _run(start: Start, output: int, errors: int) -> None:
    """Becomes the command, and does not return."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (errors, 2)):
        os.dup2(source, target)
    signal.alarm(TIME_LIMIT)
    os.environ.update(start.environment)
    os.chdir(start.folder)
    sys.argv = [start.module, *start.arguments]
    module = importlib.import_module(start.module)
    # Where a process that the command starts begins.
    sys.modules["__main__"] = module
    importlib.import_module("train.command_line").run(module.main)


def main() -> None:
    # Libraries have threads by then, none of which holds a lock that the commands need.
    warnings.filterwarnings("ignore", message=r".*os\.fork\(\)")
    for module in IMPORTED:
        importlib.import_module(module)
    for line in sys.stdin:
        ended = _fork(Start(**json.loads(line)))
        print(json.dumps(list(asdict(ended).values())), flush=True)


if __name__ == "__main__":
    main()
