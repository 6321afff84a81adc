"""Copies of a run's metrics in MLflow and in Weights & Biases, as `config.trackers` asks for.

A tracker may be slow, full or away. Each is written to in a thread of its own, and a run neither
waits for a tracker nor ends because of one: a warning reports that it gets no more.
"""

import contextlib
import hashlib
import importlib
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any, Protocol

from absl import logging

from train.foundation import packages
from train.foundation.errors import UserError, first_line, let_through
from train.foundation.nested import flatten
from train.foundation.spelling import spell
from train.workdir import run_files

# Both have the run in a project of this name, unless their own variables name another.
_PROJECT = "topk_jax"
# The longest field of the configuration, in letters. Every server of MLflow takes this many.
_LONGEST = 250
# The most fields that MLflow takes in one call.
_MOST_FIELDS = 100
# Calls that wait for a tracker. A run logs some ten times an epoch.
_MOST_WAITING = 10_000
# The time for calls that still wait at the end of the run.
_SECONDS_AT_END = 30.0

# Metrics by their names, and the step.
_Metrics = tuple[int, dict[str, float]]


class Tracker(Protocol):
    """A run in a tracker."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds metrics."""

    def close(self, *, finished: bool) -> None:
        """The process has ended, after the run has finished or before."""


class Trackers:
    """The trackers of a run; see `write`.

    Args:
        names: the names in `config.trackers`.
        workdir: the folder of the run, which has an event file. A run that is resumed there is the
            same run in each tracker.
        config: the configuration, nested.
    """

    def __init__(self, names: Sequence[str], workdir: Path, config: Mapping[str, Any]) -> None:
        self._each = [_Thread(name, workdir, config) for name in names]

    def write(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Adds the metrics that have a value; never waits."""
        named = {
            f"{split}/{name}": float(value)
            for name, value in metrics.items()
            if value is not None and math.isfinite(value)
        }
        for one in self._each:
            one.write((step, named))

    def close(self, *, finished: bool) -> None:
        """Waits some time for the trackers; may be called again.

        Args:
            finished: whether the run has its results. Without them it can be resumed.
        """
        for one in self._each:
            one.close(finished)
        self._each = []


def check(names: Sequence[str]) -> None:
    """Refuses trackers whose packages are not installed, or cannot be imported.

    Raises:
        UserError: a package is one of these.
    """
    field = spell(f"config.trackers={tuple(names)}")
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise UserError(packages.missing(field, str(error.name), name)) from error
        except Exception as error:  # A package that does not fit the others raises anything.
            let_through(error)
            raise UserError(f"{field}: {name} cannot be imported: {first_line(error)}") from error


class _Thread:
    """A tracker, in a thread."""

    def __init__(self, name: str, workdir: Path, config: Mapping[str, Any]) -> None:
        self._name = name
        # What is written, and at the end whether the run has finished.
        self._waiting: queue.Queue[_Metrics | bool] = queue.Queue(_MOST_WAITING)
        self._has_failed = threading.Event()
        self._failing = threading.Lock()
        # A tracker that hangs must not keep the process.
        self._thread = threading.Thread(
            target=self._run, args=(workdir, config), name=name, daemon=True
        )
        self._thread.start()

    def write(self, metrics: _Metrics) -> None:
        if self._has_failed.is_set():
            return
        try:
            self._waiting.put_nowait(metrics)
        except queue.Full:
            self._fail("it takes less than the run writes")

    def close(self, finished: bool) -> None:
        if not self._has_failed.is_set():
            with contextlib.suppress(queue.Full):
                self._waiting.put(finished, timeout=_SECONDS_AT_END)
            self._thread.join(_SECONDS_AT_END)
            if self._thread.is_alive():
                self._fail(f"it has not taken all within {_SECONDS_AT_END:g} s")

    def _run(self, workdir: Path, config: Mapping[str, Any]) -> None:
        try:
            tracker = _TRACKERS[self._name](workdir, config)
            while not isinstance(taken := self._waiting.get(), bool):
                tracker.write(*taken)
            tracker.close(finished=taken)
        except BaseException as error:  # These packages also end the process that they are in.
            self._fail(first_line(error))

    def _fail(self, reason: str) -> None:
        with self._failing:
            if not self._has_failed.is_set():
                logging.warning("%s gets no more of this run: %s", self._name, reason)
            # After the warning: `close` does not wait for a thread that has failed.
            self._has_failed.set()


class _MLflow:
    """A run in MLflow: at MLFLOW_TRACKING_URI, in the experiment MLFLOW_EXPERIMENT_NAME."""

    def __init__(self, workdir: Path, config: Mapping[str, Any]) -> None:
        self._mlflow: Any = importlib.import_module("mlflow")
        # urllib3 warns of each of its retries; one warning reports that all have failed.
        getLogger("urllib3").setLevel(ERROR)
        self._client = self._mlflow.MlflowClient()
        project = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        experiment = self._find_experiment(project)
        identity = _identity(workdir)
        earlier = self._client.search_runs(
            [experiment], f"tags.topk_jax_run = '{identity}'", max_results=1
        )
        if earlier:
            self._run_id = earlier[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            return
        made = self._client.create_run(
            experiment, tags={"topk_jax_run": identity}, run_name=workdir.absolute().name
        )
        self._run_id = made.info.run_id
        parameters = [
            self._mlflow.entities.Param(name, str(value)[:_LONGEST])
            for name, value in flatten(config)
        ]
        for start in range(0, len(parameters), _MOST_FIELDS):
            some = parameters[start : start + _MOST_FIELDS]
            self._client.log_batch(self._run_id, params=some)

    def _find_experiment(self, project: str) -> str:
        found = self._client.get_experiment_by_name(project)
        if found is None:
            try:
                return str(self._client.create_experiment(project))
            except Exception:  # MLflow raises a type of its own if another run has made it.
                found = self._client.get_experiment_by_name(project)
                if found is None:
                    raise
        return str(found.experiment_id)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self._client.log_batch(
            self._run_id,
            metrics=[
                self._mlflow.entities.Metric(name, value, now, step)
                for name, value in metrics.items()
            ],
        )

    def close(self, *, finished: bool) -> None:
        self._client.set_terminated(self._run_id, status="FINISHED" if finished else "KILLED")


class _WeightsAndBiases:
    """A run in Weights & Biases: in the project WANDB_PROJECT, with the key WANDB_API_KEY.

    Its files are in WANDB_DIR, or in the folder of the run without that variable.
    """

    def __init__(self, workdir: Path, config: Mapping[str, Any]) -> None:
        wandb: Any = importlib.import_module("wandb")
        # An argument would override the variable.
        place = {} if os.environ.get("WANDB_DIR") else {"dir": str(workdir)}
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            id=_identity(workdir),
            name=workdir.absolute().name,
            config=dict(flatten(config)),
            **place,
            resume="allow",
            # Otherwise wandb prints, and asks for a missing key.
            settings=wandb.Settings(silent=True, console="off", login_timeout=1),
        )

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self, *, finished: bool) -> None:
        # By default, every run that ends so is a success.
        self._run.finish(exit_code=0 if finished else 1)


def _identity(workdir: Path) -> str:
    """A name of the run that stays the same when the run is resumed.

    A new run may have the path of a deleted one, but the event file of its first start has another
    name. Weights & Biases would drop what a run logs of steps that it has.
    """
    first = min(file.name for file in (workdir / run_files.EVENTS).iterdir())
    return hashlib.sha256(f"{workdir.resolve()}\n{first}".encode()).hexdigest()[:16]


_TRACKERS: Mapping[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {
    "mlflow": _MLflow,
    "wandb": _WeightsAndBiases,
}
