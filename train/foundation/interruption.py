"""Ctrl-C at any moment of a command: one line, and the exit code that shells give.

Python raises a KeyboardInterrupt wherever the main thread is. That is not enough:

- in an import it can end in a segmentation fault or in another error, because extension modules
  cannot be initialized by half;
- in a callback of the garbage collector it is printed and lost, and the program continues;
- in a long call of C++, such as a compilation, it waits for the end of the call;
- at the exit, a thread that never ends makes the process wait for ever.

A KeyboardInterrupt is therefore raised only while a command runs, which may have files to put in
order. At all other moments the process ends at once. It also ends at once after `_SECONDS` or at a
second Ctrl-C, and a thread sees to that. An end at once damages nothing: files are replaced as a
whole, and checkpoints are renamed when they are complete.
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

MESSAGE = "stopped by SIGINT"
# The exit code that shells give.
CODE = 128 + signal.SIGINT

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
        unwinds: whether a KeyboardInterrupt is raised.
        raised: whether one was.
        patience: the number of contexts of `allow_time` that are open.
        ending: held by what ends the process, so that only one line is printed.
    """

    def __init__(self) -> None:
        self.begun = False
        self.unwinds = False
        self.raised = False
        self.patience = 0
        self.ending = _thread.allocate_lock()


_state = _State()


def begin() -> None:
    """Handles Ctrl-C from now on; called by the main thread of a command, as early as possible.

    A process that ignores the signal keeps ignoring it: shells start background processes so.

    Standard streams that are closed become the null device, here because nothing is open yet.
    """
    _open_closed_streams()
    if _state.begun:
        return
    _state.begun = True
    _end_after_tracebacks()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGINT, _receive)
    # The first function that is registered is the last one at the exit. After it Python would put
    # back the signal's own handling, which ends the process without a line.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    _filter_what_python_prints()
    # Python writes the number of each signal to it at once, whatever the main thread does.
    received, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    _thread.start_new_thread(_watch, (received,))


def raised() -> bool:
    """Whether Ctrl-C has raised a KeyboardInterrupt, which may have become another error."""
    return _state.raised


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """While a command runs in this context, Ctrl-C raises a KeyboardInterrupt."""
    _state.unwinds = True
    try:
        yield
    finally:
        _state.unwinds = False


@contextlib.contextmanager
def allow_time() -> Iterator[None]:
    """Within this context the first Ctrl-C ends nothing, however long it takes, as for a save."""
    _state.patience += 1
    try:
        yield
    finally:
        _state.patience -= 1


@contextlib.contextmanager
def handled_elsewhere() -> Iterator[None]:
    """Within this context only the handlers of the program see Ctrl-C, also the second one."""
    before = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)


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


def _receive(_number: int, frame: FrameType | None) -> None:
    """The handler, which the main thread calls between two instructions."""
    if _state.ending.locked():
        return
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
    with contextlib.suppress(OSError):
        os.write(2, f"{MESSAGE}\n".encode())
    os._exit(CODE)


def _watch(received: int) -> None:
    """Ends the process at the second Ctrl-C, or some time after the first one."""
    interrupts = 0
    left = _SECONDS
    while left > 0 and interrupts < 2:
        wait = _PAUSE if interrupts else None
        if select.select([received], [], [], wait)[0]:
            interrupts += os.read(received, 64).count(signal.SIGINT)
        elif _state.patience == 0:
            left -= _PAUSE
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
