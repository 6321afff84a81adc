"""The fields of `results.json`."""

import importlib.metadata
import statistics
from collections.abc import Mapping
from typing import Any

import jax

from train.reports import bayes, metric, summaries
from train.reports.summaries import Evaluation
from train.run.checkpoints import Progress
from train.run.closing_table import LEFT_OUT
from train.run.parts import Run
from train.run.run_data import RunData
from train.training import class_weights
from train.training.state import TrainState, num_parameters, parameters_digest

_REPORTED_VERSIONS = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def collect(
    run: Run,
    final: TrainState,
    progress: Progress,
    best: Progress,
    validation: Evaluation,
    tests: Mapping[str, Evaluation],
    temperature: float | None,
) -> dict[str, Any]:
    """The fields, in their order.

    Args:
        run: the parts of the run.
        final: the last state.
        progress: with the last state.
        best: with the selected state.
        validation: the report of the validation split by the selected state.
        tests: that of each test split, by its name.
        temperature: the fitted temperature; None without `config.eval.temperature`.
    """
    config, data = run.config, run.data
    splits = {"validation": validation, **tests}
    # The first epoch counts only if it is the only one, for it compiles.
    seconds_per_epoch = statistics.median(progress.epoch_seconds[1:] or progress.epoch_seconds)
    examples_per_epoch = data.steps_per_epoch * config.dataset.batch_size
    fields = {
        "config": data.given.to_plain(),
        "num_parameters": num_parameters(final.params),
        "parameters_digest": parameters_digest(final.params),
        "num_classes": data.num_classes,
        "devices": jax.device_count(),
        "versions": {name: importlib.metadata.version(name) for name in _REPORTED_VERSIONS},
        "best_epoch": best.epochs,
        "best_step": best.step,
        "selected_by": config.select_by,
        "epoch_seconds": list(progress.epoch_seconds),
        "examples_per_second": examples_per_epoch / seconds_per_epoch,
        "data_wait_share": progress.data_wait_share,
    }
    if temperature is not None:
        fields["temperature"] = temperature
    fields |= {name: metric.to_json(split.metrics) for name, split in splits.items()}
    fields["evaluated"] = {
        name: summaries.counted(
            split.outcomes.counted_labels,
            len(split.outcomes.labels),
            data.class_counts,
            data.classes.names,
        )
        for name, split in splits.items()
    }
    fields |= _best_possible(data)
    if config.loss.class_weights != "none":
        fields["class_weights_epoch"] = class_weights.first_epoch(
            config.loss,
            num_epochs=config.num_epochs,
            steps_per_epoch=data.steps_per_epoch,
        )
    seen = data.dataset.seen
    if seen is not None and seen.unreadable:
        fields[LEFT_OUT] = len(seen.unreadable)
    return fields


def _best_possible(data: RunData) -> dict[str, Any]:
    """The metrics of the best classifier on each test split, if the true distribution is known."""
    law, dataset = data.spec.true_distribution, data.dataset
    if law is None:
        return {}
    of_splits = {"bayes": dataset.test, "bayes_balanced_test": dataset.balanced_test}
    return {
        name: metric.to_json(
            bayes.summarize(
                law,
                examples,
                calibrated_on=dataset.validation,
                ks=data.config.eval.ks,
                classes=data.classes,
                balanced=examples is dataset.balanced_test,
            )
        )
        for name, examples in of_splits.items()
        if examples is not None
    }
