"""The complete program in one process: a run, an interrupted run, and runs that are refused."""

import json

import numpy as np
import pytest

from configs import digits
from tests.parts.program.data.specs import dataset_spec
from train.foundation import files
from train.foundation.errors import UserError
from train.reports.metric import from_json
from train.reports.outcomes import Outcomes
from train.run import experiment

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
        files.lock(workdir, "a test"),
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


def test_checkpoints_of_an_unknown_run_are_refused(config, tmp_path):
    (tmp_path / "checkpoints" / "19").mkdir(parents=True)
    with pytest.raises(UserError, match=str(tmp_path)):
        experiment.run(config, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]
