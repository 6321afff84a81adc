"""Steps that were dispatched to the devices, and whose metrics the host has not read yet."""

import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from train.data.batches import Batch
from train.devices.parallel import Devices
from train.foundation.errors import UserError
from train.training.state import TrainState
from train.training.stop_signals import (
    NOTHING,
    StopSignals,
    is_stop,
    take_request,
    with_request,
)
from train.workdir.progress import Progress
from train.workdir.reporting import Reporter, SilentReporter

# How many steps are dispatched ahead of the one whose metrics the host reads: enough that the
# devices never wait for the host, few enough that few batches are in their memory.
AHEAD = 4
# No checkpoint follows a step in which one of these is not finite. The first two depend on the
# parameters before the step, the last on those after it.
_CHECKED = ("loss", "gradient_norm", "parameter_norm")


@dataclass(frozen=True)
class _Step:
    """A dispatched step: its number, from 1, its examples, and its metrics on the devices."""

    number: int
    examples: np.ndarray
    metrics: Any


class StepsInFlight:
    """Dispatches steps to the devices and reports their metrics a few steps later.

    Args:
        train_step: the compiled step: state and batch to state and metrics.
        devices: those that the state is on.
        reporter: receives the metrics of every step, in order.
        stop_signals: the requests to this process.
    """

    def __init__(
        self,
        train_step: Callable[..., Any],
        devices: Devices,
        reporter: Reporter | SilentReporter,
        stop_signals: StopSignals,
    ) -> None:
        self._train_step = train_step
        self._devices = devices
        self._reporter = reporter
        self._stop_signals = stop_signals
        self._steps: deque[_Step] = deque()
        self._request = NOTHING
        self._waiting = 0.0
        self._started = time.perf_counter()

    @property
    def request(self) -> int:
        """The largest request to any process, known in all of them after the same step."""
        return self._request

    def dispatch(self, state: TrainState, number: int, batches: Iterator[Batch]) -> TrainState:
        """Dispatches a step, numbered from 1, and reads the metrics of an earlier one.

        Raises:
            DivergedError: that step's loss, gradient or parameters are not finite.
        """
        before_data = time.perf_counter()
        batch = next(batches)
        if self._are_devices_idle():
            self._waiting += time.perf_counter() - before_data
        share = self._devices.split(with_request(batch, self._stop_signals.current()))
        state, metrics = self._train_step(state, share)
        self._steps.append(_Step(number, batch["examples"], metrics))
        if len(self._steps) > AHEAD:
            self._read_oldest()
        return state

    def drain(self, progress: Progress) -> Progress:
        """Reads the metrics of all steps and returns the progress that a checkpoint saves.

        Raises:
            DivergedError: a step's loss, gradient or parameters are not finite.
        """
        while self._steps:
            self._read_oldest()
        return dataclasses.replace(
            progress,
            seconds=progress.seconds + time.perf_counter() - self._started,
            waiting=progress.waiting + self._waiting,
            unlogged=self._reporter.unlogged,
        )

    def restart(self) -> None:
        """Continues after `drain`; the time in between does not count as training time."""
        if not is_stop(self._request):
            self._request = NOTHING
        self._waiting = 0.0
        self._started = time.perf_counter()

    def _are_devices_idle(self) -> bool:
        """Whether the devices have finished all dispatched steps."""
        return not self._steps or self._steps[-1].metrics[_CHECKED[0]].is_ready()

    def _read_oldest(self) -> None:
        step = self._steps.popleft()
        metrics = {
            name: float(value) for name, value in self._devices.to_host(step.metrics).items()
        }
        self._request = max(self._request, take_request(metrics))
        for name in _CHECKED:
            if not math.isfinite(metrics[name]):
                raise DivergedError(
                    f"at step {step.number} the {name.replace('_', ' ')} is {metrics[name]}",
                    step.examples.tolist(),
                )
        self._reporter.training_step(step.number, metrics)


class DivergedError(UserError):
    """A loss, a gradient or parameters are not finite.

    Args:
        what: which of them, and at which step.
        examples: the training examples of that step.
    """

    def __init__(self, what: str, examples: Sequence[int] = ()) -> None:
        super().__init__(f"training diverged: {what}")
        self.examples = tuple(examples)
