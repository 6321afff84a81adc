"""The metrics of the best possible classifier, for data whose true distribution is known."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from train.data import Examples, TrueDistribution
from train.data.taxonomy import ClassTree
from train.evaluation import by_rank, summaries
from train.evaluation.metric import SHOTS, Metric
from train.evaluation.predictions import Predictions, chunks_of, ranks_in_64_bits
from train.evaluation.stored_scores import CollectedScores
from train.evaluation.thresholds import average_k_thresholds


def summarize(
    true_distribution: TrueDistribution,
    examples: Examples,
    calibrated_on: Examples,
    ks: Sequence[int],
    class_counts: np.ndarray,
    *,
    balanced: bool = False,
) -> dict[Metric, float]:
    """The metrics of the best scores on some examples.

    The best over all examples are the probabilities p(y | x). The best over classes, if each class
    counts the same, are in proportion to p(y | x) / p(y). The accuracies of few, medium and many
    shot classes use the second. Neither is the best for such a group: that would be a classifier
    that only returns classes of the group.

    Args:
        true_distribution: the true distribution of the data.
        examples: the examples that the metrics are computed on.
        calibrated_on: the examples that thresholds are calibrated on.
        ks: the set sizes.
        class_counts: the training images of each class.
        balanced: whether all classes have equally many examples. The best over classes are then
            the best over the examples, too. The loss uses p(y | x) in any case.
    """
    weights = true_distribution.class_probabilities.min() / true_distribution.class_probabilities
    over_classes = _summarize(true_distribution, examples, calibrated_on, ks, class_counts, weights)
    if balanced:
        return over_classes
    over_examples = _summarize(
        true_distribution, examples, calibrated_on, ks, class_counts, np.ones_like(weights)
    )
    return {
        metric: value if metric.average == "micro" else over_classes[metric]
        for metric, value in over_examples.items()
    }


def gap(best: Mapping[Metric, float], reached: Mapping[Metric, float]) -> dict[Metric, float]:
    """How much more the best classifier reaches in the accuracies that it is the best for."""
    return {
        metric: value - reached[metric]
        for metric, value in best.items()
        # It need not be the best for only the classes of few, medium or many shots.
        if metric.is_accuracy and metric.average not in SHOTS
    }


def accuracies_by_rank(
    true_distribution: TrueDistribution, examples: Examples, tree: ClassTree, ks: Sequence[int]
) -> dict[str, Any]:
    """The accuracies of the best classifier at each rank above the classes, as files have them.

    The likeliest genera have the largest sums of the probabilities p(y | x) of their species.

    Args:
        true_distribution: the true distribution of the data.
        examples: the examples that they are computed on.
        tree: what is above the classes.
        ks: the numbers of nodes of an answer.
    """
    weights = np.ones_like(true_distribution.class_probabilities)
    found: dict[str, Any] = by_rank.report(
        _predictions(true_distribution, examples, weights), tree, ks
    )
    return found["ranks"]


def _summarize(
    true_distribution: TrueDistribution,
    examples: Examples,
    calibrated_on: Examples,
    ks: Sequence[int],
    class_counts: np.ndarray,
    weights: np.ndarray,
) -> dict[Metric, float]:
    calibrated = _predictions(true_distribution, calibrated_on, weights)
    thresholds = average_k_thresholds(calibrated, ks)
    found = _predictions(true_distribution, examples, weights)
    return summaries.summarize(found, thresholds, class_counts).metrics


def _predictions(
    true_distribution: TrueDistribution, split: Examples, weights: np.ndarray
) -> Predictions:
    # All probabilities at once can take more memory than there is.
    inputs, scores = split.rows(np.arange(len(split))), CollectedScores(len(split))
    of_labels, ranks = [], []
    for chunk in chunks_of(len(split), len(weights)):
        probabilities = true_distribution.posterior(inputs[chunk])
        labels = split.labels[chunk]
        of_labels.append(probabilities[np.arange(len(labels)), labels])
        weighted = weights * probabilities
        ranks.append(ranks_in_64_bits(weighted, labels))
        scores.add(weighted.astype(np.float32))
    loss = -np.log(np.concatenate(of_labels))
    return Predictions(loss, scores.scores(), split.labels, np.concatenate(ranks))
