"""Functions of features and heads: those of the scores of all classes."""

import numpy as np

from tests.reference import _losses
from tests.reference._operators import descending
from tests.reference._rows import float64


def scores(features, head):
    """`W^T x + b`."""
    product = float64(features) @ float64(head.weights)
    return product if head.bias is None else product + float64(head.bias)


def unit_vectors(vectors, *, axis):
    """Divided by the length; 0 for vectors without one."""
    vectors = float64(vectors)
    length = np.linalg.norm(vectors, axis=axis, keepdims=True)
    return np.where(length < 1e-12, 0, vectors / np.maximum(length, 1e-12))


def cross_entropy(features, head, labels, **parameters):
    return _losses.cross_entropy(scores(features, head), labels, **parameters)


def in_blocks(loss, features, labels, *, block_size):
    """All examples at once."""
    return loss(features, labels)


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
