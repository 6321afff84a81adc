"""Computes the scores of a network on all devices, and reports on them."""

import math
from collections.abc import Mapping
from typing import Any

import jax

from train.data import streaming
from train.data.batches import Batches
from train.data.examples import Examples
from train.foundation.console import tracked
from train.reports import summaries
from train.reports.summaries import Evaluation, average_k_thresholds
from train.run.parts import Run
from train.scores import collecting, temperature
from train.scores.scores import Scores
from train.training.state import TrainState


def predict(
    run: Run,
    variables: tuple[Any, Any],
    examples: Examples,
    *,
    name: str,
    logits: bool = False,
    shows_progress: bool = False,
) -> Scores:
    """The scores of any examples.

    Args:
        run: the parts of the run.
        variables: the parameters, and batch norm's statistics with them, on the devices.
        examples: the examples.
        name: which examples they are, a split or "new".
        logits: whether the scores are logits.
        shows_progress: whether a bar is shown.
    """
    data, devices = run.data, jax.device_count()
    # As large as the batches of training, or a little larger: a finished run may be evaluated on
    # other devices, and the size changes no result.
    batches = Batches(
        examples=examples,
        size=math.ceil(run.config.dataset.batch_size / devices) * devices,
        share=(jax.process_index(), jax.process_count()),
    )
    # Of new examples, threads decode: starting processes takes longer than many evaluations.
    results = collecting.rows(
        run.logits_step if logits else run.eval_step,
        *variables,
        streaming.stream(batches, num_workers=0 if name == "new" else data.num_workers),
        run.devices,
        split=examples,
        num_classes=data.num_classes,
    )
    if shows_progress:
        results = tracked(results, len(batches), f"{name} {data.spec.example}s")
    return collecting.collected(results, examples, data.classes)


def validate(run: Run, state: TrainState) -> Evaluation:
    """What is reported of the validation split after an epoch, for a state on the devices."""
    found = predict(run, state.evaluated, run.data.dataset.validation, name="validation")
    return summaries.summarize(found, average_k_thresholds(found, run.config.eval.ks))


def evaluate_selected(
    run: Run, state: TrainState
) -> tuple[Evaluation, Mapping[str, Evaluation], float | None]:
    """What is reported about the selected state, on the devices, after training.

    Temperature and thresholds are fitted on the validation split.

    Returns:
        The report of the validation split, that of each test split by its name, and the
        temperature; None without `config.eval.temperature`.
    """
    fitted, splits = None, run.data.dataset.splits

    def scores(name: str) -> Scores:
        return predict(run, state.evaluated, splits[name], name=name, logits=fits)

    fits = run.config.eval.temperature
    found = scores("validation")
    if fits:
        fitted = temperature.fit(found)
        found = temperature.with_probabilities(found, fitted)
    thresholds = average_k_thresholds(found, run.config.eval.ks)
    validation, tests = summaries.summarize(found, thresholds), {}
    for name in splits:
        if name.endswith("test"):
            found = scores(name)
            if fitted is not None:
                found = temperature.with_probabilities(found, fitted)
            tests[name] = summaries.summarize(found, thresholds)
    return validation, tests, fitted
