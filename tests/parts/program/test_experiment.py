"""The complete program in one process: a run, an interrupted run, and runs that are refused."""

import copy
import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from configs import cifar100, digits
from tests.parts.program.data.specs import dataset_spec
from tests.parts.program.power_cut import power_cut_at
from tests.parts.program.sealed import unsealed
from train import experiment
from train.evaluation.metric import LOSS, Metric, from_json
from train.evaluation.outcomes import Outcomes
from train.foundation import files, folder_lock
from train.foundation.errors import InterruptedRunError, UserError
from train.prediction import trained
from train.training import loop
from train.workdir.progress import Progress

NUM_EPOCHS = 3
STOPPED_AT_END = "stopped by {}: saved after step .*, at the end of the training; the same command"

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.fixture(scope="module")
def config(tmp_path_factory, run_seed):
    config = json.loads(digits.get_config().to_json())
    config["seed"] = run_seed
    config["num_epochs"] = NUM_EPOCHS
    config["dataset"]["data_dir"] = str(tmp_path_factory.mktemp("data"))
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
        pytest.raises(UserError, match=f"^another run is using {workdir}; wait until it ends"),
    ):
        experiment.run(config, workdir)
    assert list(workdir.iterdir()) == []


def test_a_run_leaves_everything(config, unbroken):
    workdir, results = unbroken
    assert unsealed(workdir / "config.json") == config
    written = unsealed(workdir / "results.json")
    assert set(written) == {
        *("config", "num_parameters", "parameters_digest", "num_classes", "devices", "versions"),
        *("best_epoch", "selected_by", "evaluated"),
        *("epoch_seconds", "examples_per_second", "data_wait_share"),
        *("validation", "test"),
    }
    assert written["num_classes"] == 10
    assert written["devices"] == 8
    assert written["selected_by"] == config["select_by"]
    assert written["evaluated"]["test"] == {
        "groups": {
            "all": {"classes": 10, "examples": 270},
            "few": {"classes": 0, "examples": 0},
            "medium": {"classes": 0, "examples": 0},
            "many": {"classes": 10, "examples": 270},
        },
        "classes_without_examples": 0,
        "named": [],
    }
    assert len(written["epoch_seconds"]) == NUM_EPOCHS
    assert written["parameters_digest"] == results["parameters_digest"]
    # 1,257 images in three epochs: far above the 0.3 of guessing three of ten digits.
    assert written["test"]["top_3_accuracy"] > 0.8
    for split in ("validation", "test"):
        for k in (1, 3, 5):
            assert f"average_{k}_set_size" in written[split]
            assert f"macro_top_{k}_accuracy" in written[split]
        # No digit has so few training images.
        assert written[split]["few_top_3_accuracy"] is None
    # On the data it was calibrated with, the mean size never passes K.
    for k in (1, 3, 5):
        assert written["validation"][f"average_{k}_set_size"] <= k
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["split"] == "validation"]
    assert [line["epoch"] for line in epochs] == [1, 2, 3]
    losses = [line["loss"] for line in epochs]
    assert written["best_epoch"] == 1 + int(np.argmin(losses))  # The first of equals.
    assert written["validation"]["loss"] == min(losses)
    assert (workdir / "learning_curves.png").stat().st_size > 0
    assert list((workdir / "tensorboard").glob("events*"))


def test_the_accuracies_are_the_means_of_the_outcomes(config, unbroken):
    workdir, results = unbroken
    dataset = dataset_spec(config["dataset"]).load(config["dataset"]["data_dir"])
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


def test_a_signal_after_the_last_step_stops_the_run_before_the_test(config, unbroken, tmp_path):
    def stop(epoch, _metrics):
        if epoch == config["num_epochs"]:
            os.kill(os.getpid(), signal.SIGTERM)

    workdir = tmp_path / "run"
    with pytest.raises(InterruptedRunError, match=STOPPED_AT_END.format("SIGTERM")):
        experiment.run(config, workdir, after_epoch=stop)
    assert not (workdir / "results.json").exists()
    assert without_times(experiment.run(config, workdir)) == without_times(unbroken[1])


def test_a_run_without_its_results_writes_its_outcomes_again(
    config, unbroken, tmp_path, monkeypatch
):
    workdir = tmp_path / "run"
    write_whole = files.write_whole

    def interrupt(path, content):
        if path.name == "results.json":
            raise KeyboardInterrupt
        write_whole(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_whole", interrupt)
        with pytest.raises(InterruptedRunError, match=STOPPED_AT_END.format("SIGINT")):
            experiment.run(config, workdir)
    # A run with results has its outcomes; without results they are written again.
    assert outcomes_in(workdir) == outcomes_in(unbroken[0])
    (workdir / "outcomes_test.npz").write_bytes(b"")
    results = experiment.run(config, workdir)
    assert without_times(results) == without_times(unbroken[1])
    assert outcomes_in(workdir) == outcomes_in(unbroken[0])


@pytest.mark.parametrize(
    ("label_noise", "message"),
    [
        # It is the same run, and continues by opening its data.
        (0.0, "cifar100 is not prepared in"),
        (0.2, r"another configuration \(dataset.label_noise_kind: 'superclass' -> 'blocks'\)"),
    ],
)
def test_a_run_without_label_noise_goes_on_whatever_its_kind(tmp_path, label_noise, message):
    config = json.loads(cifar100.get_config().to_json())
    config["dataset"] |= {"label_noise": label_noise, "data_dir": str(tmp_path / "data")}
    earlier = copy.deepcopy(config)
    earlier["dataset"]["label_noise_kind"] = "superclass"
    (tmp_path / "config.json").write_text(json.dumps(earlier))
    with pytest.raises(UserError, match=message):
        experiment.run(config, tmp_path)


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
    config = copy.deepcopy(config)
    config["dataset"]["data_dir"] = str(finished_run.parent / "data")
    return config, workdir


def test_an_extended_run_ends_like_one_of_more_epochs(of_two_epochs, unbroken):
    config, workdir = of_two_epochs
    shorter = (workdir / "results.json").read_text()
    for name in ("evaluation_test.json", "calibration.json"):
        (workdir / name).write_text("{}")
    outcomes = outcomes_in(workdir)
    with power_cut_at(2 * 19 + 7):
        experiment.run(config, workdir, extend=True)
    written = unsealed(workdir / "config.json")
    assert written == {**config, "extensions": [[2, 38]]}
    # What belongs only to the shorter run was moved, and is not lost.
    assert (workdir / "until_epoch_2" / "results.json").read_text() == shorter
    for name in ("evaluation_test.json", "calibration.json"):
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
    message = r"\(num_epochs: 2 -> 3\); give another --workdir or --extend, which trains the run f"
    refused(config, workdir, message)
    other = copy.deepcopy(config)
    other["optimizer"]["learning_rate"] = 0.01
    message = r"\(num_epochs: 2 -> 3; optimizer.learning_rate.*\); give another --workdir$"
    refused(other, workdir, message)
    message = (
        r"another configuration \(optimizer.learning_rate: .* -> 0.01\); give another --workdir$"
    )
    refused(other, workdir, message, extend=True)


def test_what_cannot_be_extended_is_refused(of_two_epochs, tmp_path):
    config, workdir = of_two_epochs
    message = r"config\.num_epochs must be larger than the 2 of the run that is extended; got 1"
    refused({**config, "num_epochs": 1}, workdir, message, extend=True)
    refused(config, tmp_path / "none", "--extend needs a run in --workdir; .* none", extend=True)
    progress = Progress(step=38, best_epoch=1, epoch_seconds=(1.0, 1.0))
    stopped = SimpleNamespace(config=SimpleNamespace(stop_after=1))
    with pytest.raises(UserError, match="it stopped in epoch 2, 1 epochs after its best one"):
        experiment._extend(stopped, workdir, progress, shorter=2)
    # Its checkpoints were deleted, or all are damaged.
    with pytest.raises(UserError, match="--extend needs a checkpoint to continue from; the run in"):
        experiment._extend(stopped, workdir, Progress(), shorter=2)
    assert not (workdir / "until_epoch_2").exists()


def test_a_new_run_by_the_configuration_of_an_extended_one_is_not_extended(config, tmp_path):
    of_extended = {**config, "extensions": [[2, 38]]}
    parsed, shorter = experiment._parsed(of_extended, tmp_path / "run", extend=False)
    assert (parsed.extensions, shorter) == ((), None)


def test_more_steps_than_can_be_counted_write_nothing(config, tmp_path):
    message = r"config.num_epochs must be at most \d+ with 19 steps an epoch; got 1000000000"
    refused({**config, "num_epochs": 10**9}, tmp_path / "run", message)


def test_a_selection_that_can_have_no_value_writes_nothing(config, tmp_path):
    # No digit has fewer than 20 training images.
    config = {**config, "select_by": "few_top_3_accuracy"}
    refused(config, tmp_path / "run", "config.select_by must be .* 'few_top_3_accuracy' has no")


def test_a_workdir_of_another_run_is_refused(config, tmp_path):
    other = copy.deepcopy(config)
    other["loss"]["name"] = "cross_entropy"
    (tmp_path / "config.json").write_text(json.dumps(other))
    refused(config, tmp_path, "'cross_entropy' -> 'noised_balanced'.*give another --workdir")


def test_a_workdir_that_is_a_file_is_refused(config, tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    refused(config, path, "--workdir must be a directory")


def test_a_workdir_that_is_a_link_to_nothing_is_refused(config, tmp_path):
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "nothing")
    message = f"--workdir must be a directory; {path} is a link to a folder that does not exist$"
    refused(config, path, message)


def test_a_workdir_of_the_system_is_refused(config):
    message = "^--workdir must not be in /proc, a folder of the system; got /proc/self/run$"
    refused(config, Path("/proc/self/run"), message)


@pytest.mark.parametrize(
    "name", ["classes.json", "learning_curves.png", "metrics.jsonl", "outcomes_test.npz"]
)
def test_a_folder_in_the_place_of_a_file_of_the_run_is_refused(config, tmp_path, name):
    (tmp_path / name).mkdir()
    refused(
        config, tmp_path, f"{tmp_path}/{name} must be a file, to be written to; it is a folder$"
    )


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard"])
def test_a_file_in_the_place_of_a_folder_of_the_run_is_refused(config, tmp_path, name):
    path = tmp_path / name
    path.touch()
    refused(config, tmp_path, f"^{path} must be a folder, for [a-zA-Z]+; it is not$")
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    refused(config, tmp_path, f"^{path} must be a folder, for [a-zA-Z]+; it is not$")


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unlogged": [1.0]}, "whose 'unlogged' is a list whose element 0 is an object$"),
        ({"unlogged": [{}]}, "whose element 0 is an object with 'loss'$"),
        ({"epoch_waiting": None}, "whose 'epoch_waiting' is a list$"),
        ({"best_step": -1}, "whose 'best_step' is an integer of at least 0$"),
    ],
)
def test_progress_of_another_version_is_refused(changes, message):
    saved = json.loads(json.dumps(vars(Progress())))
    # A field that a later version added is not one of ours.
    assert Progress.from_saved({**saved, "added": 1}) == Progress()
    with pytest.raises(UserError, match=f"^the progress in the latest checkpoint .*{message}"):
        Progress.from_saved({**saved, **changes})
    del saved["epoch_waiting"]
    with pytest.raises(UserError, match=r"must be an object with 'epoch_waiting'$"):
        Progress.from_saved(saved)


def test_checkpoints_of_an_unknown_run_are_refused(config, tmp_path):
    (tmp_path / "checkpoints" / "19").mkdir(parents=True)
    refused(config, tmp_path, "holds checkpoints but no config.json")


def test_a_damaged_data_set_is_refused(config, tmp_path):
    config = copy.deepcopy(config)
    config["dataset"]["data_dir"] = str(tmp_path / "data")
    dataset_spec({"name": "digits"}).load(str(tmp_path / "data"))
    (train,) = (tmp_path / "data").rglob("digits-train*")
    train.write_bytes(train.read_bytes()[:1000])
    refused(config, tmp_path / "run", "digits.* is damaged .* delete its folder")


TOP_1 = Metric.accuracy("top", 1)
FEW_TOP_3 = Metric.accuracy("top", 3, "few")


def test_a_run_that_diverges_says_so():
    with pytest.raises(UserError, match="training diverged: the validation loss is nan"):
        loop._score({LOSS: float("nan"), TOP_1: 0.1}, TOP_1)


def test_a_selection_without_a_value_is_refused():
    with pytest.raises(UserError, match="'few_top_3_accuracy' has no value"):
        loop._score({LOSS: 1.0, FEW_TOP_3: float("nan")}, FEW_TOP_3)


def test_only_a_strictly_better_epoch_is_selected():
    progress = Progress()
    for step, loss in ((10, 0.5), (20, 0.3), (30, 0.3), (40, 0.4)):
        progress = dataclasses.replace(progress, step=step, seconds=1.0)
        progress = progress.after_epoch(loop._score({LOSS: loss}, LOSS), loss)
    assert (progress.best_epoch, progress.best_step, progress.best_score) == (2, 20, -0.3)
    assert progress.epoch_seconds == (1.0,) * 4


def test_of_tied_epochs_that_with_the_lowest_loss_is_selected():
    progress, selected = Progress(), []
    for top_1, loss in ((0.5, 2.97), (0.5, 2.59), (0.5, 2.59), (0.4, 1.0), (0.5, 2.7), (0.6, 9.0)):
        # As a run that is resumed before each epoch.
        progress = Progress.from_saved(json.loads(json.dumps(vars(progress))))
        score = loop._score({LOSS: loss, TOP_1: top_1}, TOP_1)
        progress = dataclasses.replace(progress, seconds=1.0).after_epoch(score, loss)
        selected.append(progress.best_epoch)
    assert selected == [1, 2, 2, 2, 2, 6]
