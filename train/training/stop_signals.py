"""What a run is asked while it goes on: to save, or to save and stop.

A request goes through the step to all processes, so that they do the same after the same step.
"""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax

# What a batch and its metrics call the request.
NAME = "request"
NOTHING = 0
SAVE = 1
# A larger number is that of the signal which asks to stop.
_STOPPING = (signal.SIGINT, signal.SIGTERM)


def is_stop(request: int) -> bool:
    """Whether a request is to stop."""
    return request > SAVE


def carried_by(step: Callable[..., Any], *, axis_name: str) -> Callable[..., Any]:
    """The training step with a request a device in the batch, and the greatest in the metrics."""

    def carrying_step(state: Any, batch: dict[str, jax.Array]) -> Any:
        request = batch[NAME]
        rest = {name: array for name, array in batch.items() if name != NAME}
        state, metrics = step(state, rest)
        return state, {**metrics, NAME: jax.lax.pmax(request.max(), axis_name)}

    return carrying_step


class Requests:
    """The requests that come to this process; signals are caught while the context is open.

    A second signal does what it would have done without: it ends the process at once.

    Args:
        every_minutes: the time after which a save is asked for; None to ask for none.
    """

    def __init__(self, every_minutes: float | None) -> None:
        self._seconds = None if every_minutes is None else 60 * every_minutes
        self._asked = time.monotonic()
        self._signal = NOTHING
        self._handlers: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> "Requests":
        for number in _STOPPING:
            self._handlers[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._restore_handlers()

    def current(self) -> int:
        """What is asked for now; a save is asked for once."""
        if self._signal != NOTHING:
            return self._signal
        if self._seconds is None or time.monotonic() < self._asked + self._seconds:
            return NOTHING
        self.saved()
        return SAVE

    def saved(self) -> None:
        """Starts to count the minutes anew."""
        self._asked = time.monotonic()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())
