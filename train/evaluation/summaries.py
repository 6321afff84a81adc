"""A split to metrics: loss, top-K and average-K accuracy of several kinds, set sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import metrics
from train.evaluation import set_rules
from train.evaluation.metric import AVERAGES, LOSS, SHOTS, Average, Metric, Rule
from train.evaluation.outcomes import Outcomes
from train.evaluation.predictions import Predictions, chunks
from train.evaluation.set_rules import SetRule
from train.foundation.errors import UserError


@dataclass(frozen=True)
class Sets:
    """The quality of the sets of n examples: whether each has the label [n], and its size [n]."""

    hits: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True)
class Evaluation:
    """What is reported for a split.

    Attributes:
        metrics: their values.
        size_counts: how many sets have 0, 1, 2, … classes, for each mean size of sets.
        outcomes: what the accuracies are the means of.
    """

    metrics: dict[Metric, float]
    size_counts: dict[Metric, np.ndarray]
    outcomes: Outcomes


def summarize(
    predictions: Predictions, thresholds: Mapping[int, jax.Array], class_counts: np.ndarray | None
) -> Evaluation:
    """The mean loss, every accuracy by K, and the sizes of the average-K sets.

    Args:
        predictions: the predictions for the split.
        thresholds: the thresholds of the average-K sets, calibrated on validation.
        class_counts: the training images of each class, which make it few, medium or many shot;
            if None, there are no accuracies by shot. A class that the model does not know has 0
            and is few shot.
    """
    values = {LOSS: predictions.mean_loss()}
    size_counts = {}
    in_average_sets = []
    for k, threshold in thresholds.items():
        outcome = top_k_sets(predictions, k)
        values |= _accuracies_of("top", k, outcome, predictions, class_counts)
        outcome = find_sets(predictions, set_rules.at_threshold(threshold))
        values |= _accuracies_of("average", k, outcome, predictions, class_counts)
        set_size = Metric.set_size(k)
        values[set_size] = float(outcome.sizes.mean())
        size_counts[set_size] = np.bincount(outcome.sizes)
        in_average_sets.append(outcome.hits)
    outcomes = Outcomes(
        labels=predictions.labels.astype(np.int32),
        ranks=predictions.ranks.astype(np.int32),
        average_ks=np.array(list(thresholds), np.int32),
        in_average_sets=np.array(in_average_sets),
    )
    return Evaluation(values, size_counts, outcomes)


def top_k_sets(predictions: Predictions, k: int) -> Sets:
    """The quality of the sets of the K best classes."""
    return Sets(predictions.ranks < k, np.full(len(predictions.ranks), k))


def find_sets(predictions: Predictions, rule: SetRule) -> Sets:
    """The quality of the sets of a rule, without all of them in memory at once."""
    hits, sizes = [], []
    for chunk in chunks(predictions.scores):
        found = _hits_and_sizes(rule(predictions.scores[chunk]), predictions.labels[chunk])
        hits.append(np.asarray(found[0]))
        sizes.append(np.asarray(found[1]))
    return Sets(np.concatenate(hits), np.concatenate(sizes))


def accuracies_by_average(
    outcome: Sets, predictions: Predictions, class_counts: np.ndarray | None
) -> dict[Average, float]:
    """The share of sets with the label: over examples, over classes, and by shot if known."""
    if class_counts is not None:
        class_counts = predictions.counts_of_all(class_counts)
    num_classes = predictions.num_classes
    values = _shares(outcome.hits, predictions.labels, class_counts, num_classes)
    # In the order in which JAX returns them, which is the order in the files.
    return {average: float(values[average]) for average in sorted(AVERAGES) if average in values}


def check_has_value(metric: Metric, labels: np.ndarray, class_counts: np.ndarray) -> None:
    """Raises `UserError` if a split of these labels cannot have the metric to select by."""
    hits = np.ones(len(labels), np.bool_)
    if metric.average not in SHOTS:
        return
    if np.isnan(_shares(hits, labels, class_counts, len(class_counts))[metric.average]):
        raise UserError(
            "config.select_by must be a metric that the validation split has; "
            f"{metric.name!r} has no value, because no class of that kind occurs in it"
        )


def _accuracies_of(
    rule: Rule, k: int, outcome: Sets, predictions: Predictions, class_counts: np.ndarray | None
) -> dict[Metric, float]:
    values = accuracies_by_average(outcome, predictions, class_counts)
    return {Metric.accuracy(rule, k, average): value for average, value in values.items()}


@jax.jit
def _hits_and_sizes(chosen: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    hits = jnp.take_along_axis(chosen, labels[:, None], axis=-1, mode="fill", fill_value=False)
    return hits[:, 0], metrics.set_sizes(chosen)


def _shares(
    hits: np.ndarray, labels: np.ndarray, class_counts: np.ndarray | None, num_classes: int
) -> dict[str, jax.Array]:
    """The shares of hits; NaN in a group without examples, which JAX_DEBUG_NANS would refuse."""
    with jax.debug_nans(False):
        return _accuracies(hits, labels, class_counts, num_classes=num_classes)


@partial(jax.jit, static_argnames="num_classes")
def _accuracies(
    hits: jax.Array, labels: jax.Array, class_counts: jax.Array | None, *, num_classes: int
) -> dict[str, jax.Array]:
    shots = (
        {}
        if class_counts is None
        else metrics.shot_accuracy(hits, labels, class_counts=class_counts)
    )
    return {
        "micro": metrics.accuracy(hits),
        "macro": metrics.macro_accuracy(hits, labels, num_classes=num_classes),
        **shots,
    }
