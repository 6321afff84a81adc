"""A split to metrics: loss, top-K and average-K accuracy of several kinds, set sizes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import metrics, sets
from train.data.classes import Classes
from train.reports.metric import AVERAGES, LOSS, SHOTS, Metric, Rule
from train.reports.outcomes import Outcomes
from train.scores.scores import Scores

# Names of classes that files list. A split can lack most of a million classes.
_MOST_LISTED = 1000


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
            hits_and_sizes(sets.threshold_set(scores.values[chunk], threshold), classes[chunk])
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
    numbers = np.bincount(labels, minlength=len(classes))
    if metric.average in SHOTS and metric.average not in of_groups(
        numbers, numbers, classes.counts
    ):
        raise metric.without_value()


def of_classes(scores: Scores, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of examples of each class, and the share of them that has it in its set, [L] each.

    If an example has several classes, each counts with its share.

    Args:
        scores: the scores of the examples.
        inside: whether each set has the label, [n], or each class of the truth, [n, m].
    """
    labels, weights = scores.labels, np.ones(len(scores))
    if scores.truths is not None:
        labels = scores.truths.classes.ravel()
        weights = scores.truths.shares.ravel().astype(np.float64)
    numbers = np.bincount(labels, weights, scores.num_classes)
    hits = np.bincount(labels, weights * inside.ravel(), scores.num_classes)
    return numbers, hits / np.where(numbers, numbers, 1)


def of_groups(
    numbers: np.ndarray, shares: np.ndarray, class_counts: np.ndarray | None
) -> dict[str, float]:
    """The means over the classes that have examples: of all, "macro", and of few, medium and many.

    A group in which no class has examples is left out.

    Args:
        numbers: the number of examples of each class, [L].
        shares: what the means are of, [L].
        class_counts: the training images of each class, [L], if they are known.
    """
    shots = {} if class_counts is None else metrics.shot_groups(class_counts)
    found = {}
    for name, classes in {"macro": np.ones(len(numbers), np.bool_), **shots}.items():
        counted = np.asarray(classes) & (numbers > 0)
        if counted.any():
            found[name] = float(shares[counted].mean())
    return found


def counted(
    labels: np.ndarray,
    num_examples: int,
    class_counts: np.ndarray | None,
    class_names: Sequence[str],
) -> dict[str, Any]:
    """The classes and examples of a split, as files have them.

    A class without examples in the split does not count in its accuracies, however the classes are
    averaged. An example counts for each of its classes.

    Args:
        labels: the classes of the examples of the split, [v].
        num_examples: the number of examples n; less than v if the truth of some is several classes.
        class_counts: the training images of each class, [L], if they are known.
        class_names: the names of the classes.
    """
    counts = np.bincount(labels, minlength=len(class_names))
    shots = {} if class_counts is None else metrics.shot_groups(class_counts)
    groups = {"all": np.ones(len(class_names), np.bool_), **shots}
    absent = np.flatnonzero(counts == 0)
    found = {
        "groups": {
            name: {
                "classes": int(np.count_nonzero(counts[np.asarray(classes)])),
                "examples": int(counts[np.asarray(classes)].sum()),
            }
            for name, classes in groups.items()
        },
        "classes_without_examples": len(absent),
        "named": [class_names[index] for index in absent[:_MOST_LISTED].tolist()],
    }
    return found if num_examples == len(labels) else {**found, "num_examples": num_examples}


def _accuracies_of(rule: Rule, k: int, hits: np.ndarray, scores: Scores) -> dict[Metric, float]:
    """The accuracies of sets that hit the labels, [n], or each class of the truths, [n, m].

    They are NaN in a group without examples.
    """
    of_examples = hits if scores.truths is None else scores.truths.mean(hits)
    found = {"macro": math.nan} | ({} if scores.counts is None else dict.fromkeys(SHOTS, math.nan))
    found |= {"micro": float(of_examples.mean(dtype=np.float64))}
    found |= of_groups(*of_classes(scores, hits), scores.counts)
    # The order in the files.
    averages = [average for average in sorted(AVERAGES) if average in found]
    return {Metric.accuracy(rule, k, average): found[average] for average in averages}


@jax.jit
def hits_and_sizes(members: jax.Array, classes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Which classes [n, m] sets [n, L] have, and how many."""
    inside = jnp.take_along_axis(members, classes, axis=-1, mode="fill", fill_value=False)
    return inside, metrics.set_sizes(members)
