"""Commands of the program, each in a process of its own, for the price of one start.

`python -m tests.parts.program.forked` imports what the commands import, and forks for each start
that it is asked for. A start is a line of JSON, which comes through a socket together with the
files that the command writes to.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import jax

import train
from tests.compilation import INSTRUCTION_SET, QUICK_FLAGS, share_contexts

ROOT = Path(__file__).parents[3]
# A limit for a hang, in seconds; a start takes some of them.
TIME_LIMIT = 300
# A command handles them as soon as it has started; until then code of the tests runs.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What takes time to import, beside the rooms of the program.
IMPORTED = (
    "jinja2",
    "matplotlib.pyplot",
    "ml_collections",
    "scipy.special",
    "sklearn.datasets",
    "tensorboardX",
    "tensorflow_datasets",
    "train.run.experiment",
)
# They import `datasets`, which takes seconds, and looks at the environment when it is imported.
NOT_IMPORTED = frozenset({"train.data.sources.huggingface"})


@dataclass(frozen=True)
class Start:
    """A start of a command.

    Attributes:
        module: the command's.
        arguments: the command line's.
        environment: what differs from the environment of the tests.
        folder: where it is started.
        compiled_quickly: whether it compiles as the tests do.
        memory: the bytes that it may write to; None for no limit.
    """

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = str(ROOT)
    compiled_quickly: bool = True
    memory: int | None = None


@dataclass(frozen=True)
class Ended:
    """What a command left when it ended."""

    returncode: int
    stdout: str
    stderr: str


class Process:
    """A command that was started: the leader of a process group, as one that a terminal starts."""

    def __init__(self, start: Start, output: int, errors: int) -> None:
        """Starts the command, which writes to the two files."""
        connection = _server()
        self._status, status = os.pipe()
        line = (json.dumps(asdict(start)) + "\n").encode()
        socket.send_fds(connection, [line], [output, errors, status])
        os.close(status)
        self.pid = int(connection.recv(_MOST_BYTES))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int | None:
        """Returns the exit code, or None if the command still runs after the seconds."""
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(os.read(self._status, _MOST_BYTES))
            os.close(self._status)
        return self.returncode


def limit(kind: int, wanted: int) -> None:
    """Limits what this process may have of a resource; a limit that is there already stays."""
    _, most = resource.getrlimit(kind)
    allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(kind, (allowed, most))


class Started:
    """A command that was started, and what it prints; the options are the same as `Start`'s."""

    def __init__(self, module: str, *arguments: str, **options) -> None:
        self._what = f"{module} {arguments}"
        with contextlib.ExitStack() as files:
            self._output = files.enter_context(tempfile.TemporaryFile("w+"))
            self._errors = files.enter_context(tempfile.TemporaryFile("w+"))
            start = Start(module, arguments, **options)
            self._process = Process(start, self._output.fileno(), self._errors.fileno())
            # Not closed here, but at the end of the command.
            self._files = files.pop_all()

    def ends_within(self, seconds: float) -> bool:
        """Whether the command comes to its end before the seconds are over."""
        return self._process.wait(seconds) is not None

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def printed(self) -> str:
        """What the command has written to standard output so far."""
        return os.pread(self._output.fileno(), _MOST_BYTES, 0).decode()

    def kill(self) -> None:
        """Kills the command and what it has started; it has not been waited for yet."""
        os.killpg(self._process.pid, signal.SIGKILL)

    def end(self, time_limit: float = TIME_LIMIT) -> Ended:
        """Waits for the end."""
        with self._files:
            returncode = self._process.wait(time_limit)
            if returncode is None:
                self.kill()
                raise TimeoutError(f"{self._what} still runs after {time_limit} s")
            self._output.seek(0)
            self._errors.seek(0)
            return Ended(returncode, self._output.read(), self._errors.read())


def start(module: str, *arguments: str, time_limit: float = TIME_LIMIT, **options) -> Ended:
    """Starts a command, and waits for its end; the other options are the same as `Start`'s."""
    return Started(module, *arguments, **options).end(time_limit)


def start_each(
    module: str, starts: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> list[Ended]:
    """Starts a command with each of the argument lists, one after another."""
    return [start(module, *arguments, environment=environment) for arguments in starts]


def check_mistakes(
    module: str,
    mistakes: Sequence[tuple[Sequence[str], str]],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Arguments with a mistake end a command with exit code 2, and the message in one line."""
    ended = start_each(module, [arguments for arguments, _ in mistakes], environment or {})
    for (arguments, message), one in zip(mistakes, ended, strict=True):
        assert one.returncode == 2, (arguments, one)
        assert one.stderr.startswith("error: "), arguments
        assert message in one.stderr, (arguments, one.stderr)
        assert len(one.stderr.splitlines()) == 1, arguments
        assert one.stdout == "", arguments


_MOST_BYTES = 2**16


@functools.cache
def _server() -> socket.socket:
    """A connection to the process that forks; one for all tests."""
    ours, its = socket.socketpair()
    data = tempfile.TemporaryDirectory()
    with its:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.parts.program.forked"],
            cwd=ROOT,
            # The caller that starts a command sets its number of devices.
            env={
                **os.environ,
                "XLA_FLAGS": INSTRUCTION_SET,
                "TFDS_DATA_DIR": data.name,
            },
            stdin=its.fileno(),
        )

    def end() -> None:
        ours.close()
        server.wait()
        data.cleanup()

    atexit.register(end)
    return ours


def _fork(start: Start, connection: socket.socket, files: Sequence[int]) -> None:
    """Starts a command in a grandchild; the child writes its number, waits for it and ends."""
    output, errors, status = files
    if os.fork() != 0:
        for file in files:
            os.close(file)
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = os.fork()
    if child == 0:
        connection.close()
        os.close(status)
        _run(start, output, errors)
    # Who reads what the command prints waits for the last process that could write it.
    os.close(output)
    os.close(errors)
    connection.send(str(child).encode())
    connection.close()
    os.write(status, str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    os._exit(0)


def _run(start: Start, output: int, errors: int) -> None:
    """Becomes the command, and does not return."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (errors, 2)):
        os.dup2(source, target)
        os.close(source)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    os.environ.update(start.environment)
    _configure_jax(start.environment)
    if start.memory is not None:
        limit(resource.RLIMIT_DATA, start.memory)
    os.environ["XLA_FLAGS"] += f" {QUICK_FLAGS if start.compiled_quickly else INSTRUCTION_SET}"
    os.chdir(start.folder)
    sys.argv = [start.module, *start.arguments]
    module = importlib.import_module(start.module)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # Processes that the command starts import this module first.
    sys.modules["__main__"] = module
    command = importlib.import_module("train.foundation.command")
    code = _exit_code(functools.partial(command.run, module.main))
    # What follows in Python is to free every object. It would take most of the time of a start:
    # each page that is shared with the server is copied for it.
    os._exit(code)


def _configure_jax(environment: Mapping[str, str]) -> None:
    """Has JAX take the variables that are its settings, which it read when it was imported."""
    for name, value in environment.items():
        setting = name.lower()
        if setting.startswith("jax_"):
            is_switch = isinstance(getattr(jax.config, setting), bool)
            jax.config.update(setting, value == "1" if is_switch else value)


def _exit_code(run: Callable[[], None]) -> int:
    """Runs to the end as Python does: all threads have ended, and nothing is left to be done."""
    try:
        try:
            run()
        finally:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _modules_of_rooms() -> Iterator[str]:
    """Not the commands, at the top: their flags have the same names."""
    for room in pkgutil.iter_modules(train.__path__, "train."):
        if room.ispkg:
            package = importlib.import_module(room.name)
            found = pkgutil.walk_packages(package.__path__, f"{room.name}.")
            yield from (module.name for module in found if module.name not in NOT_IMPORTED)


def main() -> None:
    # Libraries have threads by then, but they do not hold a lock that the commands need.
    warnings.filterwarnings("ignore", message=r".*os\.fork\(\)")
    for module in (*IMPORTED, *_modules_of_rooms()):
        importlib.import_module(module)
    share_contexts()
    # A collection of garbage in a child would write to all pages that it shares with this process:
    # most of a second.
    gc.freeze()
    connection = socket.socket(fileno=os.dup(0))
    while True:
        line, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
        if not line:
            return
        # The arguments may be many.
        while not line.endswith(b"\n"):
            line += connection.recv(_MOST_BYTES)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        _fork(Start(**json.loads(line)), connection, files)


if __name__ == "__main__":
    main()
