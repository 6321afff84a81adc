"""Copies of a run's metrics in MLflow and in Weights & Biases, as `config.trackers` asks for.

A run does not end because of a tracker: one warning says that it gets no more.
"""

import hashlib
import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from train.foundation.errors import UserError, first_line
from train.foundation.nested import flatten
from train.run import run_folder

# Both have the run in a project of this name, unless their own variables name another.
_PROJECT = "topk_jax"


def check(names: Sequence[str]) -> None:
    """Raises `UserError` for a tracker whose package cannot be imported."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            what = f"config.trackers={tuple(names)} needs the package {name}"
            raise UserError(f"{what} ({first_line(error)}): pip install {name}") from error


class Trackers:
    """The trackers of a run, by their names; a run that is resumed in `workdir` is the same run."""

    def __init__(self, names: Sequence[str], workdir: Path, config: Mapping[str, Any]) -> None:
        self._each = {name: KINDS[name]() for name in names}
        self._call(lambda tracker: tracker.start(workdir, dict(flatten(config))))

    def write(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Adds metrics of a split, which have values."""
        named = {f"{split}/{name}": value for name, value in metrics.items()}
        self._call(lambda tracker: tracker.write(step, named))

    def close(self, *, finished: bool) -> None:
        """Ends the run there; without results, which `finished` says, it can be resumed."""
        self._call(lambda tracker: tracker.close(finished))

    def _call(self, call: Callable[[Any], None]) -> None:
        for name, tracker in list(self._each.items()):
            try:
                call(tracker)
            except (Exception, SystemExit) as error:  # These packages also end the process.
                logging.warning("%s gets no more of this run: %s", name, first_line(error))
                del self._each[name]


class _MLflow:
    """A run in MLflow: at MLFLOW_TRACKING_URI, in the experiment MLFLOW_EXPERIMENT_NAME."""

    def start(self, workdir: Path, fields: dict[str, Any]) -> None:
        # By default a server that is away holds the run for minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        mlflow: Any = importlib.import_module("mlflow")
        self._entities, self._client = mlflow.entities, mlflow.MlflowClient()
        self._sent: Any = None
        self._last: dict[str, int] = {}
        project = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        experiment = mlflow.set_experiment(project).experiment_id
        tag, name = _identity(workdir), workdir.absolute().name
        if found := self._client.search_runs([experiment], f"tags.topk_jax_run = '{tag}'"):
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        made = self._client.create_run(experiment, tags={"topk_jax_run": tag}, run_name=name)
        self._id = made.info.run_id
        # Every server takes values of this length.
        params = [self._entities.Param(name, str(value)[:250]) for name, value in fields.items()]
        self._client.log_batch(self._id, params=params)

    def write(self, step: int, metrics: dict[str, float]) -> None:
        # A resumed run repeats steps.
        first = next(iter(metrics))
        if first not in self._last:
            history = self._client.get_metric_history(self._id, first)
            self._last[first] = max((one.step for one in history), default=-1)
        if step <= self._last[first]:
            return
        if self._sent is not None:
            self._sent.wait()  # Raises what went wrong with the metrics before.
        now, make = int(1000 * time.time()), self._entities.Metric
        values = [make(name, value, now, step) for name, value in metrics.items()]
        self._sent = self._client.log_batch(self._id, metrics=values, synchronous=False)

    def close(self, finished: bool) -> None:
        if self._sent is not None:
            self._sent.wait()
        self._client.set_terminated(self._id, status="FINISHED" if finished else "KILLED")


class _WeightsAndBiases:
    """A run in Weights & Biases: in the project WANDB_PROJECT, with the key WANDB_API_KEY.

    It drops the steps that a resumed run repeats.
    """

    def start(self, workdir: Path, fields: dict[str, Any]) -> None:
        wandb: Any = importlib.import_module("wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            id=_identity(workdir),
            name=workdir.absolute().name,
            config=fields,
            # An argument would override the variable.
            dir=os.environ.get("WANDB_DIR") or str(workdir),
            resume="allow",
            # Otherwise wandb prints, and asks for a missing key.
            settings=wandb.Settings(silent=True, console="off", login_timeout=1),
        )

    def write(self, step: int, metrics: dict[str, float]) -> None:
        self._run.log(metrics, step=step)

    def close(self, finished: bool) -> None:
        # By default, every run that ends so is a success.
        self._run.finish(exit_code=0 if finished else 1)


def _identity(workdir: Path) -> str:
    """A name of the run that stays the same when the run is resumed.

    A new run may have the path of a deleted one, but the event file of its first start has another
    name. Weights & Biases would drop what a run logs of steps that it has.
    """
    first = min(file.name for file in (workdir / run_folder.EVENTS).iterdir())
    return hashlib.sha256(f"{workdir.resolve()}\n{first}".encode()).hexdigest()[:16]


KINDS: dict[str, Any] = {"mlflow": _MLflow, "wandb": _WeightsAndBiases}
