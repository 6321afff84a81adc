"""Steps that the devices have been given, and what the host has yet to see of them."""

import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from train.data.batches import Batch
from train.devices.parallel import Devices
from train.foundation.errors import UserError
from train.training import stop_signals
from train.training.state import TrainState
from train.training.stop_signals import Requests
from train.workdir.progress import Progress
from train.workdir.reporting import Reporter, SilentReporter

# How many steps the devices are given ahead of the one whose metrics the host has seen: enough that
# they never wait for the host, few enough that the batches in their memory are few.
_AHEAD = 4
# A step of which one is not finite must not be followed by a checkpoint. The first two tell of the
# parameters before the step, the last of those after it.
_CHECKED = ("loss", "gradient_norm", "parameter_norm")


@dataclass(frozen=True)
class _Step:
    """A step that was given to the devices: its number, from 1, and what it is of and gives."""

    number: int
    examples: np.ndarray
    metrics: Any


class StepsInFlight:
    """Gives steps to the devices and, a few steps later, their metrics to the reporter.

    Args:
        train_step: the compiled step: state and batch to state and metrics.
        devices: those that the state is on.
        reporter: told of every step, in order.
        asked: what the run is asked in this process.
    """

    def __init__(
        self,
        train_step: Callable[..., Any],
        devices: Devices,
        reporter: Reporter | SilentReporter,
        asked: Requests,
    ) -> None:
        self._train_step = train_step
        self._devices = devices
        self._reporter = reporter
        self._asked = asked
        self._steps: deque[_Step] = deque()
        self._request = stop_signals.NOTHING
        self._waiting = 0.0
        self._started = time.perf_counter()

    @property
    def request(self) -> int:
        """What the run is asked in any process, known in all of them after the same step."""
        return self._request

    def make(self, state: TrainState, number: int, batches: Iterator[Batch]) -> TrainState:
        """Gives a step to the devices, numbered from 1; waits for one that was given before.

        Raises:
            DivergedError: that step's loss, gradient or parameters are not finite.
        """
        asked_for_data = time.perf_counter()
        batch = next(batches)
        if self._are_devices_idle():
            self._waiting += time.perf_counter() - asked_for_data
        request = np.full(jax.local_device_count(), self._asked.current(), np.int32)
        share = self._devices.split({**batch, stop_signals.NAME: request})
        state, metrics = self._train_step(state, share)
        self._steps.append(_Step(number, batch["examples"], metrics))
        if len(self._steps) > _AHEAD:
            self._take_oldest()
        return state

    def finish(self, progress: Progress) -> Progress:
        """Waits for all steps, and adds to the progress what a checkpoint saves of them.

        Raises:
            DivergedError: a step's loss, gradient or parameters are not finite.
        """
        while self._steps:
            self._take_oldest()
        return dataclasses.replace(
            progress,
            seconds=progress.seconds + time.perf_counter() - self._started,
            waiting=progress.waiting + self._waiting,
            unlogged=self._reporter.unlogged,
        )

    def restart(self) -> None:
        """Goes on after `finish`: what was done in between is no part of the training's time."""
        if not stop_signals.is_stop(self._request):
            self._request = stop_signals.NOTHING
        self._waiting = 0.0
        self._started = time.perf_counter()

    def _are_devices_idle(self) -> bool:
        """Whether they have made all steps that they were given."""
        return not self._steps or self._steps[-1].metrics[_CHECKED[0]].is_ready()

    def _take_oldest(self) -> None:
        step = self._steps.popleft()
        metrics = {
            name: float(value) for name, value in self._devices.to_host(step.metrics).items()
        }
        self._request = max(self._request, int(metrics.pop(stop_signals.NAME)))
        for name in _CHECKED:
            if not math.isfinite(metrics[name]):
                raise DivergedError(
                    f"at step {step.number} the {name.replace('_', ' ')} is {metrics[name]}",
                    step.examples.tolist(),
                )
        self._reporter.training_step(step.number, metrics)


class DivergedError(UserError):
    """Training has come to numbers that are not finite.

    Args:
        what: where that was seen.
        examples: the training examples that it was seen with.
    """

    def __init__(self, what: str, examples: Sequence[int] = ()) -> None:
        super().__init__(f"training diverged: {what}")
        self.examples = tuple(examples)
