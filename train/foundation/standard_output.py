"""Standard output that fails: the reader of a pipe has gone, or a disk is full."""

import io
import os
import select
import signal
import sys

# Plus the number of the signal: the exit code that shells give.
_SIGNAL = 128
_SYSTEM_ERROR = 1


def keep_what_fails() -> None:
    """Has standard output keep what it could not write, for `failed`, with PYTHONUNBUFFERED too.

    Letters that its encoding lacks are escaped, as on standard error.
    """
    output = sys.stdout
    if not isinstance(output, io.TextIOWrapper):
        return
    output.reconfigure(errors="backslashreplace")
    if isinstance(output.buffer, io.RawIOBase):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(output.buffer),
            encoding=output.encoding,
            errors=output.errors,
            line_buffering=True,
        )


def show(text: str) -> None:
    """Writes a text; ends the process as commands end if that fails."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        discard()
        message, code = end_of(error)
        sys.stderr.write(message)
        sys.exit(code)


def failed(error: OSError) -> bool:
    """Whether this OSError was raised by writing to standard output."""
    if isinstance(error, BrokenPipeError):
        # `poll` reports an output without a reader, although it is asked for nothing.
        polled = select.poll()
        polled.register(sys.stdout, 0)
        return bool(polled.poll(0))
    try:
        # What was not written yet fails again.
        sys.stdout.flush()
    except OSError as again:
        return again.errno == error.errno
    return False


def discard() -> None:
    """Discards what was not written; Python would try it again at the exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def end_of(error: OSError) -> tuple[str, int]:
    """The line and the exit code for a failure. A reader that has gone, like `head`, needs none."""
    if isinstance(error, BrokenPipeError):
        return "", _SIGNAL + signal.SIGPIPE
    return f"error: {error.strerror}: standard output\n", _SYSTEM_ERROR
