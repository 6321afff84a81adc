"""The classifier of a finished run with a tau-normalized head, as a finished run of its own.

The weights w_c of class c become w_c / norm(w_c)^tau, and the biases 0 (Kang et al., 2020,
"Decoupling representation and classifier for long-tailed recognition"). Classes with many examples
tend to have the longer weights. A tau of 0 leaves all lengths as they are; 1 makes them equal.
"""

import dataclasses
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax.metrics import label_ranks
from train.evaluation import metric, predictions, summaries
from train.evaluation.metric import LOSS, Metric
from train.evaluation.predictions import Predictions, chunks
from train.evaluation.stored_scores import CollectedScores
from train.evaluation.summaries import Evaluation
from train.evaluation.thresholds import average_k_thresholds
from train.foundation import fields, files, json_files
from train.foundation.errors import UserError
from train.prediction.trained import TrainedClassifier
from train.training.objectives import Objective
from train.training.state import parameters_digest
from train.training.truth import Truth
from train.workdir import run_files
from train.workdir.checkpoint import Checkpointer
from train.workdir.progress import Progress

# The values that are tried: the range of the paper.
TAUS = tuple(step / 10 for step in range(11))
# A tau above 1 may make lengths from this one to its reciprocal. In float32, logits of longer
# weights have rounding errors of about 1, and logits of shorter ones vanish beside 1 in a softmax.
_SHORTEST = float(np.finfo(np.float32).eps)


def check(classifier: TrainedClassifier) -> None:
    """Refuses a classifier whose head cannot be normalized.

    Raises:
        UserError: it is not linear, was normalized before, or has a temperature.
    """
    head = classifier.assembly.head
    if head != "linear":
        raise UserError(
            "--format=tau_normalized is for linear heads; the run in --workdir "
            f"{classifier.workdir} has one of the kind {head}"
        )
    if classifier.config.model.tau_normalized is not None:
        raise UserError(
            f"--workdir {classifier.workdir} is tau-normalized already; give the run that it was "
            "made of"
        )
    if classifier.temperature is not None:
        raise UserError(
            "--format=tau_normalized is for runs without config.eval.temperature; the run in "
            f"--workdir {classifier.workdir} has a temperature, which fits only its own head"
        )


def check_tau(classifier: TrainedClassifier, tau: float) -> None:
    """Refuses a tau with which the logits lose their meaning in float32.

    The lengths become length^(1 - tau). A tau from 0 to 1, the range of the paper, always fits.

    Raises:
        UserError: it is negative, not finite, or too large for the lengths of this head.
    """
    ((_, head),) = classifier.params["head"].items()
    lengths = _lengths(head["kernel"])
    # Lengths of 1, to the precision of float32, stay 1 with any tau.
    log = max(float(np.abs(np.log(lengths)).max()), _SHORTEST)
    # An integer, which the message does not round.
    largest = math.floor(1 - math.log(_SHORTEST) / log)
    if wrong := fields.Number(at_least=0, at_most=largest)(tau):
        raise UserError(
            field="--tau",
            must_be=(
                f"{wrong}, for logits that float32 can tell apart: the weights of the run in "
                f"--workdir {classifier.workdir} have lengths from {lengths.min():.3g} to "
                f"{lengths.max():.3g}"
            ),
            got=tau,
        )


def with_tau(classifier: TrainedClassifier, tau: float) -> TrainedClassifier:
    """The classifier with the weights of its head divided by powers of their lengths."""
    params = jax.tree.map(np.asarray, classifier.params)
    ((name, head),) = params["head"].items()
    normalized = {
        "kernel": head["kernel"] * _factors(head["kernel"], tau),
        "bias": np.zeros_like(head["bias"]),
    }
    return dataclasses.replace(classifier, params={**params, "head": {name: normalized}})


def choose(classifier: TrainedClassifier, select_by: Metric) -> float:
    """The tau in `TAUS` with the best metric on the validation split, the smallest if some tie.

    The examples go through the network once, because a tau only divides the logits of each class.

    Raises:
        UserError: the data set is not the one of the run, or its validation split does not have
            the metric.
    """
    found = with_tau(classifier, 0.0).predict("validation", with_logits=True)
    ((_, head),) = classifier.params["head"].items()
    values = {}
    for tau in TAUS:
        rescaled = _rescale(found, classifier.assembly.objective, _factors(head["kernel"], tau))
        values[tau] = _evaluate(classifier, rescaled, None)[0].metrics[select_by]
    if any(map(math.isnan, values.values())):
        raise select_by.without_value("--select_by")
    return (min if select_by == LOSS else max)(TAUS, key=lambda tau: values[tau])


def write(classifier: TrainedClassifier, tau: float, out: Path) -> dict[str, Any]:
    """Writes the workdir of the classifier with that tau.

    Args:
        classifier: the classifier of a finished run, as `trained.load` returns it.
        tau: the power of the lengths.
        out: the folder, which does not exist. It appears when it is complete.

    Returns:
        The contents of its `results.json`.
    """
    normalized = with_tau(classifier, tau)
    validation, thresholds = _evaluate(classifier, normalized.predict("validation"), None)
    tests = {
        split: _evaluate(classifier, normalized.predict(split), thresholds)[0]
        for split in classifier.assembly.data.test_splits
    }
    model = dataclasses.replace(classifier.config.model, tau_normalized=tau)
    config = dataclasses.replace(classifier.config, model=model).to_plain()
    results = {
        **classifier.results,
        "config": config,
        "parameters_digest": parameters_digest(normalized.params),
        **{
            split: metric.to_json(found.metrics)
            for split, found in {"validation": validation, **tests}.items()
        },
    }
    assert classifier.workdir is not None
    with files.new_folder(out) as partial:
        for name in (run_files.CLASSES, run_files.DATA, run_files.SEEN):
            if (classifier.workdir / name).exists():
                shutil.copyfile(classifier.workdir / name, partial / name)
        files.write_whole(partial / run_files.CONFIG, json_files.sealed(config, indent=2))
        with Checkpointer(partial / run_files.CHECKPOINTS) as checkpointer:
            variables = {"params": normalized.params, "batch_stats": normalized.batch_stats}
            # A checkpoint has the number of a step: there is one, and it is the best.
            progress = dataclasses.asdict(Progress(step=1, best_step=1))
            checkpointer.save(1, variables, progress)
        for split, found in tests.items():
            found.outcomes.write(run_files.outcomes(partial, split))
        run_files.write_results(partial, results)
    as_written: dict[str, Any] = json.loads(files.to_json(results))
    return as_written


def _factors(kernel: Any, tau: float) -> np.ndarray:
    """The factor of the weights of each class, [1, L]; 1 if they are all 0.

    It is rounded to float32 after the power, which would multiply the rounding of a length by tau.
    """
    return (_lengths(kernel) ** -tau).astype(np.float32)


def _lengths(kernel: Any) -> np.ndarray:
    """The length of the weights of each class, [1, L]; 1 if they are all 0."""
    lengths = np.linalg.norm(np.asarray(kernel, np.float64), axis=0, keepdims=True)
    return np.where(lengths > 0, lengths, 1)


def _rescale(found: Predictions, objective: Objective, factors: np.ndarray) -> Predictions:
    """The predictions for logits [n, L] times factors [1, L]."""

    @jax.jit
    def of(logits: jax.Array, examples: Truth) -> dict[str, jax.Array]:
        outputs = logits * jnp.asarray(factors)
        return {
            "loss": objective.evaluation_losses(outputs, examples),
            "scores": objective.scores(outputs),
            "ranks": label_ranks(outputs, examples["labels"]),
        }

    scores = CollectedScores(len(found.scores))
    parts = []
    labels = predictions.labels_for_steps(found.labels, factors.size)
    truths = found.truths and found.truths.among(factors.size)
    for chunk in chunks(found.scores):
        examples = {"labels": labels[chunk]} | (truths.arrays(chunk) if truths else {})
        part = jax.device_get(of(found.scores[chunk], examples))
        scores.add(part.pop("scores"))
        parts.append(part)
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    rescaled = predictions.of_steps(scores=scores.scores(), **arrays, labels=found.labels)
    rescaled = dataclasses.replace(rescaled, names=found.names, groups=found.groups)
    return predictions.with_truths(rescaled, found.truths) if found.truths else rescaled


def _evaluate(
    classifier: TrainedClassifier, found: Predictions, thresholds: Mapping[int, jax.Array] | None
) -> tuple[Evaluation, Mapping[int, jax.Array]]:
    """What is reported, and the thresholds of average-K sets, calibrated here if they are None."""
    if thresholds is None:
        thresholds = average_k_thresholds(found, classifier.config.eval.ks)
    return summaries.summarize(found, thresholds, classifier.class_counts), thresholds
