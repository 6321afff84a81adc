"""The entmax family and the p-norm top-k by bisection, and their closed derivatives."""

import numpy as np

from tests.reference._rows import classes_last, each_example, log_softmax, one_hot


def _bisect(function, low, high):
    """The largest float t in [low, high] with `function(t) >= 0`, for a decreasing function."""
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if function(middle) >= 0 else (low, middle)
    return low


def _each_row(function, scores, axis):
    scores = classes_last(scores, axis)
    result = np.full_like(scores, np.nan)
    for position in np.ndindex(scores.shape[:-1]):
        if not np.isnan(scores[position]).any():
            result[position] = function(np.maximum(scores[position], -1e30))
    return np.moveaxis(result, -1, axis)


def _entmax(row, alpha):
    if alpha == 1:
        return np.exp(log_softmax(row))
    scaled = (alpha - 1) * (row - row.max())

    def powers(threshold):
        return np.maximum(scaled - threshold, 0.0) ** (1 / (alpha - 1))

    probabilities = powers(_bisect(lambda t: powers(t).sum() - 1, -1.0, 0.0))
    return probabilities / probabilities.sum()


def entmax(scores, *, alpha, axis=-1):
    """`[(alpha - 1) s - t]_+^(1 / (alpha - 1))` with the sum 1; softmax at 1 (Peters et al.)."""
    return _each_row(lambda row: _entmax(row, alpha), scores, axis)


def entmax_jacobian(scores, *, alpha):
    """`diag(q) - q q^T / sum q`, `q = p^(2 - alpha)` on the support, for one row."""
    probabilities = entmax(scores, alpha=alpha)
    weights = np.where(probabilities > 0, probabilities ** (2.0 - alpha), 0.0)
    return np.diag(weights) - np.outer(weights, weights) / weights.sum()


@each_example
def entmax_loss(logits, label, *, alpha):
    """`(p - e_y) s + (1 - sum p^alpha) / (alpha (alpha - 1))`; cross-entropy at 1."""
    if alpha == 1:
        return -log_softmax(logits)[label]
    row = np.maximum(logits, -1e30)
    row = row - row.max()
    probabilities = _entmax(row, alpha)
    tsallis = (1 - (probabilities**alpha).sum()) / (alpha * (alpha - 1))
    return (probabilities * row).sum() - row[label] + tsallis


@each_example
def entmax_loss_gradient(logits, label, *, alpha):
    """`p - e_y`."""
    return entmax(logits, alpha=alpha) - one_hot(label, len(logits))


def p_norm_top_k(scores, k, *, p, regularization, axis=-1):
    """`clip((s - t) / lambda, 0, 1)^(1 / (p - 1))` with the sum k (Sander et al.)."""

    def mask(row):
        # The k-th score as zero: t is from -lambda to 0, and k classes far above are ones.
        scaled = (row - np.sort(row)[len(row) - k]) / regularization

        def powers(threshold):
            return np.clip(scaled - threshold, 0.0, 1.0) ** (1 / (p - 1))

        return powers(_bisect(lambda t: powers(t).sum() - k, -1.0, 0.0))

    return _each_row(mask, scores, axis)


def p_norm_top_k_jacobian(scores, k, *, p, regularization):
    """`diag(q) - q q^T / sum q`, `q = m^(2 - p) / (lambda (p - 1))` where 0 < m < 1: one row."""
    mask = p_norm_top_k(scores, k, p=p, regularization=regularization)
    between = (mask > 0) & (mask < 1)
    weights = np.where(between, mask ** (2.0 - p) / (regularization * (p - 1)), 0.0)
    return np.diag(weights) - np.outer(weights, weights) / (weights.sum() or 1.0)
