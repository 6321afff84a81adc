"""Signals that stop a run, and the clock that asks it to save.

A request to one process becomes known to all of them after the same step: each step takes the
largest request over the devices, one integer in a program that communicates anyway. JAX's own
`multihost_utils.reached_preemption_sync_point` does this only for SIGTERM, and Ctrl-C and the
clock need it too. A separate collective beside the step could deadlock with it on CPUs; there is
one only after the last step.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax
import numpy as np

from train.devices import processes
from train.foundation import interruption

_NAME = "request"
NOTHING = 0
SAVE = 1
# A larger request is the number of the signal that asks the run to stop.
_STOPPING = (signal.SIGINT, signal.SIGTERM)


def is_stop(request: int) -> bool:
    """Whether a request asks the run to stop."""
    return request > SAVE


def agreeing(step: Callable[..., Any], *, axis_name: str) -> Callable[..., Any]:
    """The training step, with the largest request of all devices among its metrics.

    The step is `(state, hyperparameters, batch) -> (state, metrics)`; see `with_request` for the
    batch and `take_request` for the metrics.
    """

    def agreeing_step(state: Any, hyperparameters: Any, batch: dict[str, jax.Array]) -> Any:
        rest = {name: array for name, array in batch.items() if name != _NAME}
        state, metrics = step(state, hyperparameters, rest)
        return state, {**metrics, _NAME: jax.lax.pmax(batch[_NAME].max(), axis_name)}

    return agreeing_step


def with_request(batch: dict[str, Any], request: int) -> dict[str, Any]:
    """This process's share of a batch with its request, once per device."""
    return {**batch, _NAME: np.full(jax.local_device_count(), request, np.int32)}


def take_request(metrics: dict[str, float]) -> int:
    """Takes the largest request of all processes out of the metrics of a step."""
    return int(metrics.pop(_NAME))


def largest(request: int) -> int:
    """The largest request of all processes, each of which calls this; no step is in progress."""
    found = processes.gather({_NAME: np.array([request], np.int32)})
    return int(found[_NAME].max())


class StopSignals:
    """The requests to this process; signals are caught while the context is open.

    A second signal has its usual effect: it ends the process at once. A signal that the process
    ignores stays ignored. Only the main thread can catch signals; a run in another thread, as of a
    search with several of them, leaves them to the program that started it.

    Args:
        save_every_minutes: the time after which a save is requested; None for never.
    """

    def __init__(self, save_every_minutes: float | None) -> None:
        self._seconds = None if save_every_minutes is None else 60 * save_every_minutes
        self._last_save = time.monotonic()
        self._signal = NOTHING
        self._handlers: dict[signal.Signals, signal._HANDLER] = {}
        self._context = contextlib.ExitStack()

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is not threading.main_thread():
            return self
        self._context.enter_context(interruption.allow_time())
        self._context.enter_context(interruption.ended_by_sigterm())
        for number in _STOPPING:
            # Shells start background processes with an ignored SIGINT; it stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._restore_handlers()
        self._context.close()

    def current(self) -> int:
        """The request now; each save is requested once."""
        if self._signal != NOTHING:
            return self._signal
        if self._seconds is None or time.monotonic() < self._last_save + self._seconds:
            return NOTHING
        self.saved()
        return SAVE

    def saved(self) -> None:
        """Restarts the clock, because the run has saved."""
        self._last_save = time.monotonic()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())
