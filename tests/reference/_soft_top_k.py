"""Soft memberships in the k largest scores: bisection, long Sinkhorn, closed-form derivatives."""

import math

import numpy as np
from scipy.special import expit

from tests.reference._rows import classes_last, each_example, float64, one_hot


def _laplace_cdf(x):
    tail = np.exp(-np.abs(x)) / 2.0
    return np.where(x > 0, 1.0 - tail, tail)


def _log_laplace_tail(x):
    return -np.abs(x) - np.log(2.0)


def _log_logistic_tail(x):
    return -np.logaddexp(0.0, np.abs(x))


def _from_threshold(row, k, scale, log_tail):
    """`(s - b) / scale` with `sum F = k`, by bisection on the offset from the k-th score.

    If k scores are above the threshold, the tails decide: their sums may be under 1e-300.
    """
    if k == len(row):
        return np.full_like(row, np.inf)
    with np.errstate(over="ignore"):
        distances = (row - np.sort(row)[len(row) - math.ceil(k)]) / scale
    finite = distances[np.isfinite(distances)]

    def is_too_low(threshold):
        is_above = distances >= threshold
        tails = log_tail(distances - threshold)
        above = np.logaddexp.reduce(tails[is_above])
        below = np.logaddexp.reduce(tails[~is_above])
        excess = is_above.sum() - k
        return below > above if excess == 0 else excess + np.exp(below) > np.exp(above)

    low, high = finite.min() - 100.0, finite.max() + 100.0
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if is_too_low(middle) else (low, middle)
    return distances - high


def _each_row(function, scores, k, scale, axis):
    scores = classes_last(scores, axis)
    result = np.empty_like(scores)
    for position in np.ndindex(scores.shape[:-1]):
        row = scores[position]
        num_possible = (row > -np.inf).sum()
        if np.isnan(row).any():
            result[position] = np.nan
        elif num_possible <= k:
            # They are certain, and the others share the rest.
            rest = (k - num_possible) / max(len(row) - num_possible, 1)
            result[position] = np.where(row > -np.inf, 1.0, rest)
        else:
            result[position] = function(row, k, float(scale))
    return np.moveaxis(result, -1, axis)


def lapsum_top_k(scores, k, *, alpha, axis=-1):
    """`F((s - b) / alpha)` with the Laplace CDF F and `sum p = k`."""
    return _each_row(
        lambda row, k, scale: _laplace_cdf(_from_threshold(row, k, scale, _log_laplace_tail)),
        scores,
        k,
        alpha,
        axis,
    )


def lapsum_top_k_jacobian(scores, k, *, alpha):
    """`f_i (delta_ij - q_j) / alpha` with `f = min(p, 1 - p)`, for one row."""
    memberships = lapsum_top_k(scores, k, alpha=alpha)
    return _jacobian(np.minimum(memberships, 1.0 - memberships), alpha)


def _jacobian(slopes, scale):
    if slopes.sum() == 0.0:
        return np.zeros((len(slopes), len(slopes)))
    return (np.diag(slopes) - np.outer(slopes, slopes / slopes.sum())) / float(scale)


def sinkhorn_top_k(scores, k, *, epsilon, axis=-1):
    """`sigmoid(2 (s - b) / epsilon)` with `sum p = k`."""
    return _each_row(
        lambda row, k, scale: expit(_from_threshold(row, k, scale / 2.0, _log_logistic_tail)),
        scores,
        k,
        epsilon,
        axis,
    )


def sinkhorn_top_k_jacobian(scores, k, *, epsilon):
    """`2 f_i (delta_ij - q_j) / epsilon` with `f = p (1 - p)`, for one row."""
    memberships = sinkhorn_top_k(scores, k, epsilon=epsilon)
    return _jacobian(memberships * (1.0 - memberships), epsilon / 2.0)


def sinkhorn_top_k_by_iterations(row, k, *, epsilon, num_iterations):
    """L times the second column of the plan from L scores to {0, 1} after some iterations."""
    row = float64(row)
    costs = (row[:, None] - np.array([0.0, 1.0])) ** 2 / epsilon
    size = len(row)
    log_rows, log_columns = -np.log(size), np.log([(size - k) / size, k / size])
    columns = np.zeros(2)
    for _ in range(num_iterations):
        rows = log_rows - np.logaddexp.reduce(columns - costs, axis=1)
        columns = log_columns - np.logaddexp.reduce(rows[:, None] - costs, axis=0)
    return size * np.exp(rows + columns[1] - costs[:, 1])


def _from_middle(row, k, tau):
    kth, following = np.sort(row)[::-1][k - 1 : k + 1]
    return ((row - kth) + (row - following)) / 2.0 / float(tau)


def sigmoid_top_k(scores, k, *, tau, axis=-1):
    """`sigmoid((s - (s_[k] + s_[k+1]) / 2) / tau)`."""
    scores = np.maximum(classes_last(scores, axis), -1e30)
    result = np.empty_like(scores)
    for position in np.ndindex(scores.shape[:-1]):
        row = scores[position]
        result[position] = np.nan if np.isnan(row).any() else expit(_from_middle(row, k, tau))
    return np.moveaxis(result, -1, axis)


def sigmoid_top_k_jacobian(scores, k, *, tau):
    """`f_i (delta_ij - t_j) / tau`, t half at the k-th class and half at the next, for one row."""
    scores = float64(scores)
    memberships = sigmoid_top_k(scores, k, tau=tau)
    slopes = memberships * (1.0 - memberships)
    return (np.diag(slopes) - np.outer(slopes, _halves(scores, k))) / float(tau)


def _halves(row, k):
    kth, following = np.argsort(-row, kind="stable")[k - 1 : k + 1]
    return (one_hot(kth, len(row)) + one_hot(following, len(row))) / 2.0


@each_example
def lapsum_top_k_loss(logits, label, *, k, alpha):
    """`-log F(r_y)`, in the tail `-r_y + log 2`."""
    distance = _distances(logits, k, alpha)[label]
    return np.log(2.0) - distance if distance <= 0 else -np.log1p(-np.exp(-distance) / 2.0)


@each_example
def lapsum_top_k_loss_gradient(logits, label, *, k, alpha):
    """`(1 / max(p_y, 1/2) - 1) (q - e_y) / alpha`."""
    distances = _distances(logits, k, alpha)
    if np.isinf(distances).all():
        return np.zeros_like(distances)
    with np.errstate(over="ignore"):
        weights = np.exp(np.abs(distances).min() - np.abs(distances))
    slope = 1.0 / max(0.5, _laplace_cdf(distances[label])) - 1.0
    return slope * (weights / weights.sum() - one_hot(label, len(distances))) / float(alpha)


def _distances(logits, k, alpha):
    return _from_threshold(np.maximum(logits, -1e30), k, float(alpha), _log_laplace_tail)


@each_example
def sigmoid_top_k_loss(logits, label, *, k, tau):
    """`log(1 + e^((theta - s_y) / tau))`."""
    return np.logaddexp(0.0, -_from_middle(np.maximum(logits, -1e30), k, tau)[label])


@each_example
def sigmoid_top_k_loss_gradient(logits, label, *, k, tau):
    """`(1 - p_y) (t - e_y) / tau`, half of t at the k-th class and half at the next."""
    row = np.maximum(logits, -1e30)
    slope = expit(-_from_middle(row, k, tau)[label])
    return slope * (_halves(row, k) - one_hot(label, len(row))) / float(tau)


def _without(row, jacobian, i):
    """The log-sum-exp of all entries but one, and its derivative."""
    others = np.delete(row, i)
    if len(others) == 0 or others.max() == -np.inf:
        return -np.inf, np.zeros(jacobian.shape[1])
    total = np.logaddexp.reduce(others)
    return total, np.exp(others - total) @ np.delete(jacobian, i, axis=0)


def _successive_rounds(row, k, tau):
    """Of each round the log-shares and what they leave, both with their derivatives."""
    size = len(row)
    logits = np.maximum((np.maximum(row, -1e30) - max(row.max(), -1e30)) / tau, -1e30)
    slope = np.eye(size) * (row > -np.inf)[:, None] / tau
    for _ in range(k):
        total = np.logaddexp.reduce(logits)
        mean = np.exp(logits - total) @ slope
        rests = [_without(logits, slope, i) for i in range(size)]
        left = np.array([rest for rest, _ in rests]) - total
        left_slope = np.stack([of_rest for _, of_rest in rests]) - mean
        yield (logits - total, slope - mean), (left, left_slope)
        logits, slope = np.maximum(logits + left / tau, -1e30), slope + left_slope / tau


def successive_softmax_top_k(scores, k, *, tau, axis=-1):
    """The sum of k softmaxes of the scores plus the `log(1 - p)` of those before, over tau."""
    scores = classes_last(scores, axis)
    result = np.full(scores.shape, np.nan)
    for position in np.ndindex(scores.shape[:-1]):
        row = scores[position]
        if (row < np.inf).all():
            result[position] = sum(
                np.exp(share) for (share, _), _ in _successive_rounds(row, k, float(tau))
            )
    return np.moveaxis(result, -1, axis)


def successive_softmax_top_k_jacobian(scores, k, *, tau):
    """The derivatives of the sum, for one row."""
    rounds = _successive_rounds(float64(scores), k, float(tau))
    return sum(np.exp(share)[:, None] * slope for (share, slope), _ in rounds)


def _successive(logits, label, k, tau):
    """`log sum_j p_j prod_{i < j} (1 - p_i)` and its derivative."""
    chances, slopes = [], []
    before, before_slope = 0.0, np.zeros(len(logits))
    for (share, slope), (left, left_slope) in _successive_rounds(logits, k, float(tau)):
        chances.append(share[label] + before)
        slopes.append(slope[label] + before_slope)
        before, before_slope = before + left[label], before_slope + left_slope[label]
    total = np.logaddexp.reduce(chances)
    return total, np.exp(np.array(chances) - total) @ np.stack(slopes)


@each_example
def successive_softmax_top_k_loss(logits, label, *, k, tau):
    """`-log(1 - prod_j (1 - p_j))` of the label's shares."""
    return -_successive(logits, label, k, tau)[0]


@each_example
def successive_softmax_top_k_loss_gradient(logits, label, *, k, tau):
    """The derivative that the rounds carry."""
    return -_successive(logits, label, k, tau)[1]
