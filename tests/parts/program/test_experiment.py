"""The complete program in one process: a run, an interrupted run, and runs that are refused."""

import copy
import dataclasses
import json
import shutil

import numpy as np
import pytest

from configs import digits
from tests.parts.program.data.specs import dataset_spec
from tests.parts.program.power_cut import power_cut_at
from tests.parts.program.sealed import unsealed
from train import experiment
from train.classifiers import trained
from train.foundation import folder_lock
from train.foundation.errors import UserError
from train.reports.metric import LOSS, Metric, from_json
from train.reports.outcomes import Outcomes
from train.training import loop
from train.workdir.progress import Progress

NUM_EPOCHS = 3

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.fixture(scope="module")
def config(run_seed):
    config = json.loads(digits.get_config().to_json())
    config["seed"] = run_seed
    config["num_epochs"] = NUM_EPOCHS
    return config


@pytest.fixture(scope="module")
def unbroken(config, tmp_path_factory, standard_promotion):
    workdir = tmp_path_factory.mktemp("unbroken") / "run"
    return workdir, experiment.run(config, workdir)


def without_times(results):
    """The results as text, which distinguishes numbers to the last bit and equates NaN with NaN."""
    times = ("epoch_seconds", "examples_per_second", "data_wait_share")
    kept = {name: value for name, value in results.items() if name not in times}
    return json.dumps(kept, sort_keys=True)


def test_a_second_run_in_the_workdir_is_told_of_the_first(config, tmp_path):
    workdir = tmp_path / "run"
    with (
        folder_lock.held(workdir, "a test"),
        pytest.raises(UserError, match=str(workdir)),
    ):
        experiment.run(config, workdir)
    assert list(workdir.iterdir()) == []


def test_the_accuracies_are_the_means_of_the_outcomes(config, unbroken):
    workdir, results = unbroken
    dataset = dataset_spec(config["dataset"]).load(None)
    outcomes = Outcomes.read(workdir / "outcomes_test.npz")
    assert not (workdir / "outcomes_balanced_test.npz").exists()
    np.testing.assert_array_equal(outcomes.labels, dataset.test.labels)
    assert (outcomes.ranks.min(), outcomes.ranks.dtype) == (0, np.int32)
    assert (outcomes.average_ks.tolist(), outcomes.average_ks.dtype) == ([1, 3, 5], np.int32)
    counts = np.bincount(dataset.train.labels)[outcomes.labels]
    chosen = {"medium": (counts >= 20) & (counts <= 100), "many": counts > 100}
    written = from_json(results["test"])
    accuracies = [metric for metric in written if metric.is_accuracy]
    assert len(accuracies) == 2 * 3 * 5
    for metric in accuracies:
        hits = outcomes.hits(metric)
        assert hits.shape == outcomes.labels.shape
        if metric.average == "few":
            # No digit has so few training images.
            continue
        taken = chosen.get(metric.average, np.ones_like(hits))
        if metric.average == "micro":
            mean = hits.mean()
        elif not taken.any():
            assert written[metric] is None
            continue
        else:
            classes = np.unique(outcomes.labels[taken])
            mean = np.mean([hits[outcomes.labels == one].mean() for one in classes])
        # Means of 0 and 1 over classes and over these, in 32 bits.
        assert written[metric] == pytest.approx(mean, rel=1e-6)


def outcomes_in(workdir):
    """The bytes of the file."""
    return (workdir / "outcomes_test.npz").read_bytes()


def test_what_is_called_after_each_epoch_can_stop_the_run(config, unbroken, tmp_path):
    class PrunedError(Exception):
        pass

    seen = {}

    def note(epoch, metrics):
        assert epoch not in seen
        seen[epoch] = dict(metrics)
        if epoch == 2:
            raise PrunedError

    workdir = tmp_path / "run"
    with pytest.raises(PrunedError):
        experiment.run(config, workdir, after_epoch=note)
    assert not (workdir / "results.json").exists()
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["split"] == "validation"]
    assert list(seen) == [line["epoch"] for line in epochs] == [1, 2]
    for metrics, line in zip(seen.values(), epochs, strict=True):
        # A metric without a value, as of classes that do not occur, is NaN here and null there.
        read = {name: None if np.isnan(value) else value for name, value in metrics.items()}
        assert read.items() <= line.items()
    # It resumes after the second epoch, as if it had not been stopped.
    results = experiment.run(config, workdir, after_epoch=note)
    assert list(seen) == [1, 2, 3]
    assert without_times(results) == without_times(unbroken[1])
    again = experiment.run(config, workdir, after_epoch=note)
    assert without_times(again) == without_times(results)


def refused(config, workdir, message, **options):
    before = sorted(workdir.rglob("*")) if workdir.is_dir() else None
    with pytest.raises(UserError, match=message):
        experiment.run(config, workdir, **options)
    after = sorted(workdir.rglob("*")) if workdir.is_dir() else None
    assert before == after


# Extensions: the finished run has two epochs of the three.


@pytest.fixture
def of_two_epochs(config, finished_run, tmp_path):
    """The workdir of a finished run that has one epoch less, and the configuration with it."""
    workdir = tmp_path / "run"
    shutil.copytree(finished_run, workdir)
    return config, workdir


def test_an_extended_run_ends_like_one_of_more_epochs(of_two_epochs, unbroken):
    config, workdir = of_two_epochs
    shorter = (workdir / "results.json").read_text()
    for name in ("evaluation_test.json", "sets.json"):
        (workdir / name).write_text("{}")
    outcomes = outcomes_in(workdir)
    with power_cut_at(2 * 19 + 7):
        experiment.run(config, workdir, extend=True)
    written = unsealed(workdir / "config.json")
    assert written == {**config, "extensions": [[2, 38]]}
    # What belongs only to the shorter run was moved, and is not lost.
    assert (workdir / "until_epoch_2" / "results.json").read_text() == shorter
    for name in ("evaluation_test.json", "sets.json"):
        assert (workdir / "until_epoch_2" / name).exists()
        assert not (workdir / name).exists()
    assert outcomes_in(workdir / "until_epoch_2") == outcomes
    assert not (workdir / "outcomes_test.npz").exists()
    # It resumes with and without the flag, like any interrupted run.
    results = experiment.run(config, workdir)
    assert results["config"] == written
    assert results["parameters_digest"] == unbroken[1]["parameters_digest"]
    assert results["test"] == unbroken[1]["test"]
    lines = [
        [line for line in (path / "metrics.jsonl").read_text().splitlines() if "epoch" in line]
        for path in (workdir, unbroken[0])
    ]
    steps = [[json.loads(line)["step"] for line in of_run] for of_run in lines]
    assert steps[0] == steps[1]
    assert without_times(experiment.run(config, workdir, extend=True)) == without_times(results)
    assert trained.load(workdir).results == results


def test_a_run_is_extended_on_request_alone(of_two_epochs):
    config, workdir = of_two_epochs
    refused(config, workdir, r"num_epochs: 2 -> 3\).* --extend")
    other = copy.deepcopy(config)
    other["optimizer"]["learning_rate"] = 0.01
    refused(other, workdir, "optimizer.learning_rate: .* -> 0.01", extend=True)
    refused({**config, "num_epochs": 1}, workdir, r"config\.num_epochs", extend=True)
    # Its checkpoints were deleted, or all are damaged.
    shutil.rmtree(workdir / "checkpoints")
    with pytest.raises(UserError, match="--extend"):
        experiment.run(config, workdir, extend=True)
    assert not (workdir / "until_epoch_2").exists()


def test_speed_leaves_out_the_epochs_that_compiled():
    progress = Progress()
    for seconds, waiting, compiled in ((9.0, 3.0, True), (1.0, 0.25, False), (7.0, 2.0, True)):
        progress = dataclasses.replace(progress, seconds=seconds, waiting=waiting)
        progress = progress.after_epoch(0.0, 0.0, compiled=compiled)
    assert progress.seconds_per_epoch() == 1.0
    assert progress.data_wait_share() == 0.25
    progress = dataclasses.replace(progress, unlogged=({"loss": 0.1, "accuracy": 1.0},))
    assert Progress.from_saved(json.loads(json.dumps(vars(progress)))) == progress
    first = Progress(seconds=9.0, waiting=4.5).after_epoch(0.0, 0.0, compiled=True)
    assert (first.seconds_per_epoch(), first.data_wait_share()) == (9.0, 0.5)


def test_a_validation_loss_of_nan_is_the_worst_of_a_tie():
    after_nan = Progress(step=1).after_epoch(0.5, float("nan"))
    assert after_nan.best_epoch == 1
    better = dataclasses.replace(after_nan, step=2).after_epoch(0.5, 0.1)
    assert better.best_epoch == 2
    assert dataclasses.replace(better, step=3).after_epoch(0.5, float("nan")).best_epoch == 2


def test_checkpoints_of_an_unknown_run_are_refused(config, tmp_path):
    (tmp_path / "checkpoints" / "19").mkdir(parents=True)
    refused(config, tmp_path, str(tmp_path))


TOP_1 = Metric.accuracy("top", 1)


def test_of_tied_epochs_that_with_the_lowest_loss_is_selected():
    progress, selected = Progress(), []
    for top_1, loss in ((0.5, 2.97), (0.5, 2.59), (0.5, 2.59), (0.4, 1.0), (0.5, 2.7), (0.6, 9.0)):
        # As a run that is resumed before each epoch.
        progress = Progress.from_saved(json.loads(json.dumps(vars(progress))))
        score = loop._score({LOSS: loss, TOP_1: top_1}, TOP_1)
        progress = dataclasses.replace(progress, seconds=1.0).after_epoch(score, loss)
        selected.append(progress.best_epoch)
    assert selected == [1, 2, 2, 2, 2, 6]
