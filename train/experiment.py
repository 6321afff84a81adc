"""Builds the parts of a run from its configuration, in order, and hands them to the loop."""

import contextlib
import functools
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train import configuration, evaluate, loop, optimizer, parallel, randomness, reporting, steps
from train.checkpoint import Checkpointer
from train.data import Dataset, Split, dataset_spec
from train.data.augmentation import normalize
from train.data.batches import steps_in_epoch
from train.data.pipeline import Pipeline
from train.errors import UserError
from train.models import build_model
from train.objectives import LOSSES
from train.state import TrainState, initial_state, num_parameters, parameters_digest

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
    """
    configuration.check(config)
    _check_workdir(config, workdir)
    finished = reporting.read_results(workdir)
    if finished is not None:
        reporting.show_finished(workdir, finished)
        return finished
    batch_size = config["dataset"]["batch_size"]
    parallel.check_batch_size(batch_size)
    spec = dataset_spec(config["dataset"])
    dataset = spec.load(config["dataset"]["data_dir"], seed=config["seed"])
    steps_per_epoch = _steps_per_epoch(dataset, batch_size)
    pipeline = Pipeline(
        batch_size,
        config["seed"],
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        # Only streamed data sets have these two.
        num_workers=config["dataset"].get("num_workers", 0),
        skip_unreadable=config["dataset"].get("skip_unreadable", False),
    )

    loss_spec = LOSSES[config["loss"]["name"]]
    model = build_model(
        config["model"]["name"],
        num_classes=spec.num_classes,
        head=loss_spec.head,
        axis_name=parallel.AXIS_NAME,
        half_precision=config["model"]["half_precision"],
    )
    class_counts = np.bincount(dataset.train.labels, minlength=spec.num_classes)
    objective = loss_spec.objective(config["loss"], class_counts, axis_name=parallel.AXIS_NAME)
    settings = config["optimizer"]
    schedule = optimizer.step_decay(
        settings["learning_rate"],
        decay_epochs=settings["decay_epochs"],
        decay_factor=settings["decay_factor"],
        steps_per_epoch=steps_per_epoch,
    )
    sgd = optimizer.sgd(
        schedule,
        momentum=settings["momentum"],
        nesterov=settings["nesterov"],
        weight_decay=settings["weight_decay"],
    )
    normalize_images = functools.partial(normalize, mean=spec.mean, std=spec.std)
    train_step = parallel.compile_train_step(
        steps.make_train_step(
            model.apply,
            objective,
            sgd,
            schedule,
            augment=spec.augment,
            normalize=normalize_images,
            seed=config["seed"],
            axis_name=parallel.AXIS_NAME,
        )
    )
    eval_step = parallel.compile_eval_step(
        steps.make_eval_step(model.apply, objective, normalize=normalize_images)
    )
    state = jax.device_get(
        initial_state(model, sgd, spec.image_shape, randomness.initialization_key(config["seed"]))
    )

    def predict(state: TrainState, split: str) -> evaluate.Predictions:
        batches = pipeline.evaluation(getattr(dataset, split))
        return evaluate.predict(eval_step, state.params, state.batch_stats, batches)

    def validate(state: TrainState) -> tuple[dict[str, float], dict[int, jax.Array]]:
        predictions = predict(state, "validation")
        thresholds = evaluate.average_k_thresholds(predictions, config["eval"]["ks"])
        return evaluate.summarize(predictions, thresholds, class_counts), thresholds

    last_step = config["num_epochs"] * steps_per_epoch
    with Checkpointer(workdir / reporting.CHECKPOINTS) as checkpointer:
        progress = loop.Progress()
        restored = checkpointer.restore_latest(state)
        if restored is not None:
            state, saved = restored
            progress = loop.Progress.from_saved(saved)
        first_step = len(progress.epoch_seconds) * steps_per_epoch
        training = pipeline.training(dataset.train, first_step=first_step, last_step=last_step)
        with (
            reporting.Reporter(
                workdir,
                dict(config),
                num_epochs=config["num_epochs"],
                steps_per_epoch=steps_per_epoch,
                batch_size=batch_size,
                first_step=first_step,
            ) as reporter,
            contextlib.closing(training) as batches,
        ):
            devices_state, progress = loop.run_epochs(
                parallel.replicate(state),
                progress,
                batches=batches,
                train_step=train_step,
                validate=lambda state: validate(state)[0],
                checkpointer=checkpointer,
                reporter=reporter,
                num_epochs=config["num_epochs"],
                steps_per_epoch=steps_per_epoch,
                select_by=config["select_by"],
            )
            final = parallel.to_host(devices_state)
            best = parallel.replicate(checkpointer.restore(progress.best_step, state))
            validation, thresholds = validate(best)
            test = evaluate.summarize(predict(best, "test"), thresholds, class_counts)
            results = {
                "config": dict(config),
                "num_parameters": num_parameters(final.params),
                "parameters_digest": parameters_digest(final.params),
                "num_classes": spec.num_classes,
                "devices": jax.device_count(),
                "versions": {name: importlib.metadata.version(name) for name in _REPORTED_VERSIONS},
                "best_epoch": progress.best_epoch,
                "epoch_seconds": list(progress.epoch_seconds),
                "examples_per_second": steps_per_epoch * batch_size / progress.seconds_per_epoch(),
                "validation": validation,
                "test": test,
            }
            if spec.bayes_probabilities is not None:
                results["bayes"] = _bayes(
                    spec.bayes_probabilities, dataset, config["eval"]["ks"], class_counts
                )
            return reporter.results(results)


def _bayes(
    probabilities: Callable[[np.ndarray], np.ndarray],
    dataset: Dataset,
    ks: Sequence[int],
    class_counts: np.ndarray,
) -> dict[str, float]:
    """What the best classifier reaches on the test examples, measured as the trained one is."""

    def predictions(split: Split) -> evaluate.Predictions:
        scores = probabilities(np.asarray(split.images)).astype(np.float32)
        of_labels = scores[np.arange(len(split)), split.labels]
        return evaluate.Predictions(-np.log(of_labels), scores, split.labels)

    thresholds = evaluate.average_k_thresholds(predictions(dataset.validation), ks)
    return evaluate.summarize(predictions(dataset.test), thresholds, class_counts)


def _check_workdir(config: Mapping[str, Any], workdir: Path) -> None:
    """Refuses a workdir that is a file, or that holds a run of another configuration."""
    if workdir.exists() and not workdir.is_dir():
        raise UserError(f"--workdir must be a directory; {workdir} is a file")
    earlier = reporting.read_config(workdir)
    if earlier is None:
        checkpoints = workdir / reporting.CHECKPOINTS
        if checkpoints.is_dir() and any(checkpoints.iterdir()):
            raise UserError(
                f"--workdir {workdir} holds checkpoints, and no config.json that says of what run; "
                "give another --workdir, or delete it"
            )
        return
    differing = configuration.differences(earlier, config)
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
