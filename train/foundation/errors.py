"""The errors that end a command in one line, and the guard at the door that prints the line."""

import atexit
import contextlib
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any, NoReturn

from absl import logging as absl_logging

from train.foundation.console import printable

# The exit codes of a user's mistake, of the system's errors and bugs, and of a signal, to which
# shells add its number.
_MISTAKE, _SYSTEM, _SIGNAL = 2, 1, 128
# None is a value that a field can have.
_NOTHING: Any = object()
# The signals that came. C++ makes another error of a KeyboardInterrupt that it passes on.
_came: list[int] = []


class UserError(ValueError):
    """A mistake of the user in the configuration, the files or the command line.

    Args:
        message: in one line. Without it: FIELD must be MUST_BE; got GOT.
        field: what is wrong: a field as config.dataset.path, a flag as --out, a key of a file.
        must_be: what it may be.
        got: what it is.
        but: in the place of `got`, a clause about what it is.
    """

    def __init__(
        self,
        message: str = "",
        *,
        field: str = "",
        must_be: str = "",
        got: object = _NOTHING,
        but: str = "",
    ) -> None:
        self.field = field
        if not message:
            if got is not _NOTHING:
                but = f"got {got!r}" if isinstance(got, str) else f"got {got}"
            message = f"{field} must be {must_be}" + (but and f"; {but}")
        super().__init__(message)


class Stopped(Exception):  # noqa: N818 (a signal is no error)
    """A signal ended the command; the message says what is saved."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}" + (message and f": {message}"))
        self.number = number


@contextlib.contextmanager
def explained(outcome: str) -> Iterator[None]:
    """Within this context, the line of a command that a signal ends says more.

    Args:
        outcome: what is left, and what the same command does with it.

    Raises:
        Stopped: a signal came.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        raise Stopped(_first_signal(), outcome) from error


@contextlib.contextmanager
def naming_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Has errors name the flags of a command in place of the fields that they stand for.

    Args:
        flags: a flag by its field, as `{"config.dataset.nested": "--nested"}`.
    """
    try:
        yield
    except UserError as error:
        message = str(error)
        for field, flag in flags.items():
            message = re.sub(rf"{re.escape(field)}(=True)?(?![\w.])", flag, message)
        raise UserError(message, field=flags.get(error.field, error.field)) from error


@contextlib.contextmanager
def within(before: str = "", after: str = "") -> Iterator[None]:
    """Says in errors where they are, or what helps."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{before}{error}{after}", field=error.field) from error


@contextlib.contextmanager
def errors_told(before: str, after: str = "") -> Iterator[None]:
    """Makes one line of what a library raises, which can be anything: damaged files are read."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # Some errors of `datasets` have the reason as their cause.
        reason = first_line(error.__cause__ or error)
        if isinstance(error, OSError) and error.filename:
            named = "" if str(error.filename) in before else f"{error.filename}: "
            reason = f"{named}{error.strerror}"
        raise UserError(f"{before}: {reason.removesuffix('.')}{after}") from error


def needs_package(what: str, package: str, extra: str) -> UserError:
    """The error that a package is not installed.

    Args:
        what: the field, flag or part of the program that needs it.
        package: its name.
        extra: the extra of topk_jax that has it.
    """
    return UserError(f'{what} needs the package {package}: pip install "topk_jax[{extra}]"')


def first_line(error: BaseException) -> str:
    """The first line of an error's message; the name of its type if there is no message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def guarded(command: Callable[[], int | None]) -> NoReturn:
    """Runs a command, and ends this process with its `exit_code`."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Shells have what is in the background ignore SIGINT.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        code = exit_code(command)
    except BaseException:  # A bug.
        traceback.print_exc()
        code = _SYSTEM
    for number in (signal.SIGINT, signal.SIGTERM):
        # The code stands: a signal ends what is left at once. At last Python drops its handlers.
        signal.signal(number, lambda *_: os._exit(code))
        atexit.register(signal.signal, number, signal.SIG_IGN)
    if code == 0:
        sys.exit(code)
    if processes := _several_processes():
        processes.leave()
    if decoders := sys.modules.get("multiprocessing.util"):
        decoders._run_finalizers(minpriority=0)  # Else it warns of each semaphore.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    # Threads of libraries may never end.
    os._exit(code)


def exit_code(command: Callable[[], int | None]) -> int:
    """Runs a command, and returns its exit code; what ends it early is one line, except a bug."""
    _came.clear()
    absl_logging.use_absl_handler()
    absl_logging.set_verbosity(absl_logging.WARNING)
    absl_logging.get_absl_handler().setFormatter(_Warning("warning: %(message)s"))
    try:
        code = command() or 0
        sys.stdout.flush()
    except BrokenPipeError:
        return _SIGNAL + signal.SIGPIPE
    except (Exception, KeyboardInterrupt) as error:
        if (ended := _end(error)) is None:
            raise
        code, line = ended
        sys.stderr.write(f"{printable(' '.join(line.split()))}\n")
    return code


def _end(error: BaseException) -> tuple[int, str] | None:
    """The exit code and the line of an error; None for a bug."""
    line = first_line(error)
    ended = None
    match error:
        case Stopped():
            ended = _SIGNAL + error.number, str(error)
        case _ if _came or isinstance(error, KeyboardInterrupt):
            ended = _SIGNAL + _first_signal(), str(Stopped(_first_signal()))
        case UserError():
            ended = _MISTAKE, f"error: {error}"
        case OSError():
            where = f": {error.filename}" if error.filename else ""
            ended = _SYSTEM, f"error: {error.strerror or error}{where}"
        case MemoryError():
            ended = _SYSTEM, f"error: not enough memory: {line}"
        # JAX has no types of its own for these.
        case RuntimeError() if line.startswith("RESOURCE_EXHAUSTED"):
            ended = _SYSTEM, f"error: not enough memory on the device: {line}"
        case RuntimeError() if line.startswith("Unable to initialize backend"):
            ended = _MISTAKE, f"error: {line}"
        case _ if (processes := _several_processes()) and processes.is_of_lost_peer(error):
            lost = "another process ended, whose own message says why, or cannot be reached"
            ended = _SYSTEM, f"error: {lost}: {line}"
    return ended


def _several_processes() -> ModuleType | None:
    """The module `processes` if this process has connected to others, else None."""
    processes = sys.modules.get("train.devices.processes")
    return processes if processes is not None and processes.are_several() else None


def _first_signal() -> int:
    return _came[0] if _came else signal.SIGINT


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Raises KeyboardInterrupt, which no handler of errors takes; a second signal ends at once."""
    _came.append(number)
    signal.signal(number, signal.SIG_DFL)
    while frame is not None:
        if "importlib._bootstrap" in frame.f_code.co_filename:
            # An exception while a library in C++ is imported can end the process by SIGSEGV.
            os.write(2, f"{Stopped(number)}\n".encode())
            os._exit(_SIGNAL + number)
        frame = frame.f_back
    raise KeyboardInterrupt


class _Warning(logging.Formatter):
    """On one line, without what a terminal obeys."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))
