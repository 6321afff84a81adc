"""A split to metrics: loss, top-K and average-K accuracy of several kinds, set sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import metrics
from train.data.truths import Truths
from train.evaluation import set_rules
from train.evaluation.metric import AVERAGES, LOSS, SHOTS, Average, Metric, Rule
from train.evaluation.outcomes import Outcomes
from train.evaluation.predictions import Predictions, chunks
from train.evaluation.set_rules import SetRule


@dataclass(frozen=True)
class Sets:
    """The quality of the sets of n examples.

    Attributes:
        hits: whether each has the label, [n]; if the truth is more than one class, the share of the
            truth that it has.
        sizes: the number of its classes, [n].
        of_classes: whether each has each class of the truth, [n, m]; None if the truth is one
            class.
    """

    hits: np.ndarray
    sizes: np.ndarray
    of_classes: np.ndarray | None = None

    @property
    def of_labels(self) -> np.ndarray:
        """Whether each has the class that stands for the example, [n]."""
        return self.hits if self.of_classes is None else self.of_classes[:, 0]

    def take(self, chosen: np.ndarray) -> "Sets":
        """The sets of some examples."""
        of_classes = None if self.of_classes is None else self.of_classes[chosen]
        return Sets(self.hits[chosen], self.sizes[chosen], of_classes)

    def by_class(self, examples: Predictions) -> "ByClass":
        """The hits, by the classes of their examples."""
        truths = examples.truths
        if truths is None or self.of_classes is None:
            return ByClass(examples.labels, self.hits, np.ones(len(self.hits)))
        return ByClass(truths.classes.ravel(), self.of_classes.ravel(), truths.shares.ravel())


@dataclass(frozen=True)
class ByClass:
    """Hits of classes, each with the weight that it has in a mean: [v] all three."""

    labels: np.ndarray
    hits: np.ndarray
    weights: np.ndarray

    def sums(self, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
        """The weights of each class, and of its hits, float64 [L] each."""
        weights = self.weights.astype(np.float64)
        return (
            np.bincount(self.labels, weights, minlength=num_classes),
            np.bincount(self.labels, weights * self.hits, minlength=num_classes),
        )


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
        truths=predictions.truths,
        class_ranks=predictions.class_ranks,
    )
    return Evaluation(values, size_counts, outcomes)


def top_k_sets(predictions: Predictions, k: int) -> Sets:
    """The quality of the sets of the K best classes."""
    sizes = np.full(len(predictions.ranks), k)
    if predictions.truths is None or predictions.class_ranks is None:
        return Sets(predictions.ranks < k, sizes)
    of_classes = predictions.class_ranks < k
    return Sets(predictions.truths.mean(of_classes), sizes, of_classes)


def find_sets(predictions: Predictions, rule: SetRule) -> Sets:
    """The quality of the sets of a rule, without all of them in memory at once."""
    truths = predictions.truths
    classes = predictions.labels[:, None] if truths is None else truths.classes
    hits, sizes = [], []
    for chunk in chunks(predictions.scores):
        found = _hits_and_sizes(rule(predictions.scores[chunk]), classes[chunk])
        hits.append(np.asarray(found[0]))
        sizes.append(np.asarray(found[1]))
    return of_hits(np.concatenate(hits), np.concatenate(sizes), truths)


def of_hits(of_classes: np.ndarray, sizes: np.ndarray, truths: Truths | None) -> Sets:
    """The quality of sets that have some classes [n, m] of the truths, or the label, [n, 1]."""
    if truths is None:
        return Sets(of_classes[:, 0], sizes)
    return Sets(truths.mean(of_classes), sizes, of_classes)


def accuracies_by_average(
    outcome: Sets, predictions: Predictions, class_counts: np.ndarray | None
) -> dict[Average, float]:
    """The share of sets with the label: over examples, over classes, and by shot if known."""
    if class_counts is not None:
        class_counts = predictions.counts_of_all(class_counts)
    num_classes = predictions.num_classes
    values: Mapping[str, jax.Array | float] = (
        _shares(outcome.hits, predictions.labels, class_counts, num_classes)
        if outcome.of_classes is None
        else _weighted_shares(outcome, predictions, class_counts)
    )
    # In the order in which JAX returns them, which is the order in the files.
    return {average: float(values[average]) for average in sorted(AVERAGES) if average in values}


def check_has_value(metric: Metric, labels: np.ndarray, class_counts: np.ndarray) -> None:
    """Raises `UserError` if a split of these labels cannot have the metric to select by."""
    hits = np.ones(len(labels), np.bool_)
    if metric.average not in SHOTS:
        return
    if np.isnan(_shares(hits, labels, class_counts, len(class_counts))[metric.average]):
        raise metric.without_value()


def _accuracies_of(
    rule: Rule, k: int, outcome: Sets, predictions: Predictions, class_counts: np.ndarray | None
) -> dict[Metric, float]:
    values = accuracies_by_average(outcome, predictions, class_counts)
    return {Metric.accuracy(rule, k, average): value for average, value in values.items()}


@jax.jit
def _hits_and_sizes(chosen: jax.Array, classes: jax.Array) -> tuple[jax.Array, jax.Array]:
    hits = jnp.take_along_axis(chosen, classes, axis=-1, mode="fill", fill_value=False)
    return hits, metrics.set_sizes(chosen)


def _shares(
    hits: np.ndarray, labels: np.ndarray, class_counts: np.ndarray | None, num_classes: int
) -> dict[str, jax.Array]:
    """The shares of hits; NaN in a group without examples, which JAX_DEBUG_NANS would refuse."""
    with jax.debug_nans(False):
        return _accuracies(hits, labels, class_counts, num_classes=num_classes)


def _weighted_shares(
    outcome: Sets, predictions: Predictions, class_counts: np.ndarray | None
) -> dict[str, float]:
    """The same if the truth is more than one class, each with its share of the example."""
    weights, hits = outcome.by_class(predictions).sums(predictions.num_classes)
    groups = {"macro": np.ones(len(weights), bool)}
    if class_counts is not None:
        shots = metrics.shot_groups(class_counts)
        groups |= {shot: np.asarray(classes) for shot, classes in shots.items()}
    found = {"micro": float(outcome.hits.mean())}
    for name, classes in groups.items():
        counted = classes & (weights > 0)
        shares = hits[counted] / weights[counted]
        found[name] = float(shares.mean()) if shares.size else float("nan")
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
