"""The progress of a run, which is saved with the state."""

import dataclasses
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from train.foundation import fields, shapes
from train.foundation.errors import UserError
from train.foundation.fields import Field, optional

# Python's JSON has infinities, which a score may be.
_SCORE: Field = lambda value: None if isinstance(value, int | float) else "a number"  # noqa: E731
_COUNT = fields.integer(0)
_SHAPE = shapes.record(
    {
        "step": _COUNT,
        "best_epoch": _COUNT,
        "best_step": _COUNT,
        "best_score": _SCORE,
        "best_loss": _SCORE,
        "epoch_seconds": shapes.list_of(shapes.NUMBER),
        "epoch_waiting": shapes.list_of(shapes.NUMBER),
        "compiled_epochs": shapes.list_of(_COUNT),
        "seconds": shapes.NUMBER,
        "waiting": shapes.NUMBER,
        "unlogged": shapes.list_of(shapes.record({"loss": _SCORE, "accuracy": _SCORE})),
        "metrics_digest": optional(shapes.string),
    }
)


@dataclass(frozen=True)
class Progress:
    """The progress of a run; saved with every checkpoint.

    Attributes:
        step: the number of steps so far.
        best_epoch: the selected epoch, counted from 1; 0 before the first.
        best_step: the last step of that epoch, which is the name of its checkpoint.
        best_score: the metric that selected it, with the sign for which larger is better.
        best_loss: its validation loss, which decides between epochs of one score.
        epoch_seconds: the seconds of training of each finished epoch.
        epoch_waiting: of these, the seconds in which the devices may have waited for data.
        compiled_epochs: the epochs, counted from 1, whose seconds include compilation: the first
            of each start of the run.
        seconds: the seconds of the unfinished epoch.
        waiting: of these, the seconds in which the devices may have waited for data.
        unlogged: the metrics of the steps after the last log, one mapping per step.
        metrics_digest: the SHA-256 of what was logged of the others; None before the first save.
    """

    step: int = 0
    best_epoch: int = 0
    best_step: int = 0
    best_score: float = -math.inf
    best_loss: float = math.inf
    epoch_seconds: tuple[float, ...] = ()
    epoch_waiting: tuple[float, ...] = ()
    compiled_epochs: tuple[int, ...] = ()
    seconds: float = 0.0
    waiting: float = 0.0
    unlogged: tuple[Mapping[str, float], ...] = ()
    metrics_digest: str | None = None

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> "Progress":
        """The progress from its JSON value, which has lists instead of tuples.

        Raises:
            UserError: it is the progress of another version, or not one.
        """
        if (wrong := _SHAPE(saved)) is not None:
            raise UserError(f"the progress in the latest checkpoint must be {wrong}")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in saved.items()
            if name in cls.__dataclass_fields__
        }
        return cls(**values)

    @property
    def epochs(self) -> int:
        """The number of finished epochs."""
        return len(self.epoch_seconds)

    def seconds_per_epoch(self) -> float:
        """The median over the epochs without compilation, or over all if each compiled."""
        return statistics.median(self._steady(self.epoch_seconds) or self.epoch_seconds)

    def data_wait_share(self) -> float:
        """The share of that time in which the devices may have waited for data."""
        seconds = self._steady(self.epoch_seconds) or self.epoch_seconds
        waiting = self._steady(self.epoch_waiting) or self.epoch_waiting
        return sum(waiting) / sum(seconds)

    def after_epoch(self, score: float, loss: float, *, compiled: bool = False) -> "Progress":
        """The progress after an epoch.

        A better score makes it the best epoch. Accuracies over few examples often tie:
        among equal scores the best epoch is the first one with the lowest validation loss.

        Args:
            score: the metric that selects, with the sign for which larger is better.
            loss: the validation loss.
            compiled: whether the seconds of the epoch include compilation.
        """
        epoch = self.epochs + 1
        # NaN is neither lower nor higher than another loss.
        loss = math.inf if math.isnan(loss) else loss
        is_best = (score, -loss) > (self.best_score, -self.best_loss)
        return dataclasses.replace(
            self,
            best_epoch=epoch if is_best else self.best_epoch,
            best_step=self.step if is_best else self.best_step,
            best_score=score if is_best else self.best_score,
            best_loss=loss if is_best else self.best_loss,
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
