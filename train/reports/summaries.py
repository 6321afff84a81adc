"""A split to metrics: loss, top-K and average-K accuracy of several kinds, set sizes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import metrics, sets
from train.data.classes import Classes
from train.reports.metric import AVERAGES, LOSS, SHOTS, Metric, Rule
from train.reports.outcomes import Outcomes
from train.scores.scores import Scores


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


def average_k_thresholds(scores: Scores, ks: Sequence[int]) -> dict[int, jax.Array]:
    """For each K, the threshold whose sets have K classes on average over the examples."""
    return {k: average_k_threshold(scores, k) for k in ks}


def average_k_threshold(scores: Scores, k: float) -> jax.Array:
    """The threshold whose sets have K classes on average, in O(K n) memory."""
    calibrator = sets.AverageKCalibrator(k, num_examples=len(scores))
    for chunk in scores.chunks():
        calibrator.update(scores.values[chunk])
    return calibrator.threshold()


def summarize(scores: Scores, thresholds: Mapping[int, jax.Array]) -> Evaluation:
    """The mean loss, every accuracy by K, and the sizes of the average-K sets.

    Args:
        scores: of the split.
        thresholds: the thresholds of the average-K sets, calibrated on validation.
    """
    truths, ranks = scores.truths, scores.ranks
    classes = scores.labels[:, None]
    if truths is not None and scores.class_ranks is not None:
        classes, ranks = truths.classes, scores.class_ranks
    values, size_counts, in_average_sets = {LOSS: scores.mean_loss()}, {}, []
    set_sizes = []
    for k, threshold in thresholds.items():
        values |= _accuracies_of("top", k, ranks < k, scores)
        found = [
            _hits_and_sizes(scores.values[chunk], classes[chunk], threshold)
            for chunk in scores.chunks()
        ]
        of_classes, sizes = map(np.concatenate, zip(*found, strict=True))
        hits = of_classes[:, 0] if truths is None else of_classes
        values |= _accuracies_of("average", k, hits, scores)
        set_size = Metric.set_size(k)
        values[set_size] = float(sizes.mean())
        size_counts[set_size] = np.bincount(sizes)
        set_sizes.append(sizes.astype(np.int32))
        in_average_sets.append(hits if truths is None else truths.mean(hits))
    outcomes = Outcomes(
        labels=scores.labels.astype(np.int32),
        ranks=scores.ranks.astype(np.int32),
        average_ks=np.array(list(thresholds), np.int32),
        in_average_sets=np.array(in_average_sets),
        average_set_sizes=np.array(set_sizes),
        truths=truths,
        class_ranks=scores.class_ranks,
    )
    return Evaluation(values, size_counts, outcomes)


def check_has_value(metric: Metric, labels: np.ndarray, classes: Classes) -> None:
    """Raises `UserError` if a split of these labels cannot have the metric to select by."""
    if metric.average not in SHOTS:
        return
    shares = _shares(np.ones(len(labels), np.bool_), labels, classes.counts, len(classes))
    if np.isnan(shares[metric.average]):
        raise metric.without_value()


def _accuracies_of(rule: Rule, k: int, hits: np.ndarray, scores: Scores) -> dict[Metric, float]:
    """The accuracies of sets that hit the labels, [n], or each class of the truths, [n, m]."""
    found: Mapping[str, jax.Array | float] = (
        _shares(hits, scores.labels, scores.counts, scores.num_classes)
        if scores.truths is None
        else _weighted_shares(hits, scores)
    )
    # In the order in which JAX returns them, which is the order in the files.
    averages = [average for average in sorted(AVERAGES) if average in found]
    return {Metric.accuracy(rule, k, average): float(found[average]) for average in averages}


@jax.jit
def _hits_and_sizes(
    scores: jax.Array, classes: jax.Array, threshold: jax.Array
) -> tuple[jax.Array, jax.Array]:
    chosen = sets.threshold_set(scores, threshold)
    hits = jnp.take_along_axis(chosen, classes, axis=-1, mode="fill", fill_value=False)
    return hits, metrics.set_sizes(chosen)


def _shares(
    hits: np.ndarray, labels: np.ndarray, class_counts: np.ndarray | None, num_classes: int
) -> dict[str, jax.Array]:
    """The shares of hits; NaN in a group without examples, which JAX_DEBUG_NANS would refuse."""
    with jax.debug_nans(False):
        return _accuracies(hits, labels, class_counts, num_classes=num_classes)


def _weighted_shares(hits: np.ndarray, scores: Scores) -> dict[str, float]:
    """The same if the truth is more than one class, each with its share of the example."""
    truths, number = scores.truths, scores.num_classes
    assert truths is not None
    labels, shares = truths.classes.ravel(), truths.shares.ravel().astype(np.float64)
    weights = np.bincount(labels, shares, number)
    of_hits = np.bincount(labels, shares * hits.ravel(), number)
    groups = {"macro": np.ones(number, bool)}
    if scores.counts is not None:
        shots = metrics.shot_groups(scores.counts)
        groups |= {shot: np.asarray(classes) for shot, classes in shots.items()}
    found = {"micro": float(truths.mean(hits).mean())}
    for name, classes in groups.items():
        counted = classes & (weights > 0)
        means = of_hits[counted] / weights[counted]
        found[name] = float(means.mean()) if means.size else float("nan")
    return found


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
