"""The two ways in which the program ends early and knows why."""

import signal


class UserError(ValueError):
    """A mistake in the configuration, the files or the command line, told in one line."""


class InterruptedRunError(Exception):
    """A signal stopped the run, which has saved and can go on; told in one line.

    Args:
        number: the signal's number.
        message: where the run stands.
    """

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}: {message}")
        self.number = number
