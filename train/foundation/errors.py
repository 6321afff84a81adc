"""The errors with which the program ends in one line instead of a traceback."""

import errno
import os
import signal
from typing import Any

from train.foundation.spelling import spell

# Why a path can name neither a file nor a folder.
NO_PATH = (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
# What the system refuses to a process, whatever file it reads. Python has no code for threads.
_TOO_MANY_FILES = os.strerror(errno.EMFILE)
_LIMITS = ("can't start new thread", os.strerror(errno.ENFILE), os.strerror(errno.ENOMEM))


# The second line of an error starts with this.
USUALLY = "usually because"
# Why there is nothing at a path.
ELSEWHERE = "the path is misspelled, or is not relative to the current folder"
# None is a value that a field can have.
_NOTHING: Any = object()


class UserError(ValueError):
    """A mistake of the user in the configuration, the files or the command line.

    It has a message, or the parts of one: FIELD must be MUST_BE: BECAUSE; got GOT. A field that is
    given as a flag is spelled as the flag.

    Args:
        message: the message of an error without these parts, in one line.
        field: what is wrong: a field as config.dataset.path, a flag as --out, a key of a file.
        must_be: what it may be.
        got: what it is.
        but: in the place of `got`, a clause about what it is.
        because: why it must be so.
        usually: the usual reason for the mistake, which the command shows on a second line.
    """

    def __init__(
        self,
        message: str = "",
        *,
        field: str = "",
        must_be: str = "",
        got: object = _NOTHING,
        but: str = "",
        because: str = "",
        usually: str = "",
    ) -> None:
        self.field, self.must_be, self.because, self.usually = field, must_be, because, usually
        if not message:
            shown = repr(got) if isinstance(got, str) else str(got)
            is_instead = but or ("" if got is _NOTHING else f"got {shown}")
            message = f"{spell(field)} must be {must_be}"
            message += (because and f": {because}") + (is_instead and f"; {is_instead}")
        # Pickle calls the class with the message, and then sets the attributes.
        super().__init__(message)

    def within(self, before: str = "", after: str = "") -> "UserError":
        """The error with a longer message, and the same parts."""
        error = UserError(f"{before}{self}{after}")
        vars(error).update(vars(self))
        return error


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
    """The first line of an error's message; the name of its type if there is no message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class InterruptedRunError(Exception):
    """A signal stopped the run, which has saved a checkpoint and can continue.

    Args:
        number: the signal's number.
        message: the state of the run.
        alone: whether other processes of the run may not know of the signal.
    """

    def __init__(self, number: int, message: str, *, alone: bool = False) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}: {message}")
        self.number = number
        self.alone = alone
