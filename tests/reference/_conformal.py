"""Conformal scores, quantiles and temperature: loops over all there is.

Quantiles take the scores of all classes and labels, or those of the labels alone. They are NaN if a
score is NaN or a label is out of range.
"""

import itertools
import math

import jax
import numpy as np
from scipy import optimize

from tests.reference._draws import uniform
from tests.reference._rows import exact, float64, log_softmax


def conformal_scores(
    probabilities,
    *,
    kind,
    key=None,
    rank_penalty=0.0,
    unpenalized_ranks=0,
    class_counts=None,
    class_weights=1.0,
):
    """The scores of all classes, one class at a time; NaN beside a NaN.

    U is drawn for each example; without a key it is 1, and 0 for "saps".
    """
    probabilities = float64(probabilities)
    num_examples, num_classes = probabilities.shape
    drawn = np.full(num_examples, 0.0 if kind == "saps" else 1.0)
    if key is not None:
        drawn = uniform(key, (num_examples,))
    weights = np.broadcast_to(float64(class_weights), num_classes)
    scores = np.zeros(probabilities.shape)
    for example, row in enumerate(probabilities):
        u = drawn[example]
        for label, own in enumerate(row):
            larger = row[row > own]
            rank = 1 + len(larger)
            others = np.delete(row, label)
            mass = min(larger.sum() + (1 - u) * own, 1.0)
            scores[example, label] = {
                "lac": 1 - own,
                "margin": others.max(initial=-np.inf) - own,
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


def conformal_label_scores(probabilities, labels, **kind):
    """The scores of the labels; NaN for a label out of range."""
    scores = conformal_scores(probabilities, **kind)
    inside = range(scores.shape[1])
    return np.array(
        [row[y] if y in inside else np.nan for row, y in zip(scores, labels, strict=True)]
    )


def score_set(scores, quantiles):
    """`s <= q`; no class beside a NaN."""
    scores = float64(scores)
    whole = ~np.isnan(scores).any(axis=-1, keepdims=True)
    return (scores <= float64(quantiles)) & whole


def conformal_set(probabilities, quantiles, **kind):
    """The classes whose score is at most a quantile."""
    return score_set(conformal_scores(probabilities, **kind), quantiles)


def calibration(scores, labels, num_classes):
    """The scores of the labels, the labels, the number of classes, and whether all are valid."""
    scores = float64(scores)
    labels = np.zeros(len(scores), int) if labels is None else np.asarray(labels)
    size = scores.shape[-1] if scores.ndim > 1 else num_classes or labels.max() + 1
    valid = not np.isnan(scores).any() and ((labels >= 0) & (labels < size)).all()
    own = np.clip(labels, 0, size - 1)
    return scores if scores.ndim == 1 else scores[np.arange(len(own)), own], own, size, valid


def _quantile(scores, error):
    ascending = sorted(scores)
    rank = math.ceil((len(ascending) + 1) * (1 - exact(error)))
    return ascending[rank - 1] if rank <= len(ascending) else math.inf


def conformal_quantile(scores, labels=None, *, error):
    """The `ceil((n + 1)(1 - error))`-th smallest of the scores of labels, or infinity."""
    scores, _, _, valid = calibration(scores, labels, None)
    return _quantile(scores, error) if valid else math.nan


def class_conditional_quantiles(scores, labels, *, error, num_classes=None):
    """The same within each class."""
    scores, labels, size, valid = calibration(scores, labels, num_classes)
    quantiles = [_quantile(scores[labels == c], error) for c in range(size)]
    return np.array(quantiles) if valid else np.full(size, np.nan)


def interpolated_quantiles(scores, labels, *, error, weight, largest_score=1.0, num_classes=None):
    """`t min(q_c, s_max) + (1 - t) q`."""
    of_classes = class_conditional_quantiles(scores, labels, error=error, num_classes=num_classes)
    of_all = conformal_quantile(calibration(scores, labels, num_classes)[0], error=error)
    return weight * np.minimum(of_classes, largest_score) + (1 - weight) * of_all


def label_shift_quantiles(scores, labels, *, error, weights, num_classes=None):
    """The smallest score up to which the weights reach their part, in exact arithmetic."""
    scores, labels, size, valid = calibration(scores, labels, num_classes)
    weights = [exact(one) for one in np.broadcast_to(weights, size)]
    quantiles = []
    for own in weights:
        required = (1 - exact(error)) * (sum(weights[c] for c in labels) + own)
        reached = [
            score
            for score in scores
            if sum(weights[c] for c in labels[scores <= score]) >= required
        ]
        quantiles.append(min(reached, default=math.inf))
    return np.array(quantiles) if valid else np.full(size, np.nan)


def rank_calibrated_quantiles(scores, ranks, labels, *, error, num_classes=None):
    """Option II of RC3P, in exact arithmetic."""
    places, _, _, ranked = calibration(ranks, labels, num_classes)
    scores, labels, size, valid = calibration(scores, labels, num_classes)
    quantiles, limits = [], []
    for label in range(size):
        own, places_of_class = scores[labels == label], places[labels == label]
        number = len(own)
        for limit in range(1, int(np.nanmax(places)) + 1):
            beyond = int((places_of_class > limit).sum())
            if number and beyond < exact(error) * number:
                level = 1 - exact(error) + exact(beyond) / number
                rank = math.ceil((number + 1) * level)
                limits.append(limit)
                quantiles.append(sorted(own)[rank - 1] if rank <= number else math.inf)
                break
        else:
            limits.append(math.inf)
            quantiles.append(math.inf)
    if not (valid and ranked):
        return np.full(size, np.nan), np.full(size, np.nan)
    return np.array(quantiles), np.array(limits)


def clustered_quantiles(
    scores, labels, *, key, error, num_clusters, clustering_part, num_classes=None
):
    """The quantiles of the best of all possible clusters of classes."""
    scores, labels, size, valid = calibration(scores, labels, num_classes)
    if not valid:
        return np.full(size, np.nan)
    describes = uniform(jax.random.split(key)[0], labels.shape) < clustering_part
    points, weights = {}, {}
    for label in range(size):
        own = np.sort(scores[describes & (labels == label)])
        is_finite = len(own) and np.isfinite(own[-1])
        if is_finite and len(own) >= math.ceil((len(own) + 1) * (1 - exact(error))):
            points[label] = np.quantile(own, [0.5, 0.6, 0.7, 0.8, 0.9])
            weights[label] = np.sqrt(len(own))
    clusters = dict.fromkeys(range(size))
    if len(points) > num_clusters > 1:
        assignments = itertools.product(range(num_clusters), repeat=len(points))
        best = min(assignments, key=lambda found: _cost(found, points, weights))
        clusters |= dict(zip(points, best, strict=True))
    others = ~describes
    of_examples = np.array([clusters[label] for label in labels], object)
    return np.array(
        [
            _quantile(scores[others & (True if one is None else of_examples == one)], error)
            for one in clusters.values()
        ]
    )


def _cost(assigned, points, weights):
    """The weighted squared distances to the means of the clusters."""
    total = 0.0
    for cluster in set(assigned):
        inside = [label for label, one in zip(points, assigned, strict=True) if one == cluster]
        mass = np.array([weights[label] for label in inside])
        places = np.stack([points[label] for label in inside])
        center = mass @ places / mass.sum()
        total += (mass * ((places - center) ** 2).sum(axis=1)).sum()
    return total


def temperature(logits, labels):
    """The temperature of the least mean cross-entropy, by a bounded search of its logarithm."""
    *_, valid = calibration(logits, labels, None)
    logits, labels = float64(logits), np.asarray(labels)
    if not valid:
        return math.nan

    def mean_loss(log_temperature):
        scaled = log_softmax(logits * np.exp(-log_temperature))
        return -scaled[np.arange(len(labels)), labels].mean()

    found = optimize.minimize_scalar(
        mean_loss, bounds=(-10.0, 10.0), method="bounded", options={"xatol": 1e-10}
    )
    return math.exp(found.x)
