"""Builds the parts of a run from its configuration, in order, and hands them to the loop."""

import contextlib
import dataclasses
import importlib.metadata
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from train import assembly, configuration
from train.data import Dataset, DatasetSpec, dataset_spec
from train.data.batches import steps_in_epoch
from train.devices import parallel, processes
from train.evaluation import bayes, metric, predictions, summaries
from train.evaluation.metric import Metric
from train.evaluation.predictions import Predictions
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.nested import differences
from train.models import pretrained
from train.models.classifier import Classifier
from train.training import label_estimates, optimizer, randomness, steps, stop_signals
from train.training.loop import Loop
from train.training.objectives import Objective
from train.training.state import (
    TrainState,
    initial_state,
    num_parameters,
    parameters_digest,
    start_from,
)
from train.training.stop_signals import Requests
from train.workdir import reporting, run_files
from train.workdir.checkpoint import Checkpointer
from train.workdir.classes import Classes
from train.workdir.progress import Progress

_REPORTED_VERSIONS = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def run(config: Mapping[str, Any], workdir: Path) -> dict[str, Any]:
    """Trains, selects and tests one classifier; goes on where an earlier run of it stopped.

    Args:
        config: the fields of the configuration, nested.
        workdir: where the run leaves everything; nothing is written before the configuration, the
            data set and the devices have been found to fit.

    Returns:
        What `results.json` holds; where the run was finished before, nothing is done but that.

    Raises:
        UserError: the configuration, the data set or the workdir is not fit for the run.
        InterruptedRunError: a signal came; the run has saved, and goes on when called again.
    """
    configuration.check(config)
    finished = _earlier_results(config, workdir)
    if finished is not None:
        if processes.is_first():
            reporting.show_finished(workdir, finished)
        return finished
    batch_size = config["dataset"]["batch_size"]
    parallel.check_batch_size(batch_size, config["optimizer"]["accumulation_steps"])
    spec = dataset_spec(config["dataset"])
    dataset = _load(config, spec)
    steps_per_epoch = _steps_per_epoch(dataset, batch_size)
    pipeline = assembly.build_pipeline(config, batch_size)
    class_counts = _class_counts(config, dataset)
    objective = assembly.build_objective(config, class_counts)
    model = assembly.build_classifier(config, dataset.num_classes)
    schedule = optimizer.schedule(
        config["optimizer"], num_epochs=config["num_epochs"], steps_per_epoch=steps_per_epoch
    )
    sgd = optimizer.sgd(
        schedule,
        momentum=config["optimizer"]["momentum"],
        nesterov=config["optimizer"]["nesterov"],
        weight_decay=config["optimizer"]["weight_decay"],
        clip_norm=config["optimizer"]["clip_norm"],
    )
    devices = parallel.DEVICES[config["parallel"]]()
    train_step = devices.compile_train_step(
        _train_step(config, model, objective, sgd, schedule, spec)
    )
    eval_step = devices.compile_eval_step(
        steps.make_eval_step(model.apply, objective, normalize=assembly.build_normalize(spec))
    )
    state = jax.device_get(
        initial_state(
            model,
            sgd,
            dataset.image_shape,
            randomness.initialization_key(config["seed"]),
            averaged=config["optimizer"]["average_decay"] is not None,
            label_logits=_initial_label_logits(config, objective, dataset),
        )
    )

    def predict(state: TrainState, split: str) -> Predictions:
        batches = pipeline.evaluation(getattr(dataset, split))
        return predictions.predict(eval_step, *state.evaluated, batches, devices)

    def validate(state: TrainState) -> tuple[summaries.Evaluation, dict[int, jax.Array]]:
        found = predict(state, "validation")
        thresholds = summaries.average_k_thresholds(found, config["eval"]["ks"])
        return summaries.summarize(found, thresholds, class_counts), thresholds

    last_step = config["num_epochs"] * steps_per_epoch
    with Checkpointer(workdir / run_files.CHECKPOINTS) as checkpointer:
        progress = Progress()
        restored = checkpointer.restore_latest(state)
        if restored is not None:
            state, saved = restored
            progress = Progress.from_saved(saved)
        elif config["model"]["pretrained"] is not None:
            state = _with_pretrained(state, config["model"])
        # From another file of weights, or another folder of checkpoints, in one of them.
        processes.check_same("the state to train from", lambda: _state_digest(state, progress))
        training = pipeline.training(dataset.train, first_step=progress.step, last_step=last_step)
        reporter_of_run = (
            reporting.Reporter(
                workdir,
                dict(config),
                Classes(dataset.class_names, tuple(class_counts.tolist())),
                num_epochs=config["num_epochs"],
                steps_per_epoch=steps_per_epoch,
                batch_size=batch_size,
                first_step=progress.step,
                unlogged=progress.unlogged,
            )
            if processes.is_first()
            else reporting.SilentReporter()
        )
        with reporter_of_run as reporter, contextlib.closing(training) as batches:
            with Requests(config["checkpoint"]["every_minutes"]) as asked:
                loop = Loop(
                    train_step=train_step,
                    validate=lambda state: validate(state)[0],
                    devices=devices,
                    checkpointer=checkpointer,
                    reporter=reporter,
                    asked=asked,
                    num_epochs=config["num_epochs"],
                    steps_per_epoch=steps_per_epoch,
                    select_by=Metric.parse(config["select_by"]),
                    stop_after=config["stop_after"],
                    save_every=config["checkpoint"]["every_steps"],
                )
                devices_state, progress = loop.run(devices.replicate(state), progress, batches)
            final = devices.to_host(devices_state)
            best = devices.replicate(checkpointer.restore(progress.best_step, state))
            validation, thresholds = validate(best)
            test = summaries.summarize(predict(best, "test"), thresholds, class_counts)
            results = {
                "config": dict(config),
                "num_parameters": num_parameters(final.params),
                "parameters_digest": parameters_digest(final.params),
                "num_classes": dataset.num_classes,
                "devices": jax.device_count(),
                "versions": {name: importlib.metadata.version(name) for name in _REPORTED_VERSIONS},
                "best_epoch": progress.best_epoch,
                "epoch_seconds": list(progress.epoch_seconds),
                "examples_per_second": steps_per_epoch * batch_size / progress.seconds_per_epoch(),
                "data_wait_share": progress.data_wait_share(),
                "validation": metric.to_json(validation.metrics),
                "test": metric.to_json(test.metrics),
            }
            if spec.true_distribution is not None:
                best_metrics = bayes.summarize(
                    spec.true_distribution,
                    dataset.test,
                    dataset.validation,
                    config["eval"]["ks"],
                    class_counts,
                )
                results["bayes"] = metric.to_json(best_metrics)
            return reporter.results(results, test.size_counts)


def _earlier_results(config: Mapping[str, Any], workdir: Path) -> dict[str, Any] | None:
    """The results of the run where it was finished before."""
    _check_workdir(config, workdir)
    finished = run_files.read_results(workdir)
    processes.check_same("the configuration", lambda: json.dumps(config, sort_keys=True))
    processes.check_same("what --workdir holds", lambda: json.dumps(finished, sort_keys=True))
    return finished


def _load(config: Mapping[str, Any], spec: DatasetSpec) -> Dataset:
    # Some data sets are prepared where they are first used.
    dataset = processes.first_then_others(
        lambda: spec.load(config["dataset"]["data_dir"], seed=config["seed"])
    )
    labels = [split.labels for split in (dataset.train, dataset.validation, dataset.test)]
    processes.check_same("the data set", lambda: parameters_digest(labels))
    return dataset


def _class_counts(config: Mapping[str, Any], dataset: Dataset) -> np.ndarray:
    """The training images of each class; refuses a selection that they leave without a value."""
    class_counts = np.bincount(dataset.train.labels, minlength=dataset.num_classes)
    # Here and not where it is selected by: an epoch can take an hour.
    select_by = Metric.parse(config["select_by"])
    summaries.check_has_value(select_by, dataset.validation.labels, class_counts)
    return class_counts


def _state_digest(state: TrainState, progress: Progress) -> str:
    """A digest of all that a run goes on from."""
    return parameters_digest(state) + json.dumps(dataclasses.asdict(progress))


def _with_pretrained(state: TrainState, settings: Mapping[str, Any]) -> TrainState:
    """The state before the first step with the weights of the file in it."""
    loaded = pretrained.load_pretrained(
        settings["pretrained"], state.params, state.batch_stats, model_name=settings["name"]
    )
    if processes.is_first():
        show_line(loaded.message)
    return start_from(state, loaded.params, loaded.batch_stats)


def _train_step(
    config: Mapping[str, Any],
    model: Classifier,
    objective: Objective,
    sgd: optax.GradientTransformation,
    schedule: optax.Schedule,
    spec: DatasetSpec,
) -> Callable[..., Any]:
    step = steps.make_train_step(
        model.apply,
        objective,
        sgd,
        schedule,
        augment=spec.augment,
        normalize=assembly.build_normalize(spec),
        seed=config["seed"],
        axis_name=parallel.AXIS_NAME,
        sync_batch_norm=config["model"]["sync_batch_norm"],
        accumulation_steps=config["optimizer"]["accumulation_steps"],
        average_decay=config["optimizer"]["average_decay"],
        label_schedule=_label_schedule(config, objective, schedule),
    )
    return stop_signals.carried_by(step, axis_name=parallel.AXIS_NAME)


def _label_schedule(
    config: Mapping[str, Any], objective: Objective, schedule: optax.Schedule
) -> optax.Schedule | None:
    """The rate of the estimated labels: one of their own, with the decays of the network's."""
    if objective.label_learning_rate is None:
        return None
    ratio = objective.label_learning_rate / config["optimizer"]["learning_rate"]
    return lambda step: ratio * schedule(step)


def _initial_label_logits(
    config: Mapping[str, Any], objective: Objective, dataset: Dataset
) -> np.ndarray | None:
    if objective.label_learning_rate is None:
        return None
    return label_estimates.initial(
        dataset.train.labels, num_classes=dataset.num_classes, seed=config["seed"]
    )


def _check_workdir(config: Mapping[str, Any], workdir: Path) -> None:
    """Refuses a workdir that is a file, or that holds a run of another configuration."""
    if workdir.exists() and not workdir.is_dir():
        raise UserError(f"--workdir must be a directory; {workdir} is a file")
    earlier = run_files.read_config(workdir)
    if earlier is None:
        checkpoints = workdir / run_files.CHECKPOINTS
        if checkpoints.is_dir() and any(checkpoints.iterdir()):
            raise UserError(
                f"--workdir {workdir} holds checkpoints, and no config.json that says of what run; "
                "give another --workdir, or delete it"
            )
        return
    differing = differences(earlier, config)
    if differing:
        raise UserError(
            f"--workdir {workdir} holds a run of another configuration ({'; '.join(differing)}); "
            "give another --workdir"
        )


def _steps_per_epoch(dataset: Dataset, batch_size: int) -> int:
    steps = steps_in_epoch(len(dataset.train), batch_size)
    if steps == 0:
        raise UserError(
            f"config.dataset.batch_size must be at most the {len(dataset.train)} training "
            f"examples; got {batch_size}"
        )
    return steps
