"""Runs whose classes are split over devices equal runs whose devices have all classes."""

import json
import re

import jax
import numpy as np
import pytest

from configs import synthetic_latents
from tests.parts.program import some_steps
from tests.parts.program.forked import start
from tests.parts.program.roundings import check_same_metrics, check_with_some_seed
from train import experiment
from train.assembly import assemble
from train.classifiers import trained
from train.configuration.parsing import parse
from train.reports.summaries import average_k_thresholds
from train.training.losses import LOSSES

pytestmark = pytest.mark.usefixtures("standard_promotion")

NUM_CLASSES, NUM_STEPS = 40, 3


def configured(loss, class_devices=None, *, seed=0, **fields):
    """The configuration of a small run; without a number of devices they only split the batch."""
    config = synthetic_latents.get_config(loss)
    small = {
        "seed": seed,
        "dataset.num_classes": NUM_CLASSES,
        "dataset.num_genera": 8,
        "dataset.num_train": 8 * NUM_CLASSES,
        "dataset.num_validation": 80,
        "dataset.num_test": 80,
        "dataset.balanced_per_class": 2,
        "dataset.batch_size": 64,
        "model.width": 24,
    }
    mesh = {} if class_devices is None else {"parallel": "mesh", "class_devices": class_devices}
    unmeshed = {"parallel": "shard_map"} if class_devices is None else {}
    config.update_from_flattened_dict({**small, **unmeshed, **mesh, **fields})
    plain = json.loads(config.to_json())
    parse(plain)
    return plain


def after_some_steps(config):
    """The parameters, the averages, the metrics of each step, and the predictions."""
    assembly = assemble(parse(config))
    state, metrics = some_steps.make(assembly, NUM_STEPS)
    found = assembly.evaluator.predict(*state.evaluated, "validation")
    host = assembly.devices.to_host(state)
    return host.params, host.averages, metrics, (found.loss, found.values), found.ranks


def virtual(devices):
    """The environment of a command with a number of threads as devices."""
    return {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} "
        "--xla_cpu_enable_concurrency_optimized_scheduler=false"
    }


def assert_equal(found, expected):
    """Equal up to sums over 40 classes and over the batch in another order."""
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5),
        found,
        expected,
    )


SPLITTING = sorted(name for name, loss in LOSSES.items() if loss.splits_classes)
OPTIONS = {
    "clipped": ("cross_entropy", {"optimizer.clip_norm": 0.1, "loss.label_smoothing": 0.1}),
    "weighted": (
        "focal",
        {"loss.class_weights": "class_balanced", "loss.class_weights_beta": 0.9},
    ),
    "mixed": (
        "noised_balanced",
        {"dataset.mixup": 0.3, "optimizer.accumulation_steps": 2, "dataset.batch_size": 32},
    ),
    "cosine": (
        "calibrated_top_k_hinge",
        {"model.head": "cosine", "model.scale": 20.0, "model.learn_scale": True},
    ),
    "averaged": ("top_k_hinge", {"optimizer.name": "adamw", "optimizer.average_decay": 0.9}),
    "rates": ("entmax", {"optimizer.head_learning_rate": 0.5, "optimizer.layer_decay": 0.5}),
    "frozen": ("ldam", {"model.freeze": True}),
    # As many units below the head as classes.
    "square": ("cross_entropy", {"model.width": NUM_CLASSES}),
    "sigmoid": ("average_k", {"eval.scores": "sigmoid"}),
}


@pytest.mark.parametrize("loss", SPLITTING)
def test_each_loss_that_splits_classes(loss):
    def check(seed):
        expected = after_some_steps(configured(loss, seed=seed))
        for class_devices in (2, 8) if loss in ("noised_balanced", "average_k") else (4,):
            found = after_some_steps(configured(loss, class_devices, seed=seed))
            assert_equal(found, expected)

    check_with_some_seed(check)


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_that_depends_on_classes(option):
    loss, fields = OPTIONS[option]

    def check(seed):
        expected = after_some_steps(configured(loss, seed=seed, **fields))
        assert_equal(after_some_steps(configured(loss, 4, seed=seed, **fields)), expected)

    check_with_some_seed(check)


def test_without_shared_classes_a_mesh_is_shard_map():
    """To the last bit, and with any loss."""
    found, expected = (after_some_steps(configured("role", size)) for size in (1, None))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def whole_rows(program, num_classes):
    """The arrays of a compiled program that have a number for each class of all."""
    return set(re.findall(rf"\w+\[(?:\d+,)*{num_classes}(?:,\d+)*\]", program))


@pytest.mark.parametrize(
    ("loss", "fields"),
    [
        ("noised_imbalanced", {}),
        ("average_k", {"optimizer.name": "adamw"}),
        ("cross_entropy", {"loss.class_weights": "class_balanced", "optimizer.clip_norm": 1.0}),
    ],
)
def test_no_device_has_a_number_for_each_class(monkeypatch, loss, fields):
    # No size of a layer, of a batch or of a selection.
    num_classes, class_devices = 1048, 4
    sizes = {"dataset.num_classes": num_classes, "dataset.num_train": 4 * num_classes}
    programs = {}
    jit = jax.jit

    def compiled(function, **settings):
        jitted = jit(function, **settings)
        name = getattr(function, "__qualname__", "initial state")
        if "Devices" not in name and "out_shardings" not in settings:
            return jitted

        def call(*arguments):
            if name not in programs:
                programs[name] = jitted.lower(*arguments).compile().as_text()
            return jitted(*arguments)

        return call

    monkeypatch.setattr(jax, "jit", compiled)
    after_some_steps(configured(loss, class_devices, **sizes, **fields))
    # The initial state, a step of training and one of evaluation.
    assert len(programs) == 3
    for program in programs.values():
        assert whole_rows(program, num_classes // class_devices)
        assert not whole_rows(program, num_classes)


class StopError(Exception):
    """The end of a run that will be resumed."""


def test_a_run_goes_on_along_another_mesh_and_is_used_on_one_device(tmp_path):
    def check(seed):
        workdir, unbroken = tmp_path / f"{seed}-run", tmp_path / f"{seed}-unbroken"
        fields = {"seed": seed, "num_epochs": 3, "optimizer.decay_epochs": ()}
        expected = experiment.run(configured("noised_balanced", **fields), unbroken)

        def stop(_epoch, _metrics):
            raise StopError

        for class_devices in (4, 2):
            config = configured("noised_balanced", class_devices, **fields)
            with pytest.raises(StopError):
                experiment.run(config, workdir, after_epoch=stop)
            config = json.loads((workdir / "config.json").read_text())
            assert (config["parallel"], config["class_devices"]) == ("mesh", class_devices)
        results = experiment.run(configured("noised_balanced", parallel="pmap", **fields), workdir)
        found, whole = (trained.load(folder) for folder in (workdir, unbroken))
        assert_equal(found.params, whole.params)
        for split in ("validation", "test"):
            check_metrics(results[split], expected[split], found, split)

    check_with_some_seed(check)


def check_metrics(found, expected, classifier, split):
    predicted = classifier.split(split)
    thresholds = average_k_thresholds(classifier.split("validation"), classifier.config.eval.ks)
    check_same_metrics(found, expected, predicted.values, predicted.labels, thresholds.values())


def test_a_recipe_that_splits_classes_is_the_same_on_one_device(tmp_path):
    def check(seed):
        found = {devices: trained_on(devices, seed) for devices in (8, 1)}
        (losses, test_loss), (expected, expected_test_loss) = found[8], found[1]
        assert len(losses) >= 3
        # Sums in another order, whose differences ten steps of Adam enlarge.
        assert losses == pytest.approx(expected, rel=1e-4)
        assert test_loss == pytest.approx(expected_test_loss, rel=1e-4)

    def trained_on(devices, seed):
        workdir = tmp_path / f"{devices}-{seed}"
        fields = {
            "seed": seed,
            "num_epochs": 1,
            "dataset.num_classes": 4096,
            "dataset.num_train": 640,
        }
        done = start(
            "train.main",
            "--config=configs/million_classes.py",
            f"--workdir={workdir}",
            *(f"--config.{name}={value}" for name, value in fields.items()),
            environment=virtual(devices),
        )
        assert done.returncode == 0, done.stderr
        assert (" classes, shared by 8 devices; " in done.stdout) == (devices == 8)
        lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
        results = json.loads((workdir / "results.json").read_text())
        assert results["devices"] == devices
        return [line["loss"] for line in lines], results["test"]["loss"]

    check_with_some_seed(check)


def test_what_the_machine_cannot_share_is_one_line(tmp_path):
    """Two of six devices can divide the classes: the batch is for three groups."""
    for flags, message in (
        (("--config.dataset.num_classes=4000",), "a multiple of the 3 groups of 2 devices; got 64"),
        (("--config.class_devices=4",), "must divide the 6 devices: one of 1, 2, 3, 6; got 4"),
        (("--config.loss.name=role",), "class_devices must be 1 with role, which needs all"),
    ):
        done = start(
            "train.main",
            "--config=configs/million_classes.py",
            f"--workdir={tmp_path / 'run'}",
            *flags,
            environment=virtual(6),
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert message in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_evaluated_predicted_and_exported_on_any_devices(tmp_path):
    workdir = tmp_path / "run"
    results = experiment.run(configured("average_k", 4, num_epochs=1), workdir)
    classifier = trained.load(workdir)
    for devices in (1, 4):
        done = start("train.evaluate", f"--workdir={workdir}", environment=virtual(devices))
        assert done.returncode == 0, done.stderr
        rows = json.loads((workdir / "evaluation_test.json").read_text())["sets"]
        found = {
            f"{text.replace('_k=', '_')}_accuracy": row["coverage"]
            for text, row in rows.items()
            if "_k=" in text
        }
        expected = {name: results["test"][name] for name in found}
        check_metrics(found, expected, classifier, "test")
    out = tmp_path / "exported"
    done = start("train.export", f"--workdir={workdir}", f"--out={out}", "--average_k=5")
    assert done.returncode == 0, done.stderr
    program = jax.export.deserialize(bytearray(out.read_bytes()))
    split = classifier.load_dataset().test
    _, chosen = program.call(split.rows(np.arange(20)))
    assert chosen.shape == (20, NUM_CLASSES)
    expected = classifier.split("test").values[:20]
    probabilities, _ = program.call(split.rows(np.arange(20)))
    assert_equal(probabilities, expected)
