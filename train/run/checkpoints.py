"""The checkpoints of a run: orbax keeps the two latest and the two best of them."""

import dataclasses
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from orbax.checkpoint import checkpoint_managers as keeping

from train.foundation import files
from train.foundation.errors import UserError, first_line
from train.training.state import TrainState

# The parts of a checkpoint. Who predicts reads the first alone: what is evaluated of the network.
_EVALUATED, _TRAINING, _PROGRESS = "evaluated", "training", "progress"
# Written by orbax: what chooses the best one.
_METRICS = "metrics"
_ADVICE = "delete it, and the run continues from the one before it"

# Orbax logs what it raises as well.
logging.get_absl_logger().addFilter(lambda record: "/orbax/" not in record.pathname)


def _show_unraisable(found: "sys.UnraisableHookArgs", show: Any = sys.unraisablehook) -> None:
    """After a full disk, orbax's other writes find its event loop closed, and no caller waits."""
    if str(found.exc_value) != "Event loop is closed":
        show(found)


sys.unraisablehook = _show_unraisable


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run has come; saved with every checkpoint.

    Attributes:
        step: the number of steps so far.
        best_epoch: the selected epoch, counted from 1; 0 before the first.
        best_score: what selected it: larger is better.
        epoch_seconds: the seconds of training of each finished epoch.
        seconds: the seconds of the unfinished epoch.
        waiting: of all these, the seconds in which the devices may have waited for data.
        pending: the metrics of the steps after the last log.
    """

    step: int = 0
    best_epoch: int = 0
    best_score: tuple[float, ...] = (-math.inf,)
    epoch_seconds: tuple[float, ...] = ()
    seconds: float = 0.0
    waiting: float = 0.0
    pending: tuple[dict[str, float], ...] = ()

    @property
    def epochs(self) -> int:
        """The number of finished epochs."""
        return len(self.epoch_seconds)

    @property
    def data_wait_share(self) -> float:
        """The share of the time in which the devices may have waited for data."""
        return self.waiting / sum(self.epoch_seconds)

    def after_epoch(self, score: tuple[float, ...]) -> "Progress":
        """The progress after an epoch; a better score makes it the best one."""
        is_best = score > self.best_score
        return msgspec.structs.replace(
            self,
            best_epoch=self.epochs + 1 if is_best else self.best_epoch,
            best_score=score if is_best else self.best_score,
            epoch_seconds=(*self.epoch_seconds, self.seconds),
            seconds=0.0,
        )


class Checkpoints:
    """Saves states in the background, and restores them bit for bit.

    A checkpoint gets its name when it is complete: whatever is killed leaves the one before it. It
    has the checksums of its files, because orbax restores flipped bits without an error. If a user
    deletes a damaged one, there is another: two of each kind are kept.

    Args:
        folder: their folder, which is made.

    Raises:
        UserError: a checkpoint is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._saving = 0
        for metrics in self._folder.glob(f"*/{_METRICS}"):
            # Orbax reads these at once, of all checkpoints; not of a save that was killed.
            if metrics.parent.name.isdigit():
                with _reading(metrics.parent, _METRICS):
                    pass
        # Those that are saved within an epoch have no score: only the latest of them are kept.
        best = keeping.BestN(get_metric_fn=_score, n=2, keep_checkpoints_without_metrics=False)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=keeping.AnyPreservationPolicy([keeping.LatestN(2), best]),
            best_fn=_score,
            cleanup_tmp_directories=True,
            async_options=ocp.AsyncOptions(
                post_finalization_callback=self._write_checksums,
                # Otherwise a folder that cannot be made is waited for.
                create_directories_asynchronously=False,
            ),
        )
        handlers = {
            _EVALUATED: ocp.StandardCheckpointHandler(),
            _TRAINING: ocp.StandardCheckpointHandler(),
            _PROGRESS: ocp.JsonCheckpointHandler(),
        }
        self._manager = ocp.CheckpointManager(self._folder, options=options, item_handlers=handlers)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_exception: object) -> None:
        with self._writing():
            self._manager.close()

    @property
    def latest(self) -> int:
        """The step of the latest one; 0 if there is none."""
        return self._manager.latest_step() or 0

    @property
    def best(self) -> int:
        """The step of the one with the largest score; 0 if none has a score."""
        return self._manager.best_step() or 0

    def save(self, state: TrainState, progress: Progress, score: tuple[float, ...] | None) -> None:
        """Starts to save, once the save before is complete.

        Args:
            state: arrays of the host, which may be changed after the call.
            progress: how far the run has come.
            score: what the best checkpoint has the largest of; None within an epoch.

        Raises:
            OSError: this save, or the one before it, could not be written.
        """
        evaluated, training = _split(state)
        args: dict[str, Any] = {
            _EVALUATED: ocp.args.StandardSave(evaluated),
            _TRAINING: ocp.args.StandardSave(training),
            _PROGRESS: ocp.args.JsonSave(msgspec.to_builtins(progress)),
        }
        metrics = None if score is None else {"score": list(score)}
        with self._writing():
            self._manager.wait_until_finished()
            self._saving = progress.step
            self._manager.save(progress.step, args=ocp.args.Composite(**args), metrics=metrics)

    def restore(self, like: TrainState, step: int) -> tuple[TrainState, Progress]:
        """The state and the progress of a step.

        Args:
            like: a state with the structure, shapes, types and places to restore.
            step: a step that has a checkpoint.

        Raises:
            UserError: the checkpoint is damaged, or of another state.
        """
        with self._writing():
            self._manager.wait_until_finished()
        evaluated, training = _split(like)
        args: dict[str, Any] = {
            _EVALUATED: ocp.args.StandardRestore(evaluated),
            _TRAINING: ocp.args.StandardRestore(training),
            _PROGRESS: ocp.args.JsonRestore(),
        }
        with _reading(self._folder / str(step), *args):
            found = self._manager.restore(step, args=ocp.args.Composite(**args))
            progress = msgspec.convert(found[_PROGRESS], Progress)
        own = found[_EVALUATED] if like.averages is None else {"averages": found[_EVALUATED]}
        return dataclasses.replace(like, **own, **found[_TRAINING]), progress

    def _write_checksums(self) -> None:
        """Called by orbax on one process, when the files are written and not yet renamed."""
        (folder,) = self._folder.glob(f"{self._saving}{ocp.utils.TMP_DIR_SUFFIX}*")
        for part in filter(Path.is_dir, folder.iterdir()):
            files.write_checksums(part, filter(Path.is_file, part.rglob("*")))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A full disk is a ValueError of orbax."""
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            what = f"cannot save a checkpoint in {self._folder}: {first_line(error)}"
            raise OSError(what) from error


def read_selected(folder: Path, step: int) -> dict[str, Any]:
    """The parameters and statistics of a step, on the host: the averages if the run kept any.

    Args:
        folder: the folder of the checkpoints of a finished run.
        step: the step that the results name.

    Returns:
        {"params", "batch_stats"}.

    Raises:
        UserError: there is no such checkpoint, or it is damaged.
    """
    checkpoint = folder.absolute() / str(step)
    with (
        _reading(checkpoint, _EVALUATED, then="it has the selected parameters of the run"),
        ocp.StandardCheckpointer() as reader,
    ):
        saved = reader.metadata(checkpoint / _EVALUATED).item_metadata.tree
        like = jax.tree.map(lambda leaf: np.broadcast_to(leaf.dtype.type(0), leaf.shape), saved)
        selected: dict[str, Any] = reader.restore(checkpoint / _EVALUATED, like)
    return selected


def _score(metrics: Any) -> Any:
    return tuple(metrics["score"])


def _split(state: TrainState) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is evaluated of a state, and the rest of it."""
    rest = dict(vars(state))
    averages = rest.pop("averages")
    if averages is not None:
        return averages, rest
    return {name: rest.pop(name) for name in ("params", "batch_stats")}, rest


@contextmanager
def _reading(folder: Path, *parts: str, then: str = _ADVICE) -> Iterator[None]:
    """Guards what reads parts of a checkpoint, once their files are found to be what was written.

    Orbax can raise anything.
    """
    try:
        for part in parts:
            files.check_checksums(folder / part)
        yield
    except Exception as error:
        reason = first_line(error)
        raise UserError(f"the checkpoint {folder} is damaged ({reason}): {then}") from error
