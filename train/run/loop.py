"""Epochs of steps, selection of the best one, stopping, and checkpoints, in a fixed order."""

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import jax
import msgspec
import numpy as np

from train.data.batches import Batch
from train.devices import processes
from train.foundation.errors import Stopped, UserError
from train.reports import metric
from train.reports.metric import LOSS, Metric
from train.reports.summaries import Evaluation
from train.run.checkpoints import Checkpoints, Progress
from train.run.parts import Run
from train.run.reporting import Reporter, SilentReporter
from train.training.state import TrainState

# Takes an epoch, counted from 1, and its validation metrics by their names.
AfterEpoch = Callable[[int, Mapping[str, float]], None]

# How many steps are dispatched ahead of the one whose metrics the host reads: enough that the
# devices never wait for the host, few enough that few batches are in their memory.
AHEAD = 4
# What a process asks all others for with a step: the number of a signal, to stop; this, to save.
_SAVE = 1
# No checkpoint follows a step in which one of these is not finite. The first two depend on the
# parameters before the step, the last on those after it.
_CHECKED = ("loss", "gradient_norm", "parameter_norm")


class Signals:
    """The first SIGINT or SIGTERM asks the run to save and end; the second ends it at once.

    A signal that the process ignores stays ignored: shells start background processes so. Only the
    main thread can catch signals; a run in another thread leaves them to the program around it.
    """

    def __init__(self) -> None:
        self.request = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_exception: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.request = number
        self.__exit__()


class _Flight:
    """Steps that were dispatched to the devices, and whose metrics the host has not read yet.

    Attributes:
        asked: the largest request of any process, known in all of them after the same step.
        waited: the seconds in which the devices may have waited for data.
    """

    def __init__(self, parts: Run, reporter: Reporter | SilentReporter) -> None:
        self._parts, self._reporter = parts, reporter
        self._steps: deque[tuple[int, Batch, Any]] = deque()
        self.restart()

    def restart(self) -> None:
        """The time since the last restart does not count as training time."""
        self.asked, self.waited, self._began = 0, 0.0, time.perf_counter()

    def seconds(self) -> float:
        """The time since the restart."""
        return time.perf_counter() - self._began

    def dispatch(
        self, state: TrainState, number: int, batches: Iterator[Batch], request: int
    ) -> TrainState:
        """Dispatches a step, numbered from 1, and reports an earlier one."""
        before = time.perf_counter()
        batch = next(batches)
        if not self._steps or self._steps[-1][2]["loss"].is_ready():
            self.waited += time.perf_counter() - before
        requests = np.full(jax.local_device_count(), request, np.int32)
        share = self._parts.devices.split({**batch, "request": requests})
        state, metrics = self._parts.train_step(state, share)
        self._steps.append((number, batch, metrics))
        self.land(AHEAD)
        return state

    def land(self, most: int = 0) -> None:
        """Reports the oldest steps until so many are in flight.

        Raises:
            UserError: training diverged.
        """
        while len(self._steps) > most:
            number, batch, found = self._steps.popleft()
            metrics = {name: float(one) for name, one in self._parts.devices.to_host(found).items()}
            self.asked = max(self.asked, int(metrics.pop("request")))
            for name in _CHECKED:
                if not math.isfinite(metrics[name]):
                    examples = batch["examples"]
                    some = ", ".join(map(str, examples[:3].tolist()))
                    raise UserError(
                        f"training diverged: at step {number} the {name.replace('_', ' ')} is "
                        f"{metrics[name]}; lower config.optimizer.learning_rate; it was seen with "
                        f"{len(examples)} training examples, such as {some}"
                    )
            self._reporter.training_step(number, metrics)


def run(
    parts: Run,
    state: TrainState,
    progress: Progress,
    batches: Iterator[Batch],
    *,
    validate: Callable[[TrainState], Evaluation],
    checkpoints: Checkpoints,
    reporter: Reporter | SilentReporter,
    after_epoch: AfterEpoch | None = None,
) -> tuple[TrainState, Progress]:
    """Trains from where the progress stands to the end.

    The order of an iteration is an invariant: evaluate, save, stop, next batch, step, report.
    Saving after evaluation means that a resumed run neither repeats nor skips a selection; saving
    before the next batch means that it starts with the batch that was about to come. A save waits
    for the lines of all steps up to it, so that no checkpoint is ahead of the metrics.

    Args:
        parts: of the run.
        state: the state on the devices, after `progress.step` steps.
        progress: how far the run has come.
        batches: the batches of the steps to come.
        validate: evaluates the state after an epoch.
        checkpoints: where the state and the progress are saved.
        reporter: receives the metrics of every step and epoch.
        after_epoch: called after each epoch, once it is evaluated and saved.

    Returns:
        The last state, on the devices, and the progress.

    Raises:
        UserError: training diverged, or the metric that selects has no value.
        Stopped: a signal came; the run has saved.
    """
    config, steps_per_epoch = parts.config, parts.data.steps_per_epoch
    every_steps, every_minutes = config.checkpoint.every_steps, config.checkpoint.every_minutes
    steps = _Flight(parts, reporter)
    saved, last_save = progress.step, time.monotonic()

    def is_finished() -> bool:
        without = progress.epochs - progress.best_epoch
        is_stopped = config.stop_after is not None and without >= config.stop_after
        return progress.epochs == config.num_epochs or is_stopped

    with Signals() as signals:
        while not is_finished():
            at_end = progress.step == (progress.epochs + 1) * steps_per_epoch
            due = every_steps is not None and progress.step % every_steps == 0
            if not (at_end or steps.asked or (due and progress.step > saved)):
                late = every_minutes and time.monotonic() > last_save + 60 * every_minutes
                request = signals.request or (_SAVE if late else 0)
                progress = msgspec.structs.replace(progress, step=progress.step + 1)
                state = steps.dispatch(state, progress.step, batches, request)
                continue
            steps.land()
            progress = msgspec.structs.replace(
                progress,
                seconds=progress.seconds + steps.seconds(),
                waiting=progress.waiting + steps.waited,
            )
            score: tuple[float, ...] | None = None
            if at_end:
                found = validate(state)
                # Of equal ones the first is the best.
                score = (*_score(found.metrics, config.select_by), -progress.epochs)
                progress = progress.after_epoch(score)
                reporter.epoch(
                    progress.epochs,
                    progress.step,
                    progress.epoch_seconds[-1],
                    found,
                    is_best=progress.best_epoch == progress.epochs,
                )
            reporter.flush()
            progress = msgspec.structs.replace(progress, pending=tuple(reporter.pending))
            checkpoints.save(parts.devices.to_host(state), progress, score)
            saved, last_save = progress.step, time.monotonic()
            if at_end and after_epoch is not None:
                after_epoch(progress.epochs, metric.to_json(found.metrics))
            if steps.asked > _SAVE:
                break
            steps.restart()
        # No step makes known to all processes a signal that came after the last one.
        own = np.array([max(signals.request, steps.asked)], np.int32)
        asked = int(processes.gather({"request": own})["request"].max())
    if asked > _SAVE:
        raise Stopped(asked, outcome(progress))
    return state, progress


def outcome(progress: Progress) -> str:
    """What a signal leaves of a run, for a message."""
    return f"saved after step {progress.step}; the same command continues from there"


def _score(found: Mapping[Metric, float], select_by: str) -> tuple[float, float]:
    """The metric that selects, and the loss, which decides between equal ones: accuracies tie."""
    if not math.isfinite(found[LOSS]):
        raise UserError(
            f"training diverged: the validation loss is {found[LOSS]}; lower "
            "config.optimizer.learning_rate"
        )
    by = Metric.parse(select_by)
    if math.isnan(found[by]):
        raise by.without_value()
    return -found[by] if by == LOSS else found[by], -found[LOSS]
