"""Ctrl-C and SIGTERM at any moment of a command: one line, and the exit code that shells give.

SIGTERM by itself ends a process without a line. At Ctrl-C Python raises a KeyboardInterrupt
wherever the main thread is. That is not enough:

- in an import it can end in a segmentation fault or in another error, because extension modules
  cannot be initialized by half;
- in a callback of the garbage collector it is printed and lost, and the program continues;
- in a long call of C++, such as a compilation, it waits for the end of the call;
- at the exit, a thread that never ends makes the process wait for ever.

Both signals therefore raise a KeyboardInterrupt only while a command runs, which may have files to
put in order. At all other moments the process ends at once. It also ends at once after `_SECONDS`
or if the same signal comes again, and a thread sees to that. An end at once damages nothing: files
are replaced as a whole, and checkpoints are renamed when they are complete.
"""

import _thread
import atexit
import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import NoReturn

from train.foundation.errors import InterruptedRunError

# The signals, and how Python handles each in a process that does not ignore it.
_HANDLED = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
# Plus the number of the signal: the exit code that shells give.
SIGNAL = 128
# The time that a command has to put its files in order; see `allow_time` for what may take longer.
_SECONDS = 10.0
# How often the thread looks at the clock.
_PAUSE = 0.1
# The number of standard error; the other standard streams have smaller numbers.
_LAST_STREAM = 2
# A progress bar hides the cursor.
_SHOW_CURSOR = b"\x1b[?25h"
_IMPORT = "<frozen importlib._bootstrap"
# The message of an OSError that Python makes; nothing else marks it.
_IGNORED = "ignored due to race condition"


class _State:
    """What the handler and the thread know of the command.

    Attributes:
        begun: whether this is the process of a command, which ends here.
        number: the signal that ends the command.
        unwinds: whether a KeyboardInterrupt is raised.
        raised: whether one was.
        patience: the number of contexts of `allow_time` that are open.
        code: the exit code of a command whose line is printed.
        ending: held by what ends the process, so that only one line is printed.
    """

    def __init__(self) -> None:
        self.begun = False
        self.number = signal.SIGINT
        self.unwinds = False
        self.raised = False
        self.patience = 0
        self.code: int | None = None
        self.ending = _thread.allocate_lock()


_state = _State()


def begin() -> None:
    """Handles both signals from now on; the main thread of a command calls it as early as possible.

    A process that ignores one keeps ignoring it: shells start background processes so.

    Standard streams that are closed become the null device, here because nothing is open yet.
    """
    _open_closed_streams()
    if _state.begun:
        return
    _state.begun = True
    _end_after_tracebacks()
    for number, usual in _HANDLED.items():
        if signal.getsignal(number) is usual:
            signal.signal(number, _receive)
            # The first functions that are registered are the last ones at the exit. After them
            # Python would put back the signal's own handling, which ends the process without a
            # line.
            atexit.register(signal.signal, number, signal.SIG_IGN)
    _filter_what_python_prints()
    # Python writes the number of each signal to it at once, whatever the main thread does.
    received, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    _thread.start_new_thread(_watch, (received,))


def raised() -> bool:
    """Whether a signal has raised a KeyboardInterrupt, which may have become another error."""
    return _state.raised


def message() -> str:
    """The line of a command that the signal ends."""
    return f"stopped by {_state.number.name}"


def code() -> int:
    """The exit code of a command that the signal ends."""
    return SIGNAL + _state.number


def keep(code: int) -> None:
    """A signal that comes from now on prints no line and changes no exit code."""
    _state.code = code


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """While a command runs in this context, the signals raise a KeyboardInterrupt."""
    _state.unwinds = True
    try:
        yield
    finally:
        _state.unwinds = False


@contextlib.contextmanager
def explained(outcome: str, *, alone: bool = False) -> Iterator[None]:
    """Within this context the line of a command that a signal ends says more.

    Args:
        outcome: what is left, and what the same command does with it.
        alone: whether other processes of the run may not know of the signal.

    Raises:
        InterruptedRunError: a signal came.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptedRunError(_state.number, outcome, alone=alone) from error


@contextlib.contextmanager
def allow_time() -> Iterator[None]:
    """Within this context the first signal ends nothing, however long it takes, as for a save."""
    _state.patience += 1
    try:
        yield
    finally:
        _state.patience -= 1


@contextlib.contextmanager
def handled_elsewhere() -> Iterator[None]:
    """Within this context only the handlers of the program see signals, also the second one."""
    before = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Within this context SIGTERM ends the process by itself, unless the program handles it.

    A program may handle the first signal, and give both back to their handlers from before. Of two
    signals of one moment, Python then drops SIGTERM, which has none; the two are one request.
    """
    is_handled = signal.getsignal(signal.SIGTERM) is _receive
    if is_handled:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        if is_handled:
            signal.signal(signal.SIGTERM, _receive)


def leave(code: int) -> NoReturn:
    """Ends the process with an exit code.

    A process that ends well ends as Python does. One that does not may have threads that never end,
    and objects that cannot be taken apart: it ends without a look at them.
    """
    if code == 0 or not _state.begun:
        sys.exit(code)
    # If the thread is already ending the process, this waits for the end.
    _state.ending.acquire()
    try:
        _remove_semaphores()
        for stream in (sys.stdout, sys.stderr):
            # The reader of a pipe may have gone.
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    finally:
        # Whatever happens above: an error that was passed on would come here again, and wait for
        # itself.
        os._exit(code)


def _open_closed_streams() -> None:
    """Opens the null device for each standard stream that is closed, as after `>&-` in a shell.

    Python has None for such a stream, and the next file that is opened would get its number: what
    is printed by C++ would be written into that file.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        # The processes that the command starts have it, too.
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _remove_semaphores() -> None:
    """Removes the semaphores of processes that decode; multiprocessing would warn of each.

    multiprocessing removes them at Python's own exit, but there it also waits for threads.
    """
    if processes := sys.modules.get("multiprocessing.util"):
        processes._run_finalizers(minpriority=0)


def _receive(number: int, frame: FrameType | None) -> None:
    """The handler, which the main thread calls between two instructions."""
    if _state.ending.locked() or (_state.raised and _state.unwinds):
        # Another signal does not interrupt what puts files in order. The thread sees it.
        return
    _state.number = signal.Signals(number)
    if not _state.unwinds or _is_in_import(frame):
        # What was printed into a pipe; not if the signal came in the middle of that.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            sys.stdout.flush()
        _end_at_once()
    _state.raised = True
    raise KeyboardInterrupt


def _is_in_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORT):
            return True
        frame = frame.f_back
    return False


def _end_at_once() -> None:
    """Ends the process from any thread, unless it is being ended."""
    if not _state.ending.acquire(blocking=False):
        return
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), _SHOW_CURSOR)
    if _state.code is not None:
        os._exit(_state.code)
    with contextlib.suppress(OSError):
        os.write(2, f"{message()}\n".encode())
    os._exit(code())


def _watch(received: int) -> None:
    """Ends the process if a signal comes again, or some time after the first one."""
    numbers = b""
    left = _SECONDS
    # Two different signals are one request.
    while left > 0 and max(map(numbers.count, _HANDLED)) < 2:
        wait = _PAUSE if numbers else None
        if select.select([received], [], [], wait)[0]:
            numbers += bytes(one for one in os.read(received, 64) if one in _HANDLED)
        elif _state.patience == 0:
            left -= _PAUSE
    # The main thread may not have come to the handler.
    again = (one for one in numbers if numbers.count(one) > 1)
    _state.number = signal.Signals(next(again, numbers[0]))
    _end_at_once()


def _filter_what_python_prints() -> None:
    """Ends the process at a KeyboardInterrupt that Python would print and forget.

    A signal may come while the handler of another signal restores its own handling. It is not a
    further request, and Python would print that it is ignored.
    """
    hook = sys.unraisablehook

    def filtered(unraisable: "sys.UnraisableHookArgs") -> None:
        if _state.raised and issubclass(unraisable.exc_type, KeyboardInterrupt):
            _end_at_once()
        if not str(unraisable.exc_value).endswith(_IGNORED):
            hook(unraisable)

    sys.unraisablehook = filtered


def _end_after_tracebacks() -> None:
    """Ends the process like `leave`, after an error that is a bug of the program."""
    hook = sys.excepthook

    def filtered(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        hook(kind, error, traceback)
        leave(1)

    sys.excepthook = filtered
