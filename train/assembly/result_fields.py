"""The fields of `results.json`."""

import importlib.metadata
from functools import partial
from typing import Any

import jax

from train.assembly.evaluator import SelectedEvaluation
from train.assembly.parts import Assembly
from train.assembly.run_data import RunData
from train.reports import bayes, metric
from train.training import class_weights
from train.training.state import TrainState, num_parameters, parameters_digest
from train.workdir.progress import Progress
from train.workdir.reporting import LEFT_OUT

_REPORTED_VERSIONS = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def collect(
    assembly: Assembly, final: TrainState, progress: Progress, found: SelectedEvaluation
) -> dict[str, Any]:
    """The fields, in their order.

    Args:
        assembly: the parts of the run.
        final: the last state.
        progress: of the run.
        found: the evaluation of the selected parameters.
    """
    data = assembly.data
    splits = {"validation": found.validation, **found.tests}
    return {
        **_facts(assembly, final, progress),
        **({} if found.temperature is None else {"temperature": found.temperature}),
        **{name: metric.to_json(split.metrics) for name, split in splits.items()},
        "evaluated": {
            name: assembly.evaluator.evaluated(split.outcomes) for name, split in splits.items()
        },
        **_best_possible(data),
        **_class_weights(data),
        **_left_out(data),
    }


def _facts(assembly: Assembly, final: TrainState, progress: Progress) -> dict[str, Any]:
    """What was trained, and how fast."""
    images = assembly.data.steps_per_epoch * assembly.config.dataset.batch_size
    return {
        "config": assembly.config.to_plain(),
        "num_parameters": num_parameters(final.params),
        "parameters_digest": parameters_digest(final.params),
        "num_classes": assembly.data.num_classes,
        "devices": jax.device_count(),
        "versions": {name: importlib.metadata.version(name) for name in _REPORTED_VERSIONS},
        "best_epoch": progress.best_epoch,
        "selected_by": assembly.config.select_by,
        "epoch_seconds": list(progress.epoch_seconds),
        "examples_per_second": images / progress.seconds_per_epoch(),
        "data_wait_share": progress.data_wait_share(),
    }


def _best_possible(data: RunData) -> dict[str, Any]:
    """The metrics of the best classifier, if the true distribution is known."""
    if data.spec.true_distribution is None:
        return {}
    dataset = data.dataset
    summarize = partial(
        bayes.summarize,
        data.spec.true_distribution,
        calibrated_on=dataset.validation,
        ks=data.config.eval.ks,
        classes=data.classes,
    )
    best = {"bayes": metric.to_json(summarize(dataset.test))}
    if dataset.balanced_test is not None:
        balanced = summarize(dataset.balanced_test, balanced=True)
        best["bayes_balanced_test"] = metric.to_json(balanced)
    return best


def _class_weights(data: RunData) -> dict[str, Any]:
    """The first epoch with class weights, if there are weights."""
    config = data.config
    if config.loss.class_weights == "none":
        return {}
    first = class_weights.first_epoch(
        config.loss,
        num_epochs=config.num_epochs,
        steps_per_epoch=data.steps_per_epoch,
        extensions=config.extensions,
    )
    return {"class_weights_epoch": first}


def _left_out(data: RunData) -> dict[str, int]:
    """How many images were left out as unreadable, if some were."""
    seen = data.dataset.seen
    return {} if seen is None or not seen.unreadable else {LEFT_OUT: len(seen.unreadable)}
