"""The errors with which the program ends in one line instead of a traceback."""

import signal


class UserError(ValueError):
    """A mistake of the user in the configuration, the files or the command line."""


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
