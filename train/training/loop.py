"""Epochs of steps, selection of the best one, stopping, and checkpoints, in a fixed order."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from train.data.batches import Batch
from train.devices.parallel import Devices
from train.foundation import interruption
from train.foundation.errors import InterruptedRunError, UserError
from train.reports import metric
from train.reports.metric import LOSS, Metric
from train.reports.summaries import Evaluation
from train.training import stop_signals
from train.training.state import TrainState
from train.training.steps_in_flight import DivergedError, StepsInFlight
from train.training.stop_signals import StopSignals
from train.workdir.checkpoint import Checkpointer
from train.workdir.progress import Progress
from train.workdir.reporting import Reporter, SilentReporter

# Takes an epoch, counted from 1, and its validation metrics by their names.
AfterEpoch = Callable[[int, Mapping[str, float]], None]

_AT_END = "at the end of the training"


@dataclass(frozen=True)
class Loop:
    """The epochs of a run.

    Attributes:
        train_step: the compiled step: state and batch to state and metrics.
        validate: takes a state on the devices and returns the metrics of the validation split.
        devices: the devices that the state is on.
        checkpointer: saves the state and the progress.
        reporter: receives the metrics of every step and epoch.
        stop_signals: the requests to this process during the run.
        num_epochs: the number of epochs of the run.
        steps_per_epoch: the steps of one.
        select_by: the validation metric that selects an epoch.
        stop_after: the epochs without improvement after which the run stops; None for never.
        save_every: the steps after which a checkpoint is saved, in addition to the end
            of each epoch; None for never.
        after_epoch: called after each epoch, once it is evaluated and saved; None for nothing.
    """

    train_step: Callable[..., Any]
    validate: Callable[[TrainState], Evaluation]
    devices: Devices
    checkpointer: Checkpointer
    reporter: Reporter | SilentReporter
    stop_signals: StopSignals
    num_epochs: int
    steps_per_epoch: int
    select_by: Metric
    stop_after: int | None
    save_every: int | None
    after_epoch: AfterEpoch | None = None

    def run(
        self, state: TrainState, progress: Progress, batches: Iterator[Batch]
    ) -> tuple[TrainState, Progress]:
        """Trains from where the progress stands to the end.

        Args:
            state: the state on the devices, after `progress.step` steps.
            progress: how far the run has come.
            batches: the batches of the steps to come.

        Returns:
            The last state, on the devices, and the progress.

        Raises:
            UserError: training diverged, or the metric that selects has no value.
            InterruptedRunError: a signal came; the run has saved.
        """
        try:
            return self._run(state, progress, batches)
        except DivergedError as error:
            latest = self.checkpointer.latest()
            kept = (
                "no checkpoint was saved"
                if latest is None
                else f"the last good checkpoint is {latest}"
            )
            # Last, because there may be many.
            examples = ", ".join(map(str, error.examples))
            seen_with = f"; it was seen with the training examples {examples}" if examples else ""
            raise UserError(
                f"{error}; {kept}; lower config.optimizer.learning_rate{seen_with}"
            ) from error

    def _run(
        self, state: TrainState, progress: Progress, batches: Iterator[Batch]
    ) -> tuple[TrainState, Progress]:
        steps = StepsInFlight(self.train_step, self.devices, self.reporter, self.stop_signals)
        first_epoch = progress.epochs + 1
        saved_step = progress.step
        # The order of an iteration is an invariant: evaluate, save, stop, next batch, step, report.
        # Saving after evaluation means that a resumed run neither repeats nor skips a selection;
        # saving before the next batch means that it starts with the batch that was about to come.
        # An evaluation writes its line before the save, and a save waits for the lines of all steps
        # up to it, so that no checkpoint is ahead of the metrics.
        while not self._is_finished(progress):
            at_end = progress.step == (progress.epochs + 1) * self.steps_per_epoch
            due = self.save_every is not None and progress.step % self.save_every == 0
            if (
                at_end
                or steps.request != stop_signals.NOTHING
                or (due and progress.step > saved_step)
            ):
                progress = steps.drain(progress)
                if at_end:
                    is_first = progress.epochs + 1 == first_epoch
                    progress, validation = self._evaluate(state, progress, compiled=is_first)
                if progress.step > saved_step:
                    self._save(state, progress)
                    saved_step = progress.step
                if at_end and self.after_epoch is not None:
                    # After the save, so that a run that ends by an error here can resume.
                    self.after_epoch(progress.epochs, metric.to_json(validation))
                steps.restart()
                if stop_signals.is_stop(steps.request):
                    raise self._interrupted(steps.request, progress)
                continue
            progress = dataclasses.replace(progress, step=progress.step + 1)
            state = steps.dispatch(state, progress.step, batches)
        # No step makes known to all processes a signal that came after the last one.
        request = stop_signals.largest(self.stop_signals.current())
        if stop_signals.is_stop(request):
            raise self._interrupted(request, progress)
        return state, progress

    def _interrupted(self, number: int, progress: Progress) -> InterruptedRunError:
        """The error that ends the run after a signal and a save."""
        in_epoch = f"in epoch {progress.epochs + 1} of {self.num_epochs}"
        where = _AT_END if self._is_finished(progress) else in_epoch
        return InterruptedRunError(number, _outcome(progress, where))

    def _is_finished(self, progress: Progress) -> bool:
        if progress.epochs == self.num_epochs:
            return True
        without_improvement = progress.epochs - progress.best_epoch
        return self.stop_after is not None and without_improvement >= self.stop_after

    def _evaluate(
        self, state: TrainState, progress: Progress, *, compiled: bool
    ) -> tuple[Progress, Mapping[Metric, float]]:
        validation = self.validate(state)
        seconds = progress.seconds
        progress = progress.after_epoch(
            _score(validation.metrics, self.select_by),
            validation.metrics[LOSS],
            compiled=compiled,
        )
        self.reporter.epoch(
            progress.epochs,
            progress.step,
            seconds,
            validation,
            is_best=progress.best_epoch == progress.epochs,
        )
        return progress, validation.metrics

    def _save(self, state: TrainState, progress: Progress) -> None:
        # Now, because an evaluation has written its line since the steps were drained.
        progress = dataclasses.replace(progress, metrics_digest=self.reporter.metrics_digest)
        self.checkpointer.save(
            progress.step, self.devices.to_host(state), dataclasses.asdict(progress)
        )
        self.stop_signals.saved()


def stoppable(progress: Progress) -> contextlib.AbstractContextManager[None]:
    """Within this context a signal ends the run with the line of one in training, but at once.

    Args:
        progress: how far the training has come.

    Raises:
        InterruptedRunError: a signal came, perhaps to this process alone.
    """
    return interruption.explained(_outcome(progress, _AT_END), alone=True)


def _outcome(progress: Progress, where: str) -> str:
    return f"saved after step {progress.step}, {where}; the same command continues from there"


def _score(validation: Mapping[Metric, float], select_by: Metric) -> float:
    if not math.isfinite(validation[LOSS]):
        raise DivergedError(f"the validation loss is {validation[LOSS]}")
    value = validation[select_by]
    if math.isnan(value):
        raise select_by.without_value()
    return -value if select_by == LOSS else value
