"""Conformal scores and quantiles, temperature and thresholds by class: loops over all there is.

`uniform` has U of each example; without it U is 1, and 0 for "saps".
"""

import math

import numpy as np
from scipy import optimize

from tests.reference._rows import exact, float64, log_softmax


def conformal_scores(
    probabilities,
    *,
    kind,
    uniform=None,
    rank_penalty=0.0,
    unpenalized_ranks=0,
    class_counts=None,
    class_weights=1.0,
):
    """The scores of all classes, one class at a time; NaN beside a NaN."""
    probabilities = float64(probabilities)
    num_examples, num_classes = probabilities.shape
    if uniform is None:
        uniform = np.full(num_examples, 0.0 if kind == "saps" else 1.0)
    weights = np.broadcast_to(float64(class_weights), num_classes)
    scores = np.zeros(probabilities.shape)
    for example, row in enumerate(probabilities):
        u = float64(uniform)[example]
        for label, own in enumerate(row):
            larger = row[row > own]
            rank = 1 + len(larger)
            others = np.delete(row, label)
            mass = larger.sum() + (1 - u) * own
            scores[example, label] = {
                "lac": 1 - own,
                "margin": others.max() - own,
                "rank": rank,
                "aps": mass,
                "raps": mass + rank_penalty * max(rank - unpenalized_ranks, 0),
                "saps": u * own if rank == 1 else row.max() + (rank - 2 + u) * rank_penalty,
                "pas": 0.0
                if class_counts is None
                else -weights[label] * own * np.sum(class_counts) / class_counts[label],
            }[kind]
        if np.isnan(row).any():
            scores[example] = np.nan
    return scores


def conformal_quantile(scores, *, error):
    """The `ceil((n + 1)(1 - error))`-th smallest of the scores of labels, or infinity."""
    ascending = sorted(float64(scores))
    rank = math.ceil((len(ascending) + 1) * (1 - exact(error)))
    return ascending[rank - 1] if rank <= len(ascending) else math.inf


def class_conditional_quantiles(scores, labels, *, error, num_classes):
    """The same within each class."""
    scores, labels = float64(scores), np.asarray(labels)
    return np.array(
        [conformal_quantile(scores[labels == c], error=error) for c in range(num_classes)]
    )


def label_shift_quantiles(scores, labels, *, error, weights, num_classes):
    """The smallest score up to which the weights reach their part; `weights` are integers."""
    scores, labels = float64(scores), np.asarray(labels)
    quantiles = []
    for own in weights:
        required = (1 - exact(error)) * int(sum(weights[c] for c in labels) + own)
        reached = [
            score
            for score in scores
            if int(sum(weights[c] for c in labels[scores <= score])) >= required
        ]
        quantiles.append(min(reached, default=math.inf))
    assert len(quantiles) == num_classes
    return np.array(quantiles)


def rank_calibrated_quantiles(scores, ranks, labels, *, error, num_classes):
    """Option II of RC3P, in exact arithmetic."""
    scores, ranks, labels = float64(scores), float64(ranks), np.asarray(labels)
    quantiles, limits = [], []
    for label in range(num_classes):
        own, places = scores[labels == label], ranks[labels == label]
        number = len(own)
        for limit in range(1, int(max(ranks)) + 1):
            beyond = int((places > limit).sum())
            if number and beyond < exact(error) * number:
                level = 1 - exact(error) + exact(beyond) / number
                rank = math.ceil((number + 1) * level)
                limits.append(limit)
                quantiles.append(sorted(own)[rank - 1] if rank <= number else math.inf)
                break
        else:
            limits.append(math.inf)
            quantiles.append(math.inf)
    return np.array(quantiles), np.array(limits)


def temperature(logits, labels):
    """The temperature of the least mean cross-entropy, by a bounded search of its logarithm."""
    logits, labels = float64(logits), np.asarray(labels)

    def mean_loss(log_temperature):
        scaled = log_softmax(logits * np.exp(-log_temperature))
        return -scaled[np.arange(len(labels)), labels].mean()

    found = optimize.minimize_scalar(
        mean_loss, bounds=(-10.0, 10.0), method="bounded", options={"xatol": 1e-10}
    )
    return math.exp(found.x)
