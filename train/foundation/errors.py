"""The errors with which the program ends in one line instead of a traceback."""

import signal


class UserError(ValueError):
    """A mistake of the user in the configuration, the files or the command line."""


class InterruptedRunError(Exception):
    """A signal stopped the run, which has saved a checkpoint and can continue.

    Args:
        number: the signal's number.
        message: the state of the run.
    """

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}: {message}")
        self.number = number
