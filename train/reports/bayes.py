"""The metrics of the best possible classifier, for data whose true distribution is known."""

from collections.abc import Iterator, Sequence

import numpy as np

from train.data import Examples, TrueDistribution
from train.data.classes import Classes
from train.reports import summaries
from train.reports.metric import Metric
from train.scores.scores import Scores, collect, exact_ranks, slices


def summarize(
    true_distribution: TrueDistribution,
    examples: Examples,
    calibrated_on: Examples,
    ks: Sequence[int],
    classes: Classes,
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
        classes: the classes, with their training images.
        balanced: whether all classes have equally many examples. The best over classes are then
            the best over the examples, too. The loss uses p(y | x) in any case.
    """

    def metrics(weights: np.ndarray | float) -> dict[Metric, float]:
        calibrated = best(true_distribution, calibrated_on, classes, weights)
        thresholds = summaries.average_k_thresholds(calibrated, ks)
        found = best(true_distribution, examples, classes, weights)
        return summaries.summarize(found, thresholds).metrics

    priors = true_distribution.class_probabilities
    over_classes = metrics(priors.min() / priors)
    if balanced:
        return over_classes
    return {
        metric: value if metric.average == "micro" else over_classes[metric]
        for metric, value in metrics(1.0).items()
    }


def best(
    true_distribution: TrueDistribution,
    examples: Examples,
    classes: Classes,
    weights: np.ndarray | float = 1.0,
) -> Scores:
    """The scores p(y | x) of some examples, or in proportion to these times weights, [L].

    The loss is of p(y | x) in any case.
    """
    inputs = examples.rows(np.arange(len(examples)))
    of_labels, ranks = [], []

    def parts() -> Iterator[np.ndarray]:
        # All probabilities at once can take more memory than there is.
        for chunk in slices(len(examples), len(classes)):
            probabilities = true_distribution.posterior(inputs[chunk])
            labels = examples.labels[chunk]
            of_labels.append(probabilities[np.arange(len(labels)), labels])
            weighted = weights * probabilities
            ranks.append(exact_ranks(weighted, labels))
            yield weighted

    values = collect(parts(), len(examples))
    return Scores(
        values=values,
        labels=examples.labels,
        ranks=np.concatenate(ranks),
        loss=-np.log(np.concatenate(of_labels)),
        classes=classes,
    )
