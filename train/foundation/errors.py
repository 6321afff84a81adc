"""The errors with which the program ends in one line instead of a traceback."""

import errno
import os
import signal

# Why a path can name neither a file nor a folder.
NO_PATH = (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
# What the system refuses a process, whatever file it reads. Python has no code for threads.
_TOO_MANY_FILES = os.strerror(errno.EMFILE)
_LIMITS = ("can't start new thread", os.strerror(errno.ENFILE), os.strerror(errno.ENOMEM))


class UserError(ValueError):
    """A mistake of the user in the configuration, the files or the command line."""


class LimitError(Exception):
    """The system gives this process no more open files, threads or memory.

    It is not an `OSError`: handlers take an `OSError` for a missing or unreadable file.
    """


def let_through(error: BaseException) -> None:
    """Raises errors that are not the fault of the file that is read: limits and memory.

    Handlers of errors that can be any, because a damaged file is read, call this first. Otherwise
    a good file is reported as damaged.
    """
    if isinstance(error, LimitError | MemoryError):
        raise error
    reason = first_line(error)
    if _TOO_MANY_FILES in reason:
        hint = "`ulimit -n` shows how many files a process may have open, and raises the number"
        raise LimitError(f"{reason}; {hint}") from error
    if any(limit in reason for limit in _LIMITS):
        raise LimitError(reason) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message; the name of its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class InterruptedRunError(Exception):
    """A signal stopped the run, which has saved a checkpoint and can continue.

    Args:
        number: the signal's number.
        message: the state of the run.
    """

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}: {message}")
        self.number = number
