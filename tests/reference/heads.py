"""Functions of features and heads: those of the scores of all classes."""

import numpy as np

from tests.reference import _batch_losses, _losses
from tests.reference._operators import descending
from tests.reference._rows import float64


def scores(features, head):
    """`W^T x + b`, or `gamma` times the cosine of the angle; 0 for vectors without a length."""
    features, weights = float64(features), float64(head.weights)
    if not hasattr(head, "scale"):
        return features @ weights + (0.0 if head.bias is None else float64(head.bias))
    rows, columns = (
        vectors / np.maximum(np.linalg.norm(vectors, axis=axis, keepdims=True), 1e-12)
        for vectors, axis in ((features, -1), (weights, 0))
    )
    return float64(head.scale) * rows @ columns


def _of_scores(loss):
    def of_features(features, head, labels, **parameters):
        return loss(scores(features, head), labels, **parameters)

    return of_features


calibrated_top_k_hinge = _of_scores(_losses.calibrated_top_k_hinge)
convex_top_k_hinge = _of_scores(_losses.convex_top_k_hinge)
cross_entropy = _of_scores(_losses.cross_entropy)
noised_top_k_hinge = _of_scores(_losses.noised_top_k_hinge)
top_k_hinge = _of_scores(_losses.top_k_hinge)


def average_k(features, head, proposal_head, labels, **parameters):
    """The loss of the scores of two heads."""
    both = scores(features, head), scores(features, proposal_head)
    return _batch_losses.average_k(*both, labels, **parameters)


def top_k(features, head, *, k):
    """The k largest scores (2.13), of lower index among equals, and their classes; NaN and -1
    beside a NaN or +inf.
    """
    return largest(scores(features, head), k)


def largest(values, k):
    """The same of scores."""
    found, classes = np.full((len(values), k), np.nan), np.full((len(values), k), -1)
    for position, row in enumerate(float64(values)):
        if (row < np.inf).all():
            classes[position] = descending(row)[:k]
            found[position] = row[classes[position]]
    return found, classes


def largest_gradient(values, shares, k):
    """Of the sum of the k largest scores, the first times the first share [k] and so on."""
    found, classes = largest(values, k)
    slope = np.zeros(np.shape(values))
    for position, own in enumerate(classes):
        if np.isnan(found[position]).any():
            slope[position] = np.nan
        else:
            slope[position][own] = np.where(np.isneginf(found[position]), 0, shares)
    return slope
