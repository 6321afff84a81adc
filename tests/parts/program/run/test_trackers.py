"""A run does not depend on its trackers, and a resumed one is one run there.

MLflow itself is in tests/peers/oracle/test_mlflow.py.
"""

import itertools
import logging
import shutil
import sys

import pytest

from train.foundation.errors import UserError
from train.run import trackers
from train.run.trackers import Trackers

CONFIG = {"seed": 0, "model": {"name": "x" * 300}}
STARTS = itertools.count()


class WandB:
    """What a run uses of Weights & Biases."""

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
def wandb(monkeypatch):
    fake = WandB()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def run(workdir, *names, steps=(5,), finished=True):
    (workdir / "tensorboard").mkdir(parents=True, exist_ok=True)
    # The next start of a run has a later one.
    (workdir / "tensorboard" / f"events.{next(STARTS):03}").touch()
    made = Trackers(names, workdir, CONFIG)
    for step in steps:
        made.write(step, "train", {"loss": 0.5})
    made.close(finished=finished)


def test_wandb_has_one_run_for_a_workdir(wandb, tmp_path):
    trackers.check(["wandb"])
    run(tmp_path / "run", "wandb", finished=False)
    run(tmp_path / "run", "wandb", steps=(10,))
    # A new run in the place of a deleted one.
    shutil.rmtree(tmp_path / "run")
    run(tmp_path / "run", "wandb", steps=())
    first, resumed, new = wandb.started
    assert first["id"] == resumed["id"] != new["id"]
    assert (first["name"], first["resume"]) == ("run", "allow")
    assert first["config"] == {"seed": 0, "model.name": "x" * 300}
    assert wandb.logged == [(5, {"train/loss": 0.5}), (10, {"train/loss": 0.5})]
    assert wandb.exit_codes == [1, 0, 0]


@pytest.mark.parametrize("where", ["init", "log", "finish"])
@pytest.mark.parametrize("error", [OSError("no route\nto the host"), SystemExit(1)])
def test_a_tracker_that_fails_is_one_warning(wandb, tmp_path, caplog, monkeypatch, where, error):
    def fail(*_arguments, **_options):
        raise error

    setattr(wandb, where, fail)
    other = WandB()
    other.start = lambda _workdir, _fields: None
    other.write = lambda step, metrics: other.log(metrics, step)
    other.close = other.finish
    monkeypatch.setitem(trackers.KINDS, "mlflow", lambda: other)
    with caplog.at_level(logging.WARNING, logger="absl"):
        run(tmp_path, "wandb", "mlflow", steps=range(20))
    (warning,) = [one.getMessage() for one in caplog.records]
    reason = "no route" if isinstance(error, OSError) else "1"
    assert warning == f"wandb gets no more of this run: {reason}"
    assert len(other.logged) == 20


def test_a_package_that_is_missing_is_told_before_the_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    message = r"needs the package wandb \(.*\): pip install wandb$"
    with pytest.raises(UserError, match=message):
        trackers.check(["wandb"])
