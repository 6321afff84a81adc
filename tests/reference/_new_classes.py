"""Outlier scores, and sets with a symbol for a new class: one example at a time."""

import math

import numpy as np
from scipy import special, stats

from tests.reference._rows import exact, float64


def outlier_scores(logits, *, kind):
    """Minus the log-sum-exp or the largest logit, or one less the largest probability."""
    logits = float64(logits)
    if kind == "energy":
        return -special.logsumexp(logits, axis=-1)
    if kind == "logit":
        return -logits.max(axis=-1)
    descending = -np.sort(-special.softmax(logits, axis=-1), axis=-1)
    return descending[:, 1:].sum(axis=-1)


def neighbor_scores(features, known_features, *, k):
    """The k-th smallest distance, from all of them."""
    known = float64(known_features)
    return np.array([np.sort(np.linalg.norm(known - row, axis=1))[k - 1] for row in features])


def class_gaussian(features, labels, *, num_classes, shrinkage):
    """The means, infinite without examples, and the inverse of the Cholesky factor."""
    features, labels = float64(features), np.asarray(labels)
    number, size = features.shape
    if np.isnan(features).any() or not np.isin(labels, range(num_classes)).all():
        return np.full((num_classes, size), np.nan), np.full((size, size), np.nan)
    means = np.full((num_classes, size), np.inf)
    for label in set(labels.tolist()):
        means[label] = features[labels == label].mean(axis=0)
    covariance = np.zeros((size, size))
    for row, label in zip(features, labels, strict=True):
        covariance += np.outer(row - means[label], row - means[label]) / number
    spread = np.trace(covariance) / size
    shrunk = (1 - shrinkage) * covariance + shrinkage * spread * np.eye(size)
    return means, np.linalg.inv(np.linalg.cholesky(shrunk))


def mahalanobis_scores(features, means, whitening):
    """The smallest distance, from an inverse covariance."""
    whitening = float64(whitening)
    precision = whitening.T @ whitening
    means = float64(means)[np.isfinite(means).all(axis=1)]
    differences = float64(features)[:, None] - means
    return np.sqrt(np.einsum("ncd,de,nce->nc", differences, precision, differences).min(axis=1))


def good_turing_p_value(class_counts):
    """`(M_1 + 1) / (n + 1)`."""
    counts = np.asarray(class_counts)
    return (int((counts == 1).sum()) + 1) / (int(counts.sum()) + 1)


def new_class_p_values(outlier_scores, calibration_outlier_scores, seen_once):
    """One more than how many of the examples seen once are as usual, over one more than all."""
    known, values = float64(calibration_outlier_scores), float64(outlier_scores)
    numbers = [1 + (seen_once & (known <= value)).sum() for value in values]
    missing = np.isnan(values) | np.isnan(known).any()
    return np.where(missing, np.nan, np.array(numbers) / (len(known) + 1))


def new_class_threshold(calibration_outlier_scores, seen_once, *, error):
    """The smallest score whose p-value exceeds the error, of those at which p-values change."""
    known, number = float64(calibration_outlier_scores), len(seen_once) + 1
    for value in (-math.inf, *np.sort(known[seen_once])):
        if 1 + (seen_once & (known <= value)).sum() > exact(error) * number:
            return value
    return math.inf


def open_set(members, outlier_scores, *, known_to, new_from=math.inf):
    """The sets, one example at a time."""
    return np.array(
        [
            [*(row & (value <= known_to)), value >= new_from or value > known_to]
            for row, value in zip(members, outlier_scores, strict=True)
        ]
    )


def selective_threshold(confidences, hits, *, error, delta):
    """Thresholds from the largest down, with binomial p-values; the others as it is defined."""
    confidences = float64(confidences)
    if np.isnan(confidences).any():
        return math.nan
    found = math.inf
    for threshold in (*np.unique(confidences)[::-1], -math.inf):
        above = confidences > threshold
        number, wrong = above.sum(), (above & ~hits).sum()
        if stats.binom.cdf(1, number, error) > delta:
            continue
        if stats.binom.cdf(wrong, number, error) > delta:
            return found
        found = threshold
    return found
