"""Trackers get the metrics that TensorBoard gets, and a run does not depend on them."""

import itertools
import logging
import shutil
import sys
from types import SimpleNamespace

import pytest

from train.foundation.errors import UserError
from train.workdir import trackers
from train.workdir.trackers import Trackers

CONFIG = {"seed": 0, "model": {"name": "x" * 300}}
STARTS = itertools.count()


class MLflow:
    """What a run uses of the package; tests/peers/oracle/test_mlflow.py has the real one."""

    def __init__(self):
        self.runs = {}
        self.entities = SimpleNamespace(
            Param=lambda key, value: (key, value),
            Metric=lambda key, value, timestamp, step: (key, value, step),
        )

    def MlflowClient(self):  # noqa: N802
        return self

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=name)

    def search_runs(self, experiments, query, max_results):
        wanted = query.split("'")[1]
        found = [run for run in self.runs.values() if run.tag == wanted]
        return found[:max_results]

    def create_run(self, experiment, tags, run_name):
        run_id = f"run {len(self.runs)}"
        info = SimpleNamespace(run_id=run_id)
        self.runs[run_id] = SimpleNamespace(
            info=info, tag=tags["topk_jax_run"], name=run_name, params=[], metrics=[], statuses=[]
        )
        return self.runs[run_id]

    def log_batch(self, run_id, metrics=(), params=()):
        self.runs[run_id].metrics += metrics
        self.runs[run_id].params += params

    def update_run(self, run_id, status):
        self.runs[run_id].statuses.append(status)

    def set_terminated(self, run_id, status):
        self.runs[run_id].statuses.append(status)


class WandB:
    """The same of Weights & Biases."""

    def __init__(self):
        self.started, self.logged, self.exit_codes = [], [], []

    def Settings(self, **options):  # noqa: N802
        return options

    def init(self, **options):
        self.started.append(options)
        return self

    def log(self, metrics, step):
        self.logged.append((step, metrics))

    def finish(self, exit_code):
        self.exit_codes.append(exit_code)


@pytest.fixture
def mlflow(monkeypatch):
    fake = MLflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


@pytest.fixture
def wandb(monkeypatch):
    fake = WandB()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def run(tmp_path, *names, steps=(5,), finished=True):
    events = tmp_path / "run" / "tensorboard"
    events.mkdir(parents=True, exist_ok=True)
    # The next start of a run has a later one.
    (events / f"events.{next(STARTS):03}").touch()
    made = Trackers(names, tmp_path / "run", CONFIG)
    for step in steps:
        made.write(step, "train", {"loss": 0.5, "few": float("nan"), "none": None})
    made.close(finished=finished)
    made.close(finished=finished)


def test_mlflow_has_one_run_for_a_workdir(mlflow, tmp_path):
    trackers.check(["mlflow"])
    run(tmp_path, "mlflow", finished=False)
    run(tmp_path, "mlflow", steps=(10, 15))
    (found,) = mlflow.runs.values()
    assert found.name == "run"
    assert found.metrics == [("train/loss", 0.5, step) for step in (5, 10, 15)]
    # Once, and as long as servers take them.
    assert found.params == [("seed", "0"), ("model.name", "x" * 250)]
    assert found.statuses == ["KILLED", "RUNNING", "FINISHED"]
    run(tmp_path / "other", "mlflow")
    assert len(mlflow.runs) == 2
    # A new run in the place of a deleted one.
    shutil.rmtree(tmp_path / "run")
    run(tmp_path, "mlflow")
    assert len(mlflow.runs) == 3


def test_wandb_has_one_run_for_a_workdir(wandb, tmp_path):
    run(tmp_path, "wandb", finished=False)
    run(tmp_path, "wandb", steps=(10,))
    first, second = wandb.started
    assert first["id"] == second["id"]
    assert first["resume"] == "allow"
    assert first["config"] == {"seed": 0, "model.name": "x" * 300}
    assert wandb.logged == [(5, {"train/loss": 0.5}), (10, {"train/loss": 0.5})]
    assert wandb.exit_codes == [1, 0]


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("create_run", OSError("no route\nto the host")),
        ("log_batch", SystemExit(1)),
        ("set_terminated", OSError("no route\nto the host")),
    ],
)
def test_a_tracker_that_fails_is_one_warning(mlflow, wandb, tmp_path, caplog, where, error):
    def fail(*_arguments, **_options):
        raise error

    setattr(mlflow, where, fail)
    with caplog.at_level(logging.WARNING, logger="absl"):
        run(tmp_path, "mlflow", "wandb", steps=range(20))
    (warning,) = [one.getMessage() for one in caplog.records]
    reason = "no route" if isinstance(error, OSError) else "1"
    assert warning == f"mlflow gets no more of this run: {reason}"
    # The other one has all.
    assert len(wandb.logged) == 20


def test_a_package_that_is_missing_is_told_before_the_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    message = "needs the package wandb, which is not installed: pip install wandb$"
    with pytest.raises(UserError, match=message):
        trackers.check(["wandb"])
