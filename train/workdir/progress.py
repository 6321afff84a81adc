"""How far a run has come: what is saved beside the state."""

import dataclasses
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Progress:
    """How far a run has come; saved with every checkpoint.

    Attributes:
        step: the steps made.
        best_epoch: the selected epoch, counted from 1; 0 before the first.
        best_step: the step at its end, which names its checkpoint.
        best_score: the metric that selected it, turned so that larger is better.
        epoch_seconds: the seconds of training of each finished epoch.
        epoch_waiting: how many of them the devices may have been idle for want of data.
        compiled_epochs: the epochs, counted from 1, whose seconds include compilation: the first
            of each start of the run.
        seconds: the seconds of the epoch that is not finished.
        waiting: how many of them the devices may have been idle for want of data.
        unlogged: the metrics of the steps after the last log, one mapping a step.
    """

    step: int = 0
    best_epoch: int = 0
    best_step: int = 0
    best_score: float = -math.inf
    epoch_seconds: tuple[float, ...] = ()
    epoch_waiting: tuple[float, ...] = ()
    compiled_epochs: tuple[int, ...] = ()
    seconds: float = 0.0
    waiting: float = 0.0
    unlogged: tuple[Mapping[str, float], ...] = ()

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> "Progress":
        """The progress as it was before JSON made lists of its tuples."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in saved.items()
        }
        return cls(**values)

    @property
    def epochs(self) -> int:
        """The number of finished epochs."""
        return len(self.epoch_seconds)

    def seconds_per_epoch(self) -> float:
        """The median over the epochs without compilation; over all if there are no others."""
        return statistics.median(self._steady(self.epoch_seconds) or self.epoch_seconds)

    def data_wait_share(self) -> float:
        """The share of those epochs' time that the devices may have been idle for want of data."""
        seconds = self._steady(self.epoch_seconds) or self.epoch_seconds
        waiting = self._steady(self.epoch_waiting) or self.epoch_waiting
        return sum(waiting) / sum(seconds)

    def after_epoch(self, score: float, *, compiled: bool = False) -> "Progress":
        """The progress at an epoch's end; only a strictly better score makes it the best."""
        epoch = self.epochs + 1
        is_best = score > self.best_score
        return dataclasses.replace(
            self,
            best_epoch=epoch if is_best else self.best_epoch,
            best_step=self.step if is_best else self.best_step,
            best_score=score if is_best else self.best_score,
            epoch_seconds=(*self.epoch_seconds, self.seconds),
            epoch_waiting=(*self.epoch_waiting, self.waiting),
            compiled_epochs=(*self.compiled_epochs, epoch) if compiled else self.compiled_epochs,
            seconds=0.0,
            waiting=0.0,
        )

    def _steady(self, values: tuple[float, ...]) -> list[float]:
        return [
            value
            for epoch, value in enumerate(values, start=1)
            if epoch not in self.compiled_epochs
        ]
