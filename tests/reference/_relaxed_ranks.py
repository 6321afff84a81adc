"""Relaxed ranks and their cross-entropy, with derivatives carried beside every number.

A `_Dual` is an array with its derivatives in the n scores of one example on a further, last axis.
Networks go through their comparators one by one, and a unit vector of one class through the network
from its start to its end.
"""

import numpy as np

from tests.reference._rows import classes_last, each_example, float64


class _Dual:
    """Numbers and their derivatives in the scores."""

    def __init__(self, value, slope):
        self.value, self.slope = np.asarray(value, np.float64), np.asarray(slope, np.float64)

    def __getitem__(self, key):
        # Copies, because lanes are overwritten one by one.
        return _Dual(np.array(self.value[key]), np.array(self.slope[key]))

    def __add__(self, other):
        if isinstance(other, _Dual):
            return _Dual(self.value + other.value, self.slope + other.slope)
        return _Dual(self.value + other, self.slope)

    def __sub__(self, other):
        return self + other.times(-1.0)

    def times(self, factor):
        return _Dual(factor * self.value, np.asarray(factor)[..., None] * self.slope)

    def mapped(self, value, derivative):
        return _Dual(value, np.asarray(derivative)[..., None] * self.slope)


def _variables(row):
    return _Dual(np.array(row), np.eye(len(row)))


def _impossible(size, count):
    """The logarithms of `count` zeros."""
    return _Dual(np.full(count, -np.inf), np.zeros((count, size)))


def _log_sum(terms):
    """The logarithm of the sum of the exponentials over axis 0, -inf without terms."""
    highest = terms.value.max(axis=0)
    if highest == -np.inf:
        return _Dual(-np.inf, np.zeros_like(terms.slope[0]))
    shares = np.exp(terms.value - highest)
    slope = (shares[..., None] * terms.slope).sum(axis=0) / shares.sum(axis=0)
    return _Dual(highest + np.log(shares.sum(axis=0)), slope)


def _stack(duals):
    return _Dual(np.stack([d.value for d in duals]), np.stack([d.slope for d in duals]))


def _log_ranks_by_softmax(row, label, k, logits_of_rank):
    """Log-probabilities of the label for ranks 1 to k; masked classes are as if they were not."""
    possible = np.flatnonzero(row > -np.inf)
    result = _impossible(len(row), k)
    if label not in possible:
        return result
    scores = _variables(row)[possible]
    order = np.argsort(-scores.value, kind="stable")
    for rank in range(1, min(k, len(possible)) + 1):
        logits = logits_of_rank(scores, scores[order[rank - 1]], rank)
        log_probability = logits[np.flatnonzero(possible == label)[0]] - _log_sum(logits)
        result.value[rank - 1] = log_probability.value
        result.slope[rank - 1] = log_probability.slope
    return result


def _distance(one, other):
    gap = one - other
    return gap.mapped(np.abs(gap.value), np.sign(gap.value))


def _soft_sort(row, label, k, tau):
    def logits(scores, of_rank, rank):
        every = _Dual(
            np.broadcast_to(of_rank.value, scores.value.shape),
            np.broadcast_to(of_rank.slope, scores.slope.shape),
        )
        return _distance(scores, every).times(-1.0 / tau)

    return _log_ranks_by_softmax(row, label, k, logits)


def _odd_even_comparators(size):
    return [(i, i + 1) for layer in range(size) for i in range(layer % 2, size - 1, 2)]


def _swap_probability(gap, swap):
    """The probability of the smaller lane to keep its score, its logarithm, and its slope."""
    if swap == "logistic":
        log = -np.logaddexp(0.0, -gap)
        return log, np.exp(-np.logaddexp(0.0, gap))
    probability = np.arctan2(1.0, -gap) / np.pi
    return np.log(probability), 1.0 / (np.pi * (1.0 + gap * gap)) / probability


def _gate(gap, swap, tau):
    """The logarithm of the probability to keep two lanes whose gap is given, with derivatives."""
    if np.isinf(gap.value):
        return _Dual(0.0 if gap.value > 0 else -np.inf, np.zeros_like(gap.slope))
    log, slope = _swap_probability(gap.value / tau, swap)
    return gap.mapped(log, slope / tau)


def _network(row, label, k, tau, swap):
    size = len(row)
    scores = _variables(row)
    log_row = _impossible(size, size)
    log_row.value[label] = 0.0
    for low, high in _odd_even_comparators(size):
        a, b = scores[low], scores[high]
        # Not inf - inf.
        gap = _Dual(0.0, b.slope - a.slope) if a.value == b.value else b - a
        keep = _gate(gap, swap, tau)
        change = _gate(gap.times(-1.0), swap, tau)
        # Only the finite scores are mixed; a masked class and another one change places at most.
        if np.isinf(a.value) or np.isinf(b.value):
            mixed = [b, a] if keep.value == -np.inf else [a, b]
        else:
            p, q = np.exp(keep.value), np.exp(change.value)
            mixing = p * keep.slope * (a.value - b.value)
            mixed = [
                _Dual(p * a.value + q * b.value, p * a.slope + q * b.slope + mixing),
                _Dual(q * a.value + p * b.value, q * a.slope + p * b.slope - mixing),
            ]
        at_low = _log_sum(_stack([keep + log_row[low], change + log_row[high]]))
        at_high = _log_sum(_stack([change + log_row[low], keep + log_row[high]]))
        for lane, score, log in ((low, mixed[0], at_low), (high, mixed[1], at_high)):
            scores.value[lane], scores.slope[lane] = score.value, score.slope
            log_row.value[lane], log_row.slope[lane] = log.value, log.slope
    return log_row[np.arange(size)[::-1][:k]]


def _log_ranks(row, label, k, *, method, tau, swap="cauchy"):
    """Log-probabilities of one class for ranks 1 to k."""
    with np.errstate(invalid="ignore"):
        if method == "soft_sort":
            return _soft_sort(row, label, k, tau)
        return _network(row, label, k, tau, swap)


def relaxed_ranks(scores, k, *, axis=-1, **relaxation):
    """P with ranks and classes on the last two axes, a class at a time."""
    scores = classes_last(scores, axis)
    result = np.full((*scores.shape[:-1], k, scores.shape[-1]), np.nan)
    for position in np.ndindex(scores.shape[:-1]):
        row = scores[position]
        if not np.isnan(row).any():
            columns = [_log_ranks(row, c, k, **relaxation).value for c in range(len(row))]
            result[position] = np.exp(np.stack(columns, axis=-1))
    return result


def relaxed_ranks_jacobian(scores, k, **relaxation):
    """The derivatives of P in the scores of one row, `[k, L, L]`."""
    row = float64(scores)
    duals = [_log_ranks(row, c, k, **relaxation) for c in range(len(row))]
    columns = [np.exp(dual.value)[:, None] * dual.slope for dual in duals]
    return np.stack(columns, axis=1)


def _cross_entropy(logits, label, top_k_weights, num_candidates, softmax_top_1, relaxation):
    weights = float64(top_k_weights)
    chosen, position = np.arange(len(logits)), label
    if num_candidates is not None:
        others = np.delete(chosen, label)
        order = np.argsort(-logits[others], kind="stable")
        chosen, position = np.array([label, *others[order[: num_candidates - 1]]]), 0
    row = logits[chosen]
    ranks = _log_ranks(row, position, len(weights), **relaxation)
    parts = []
    for size, weight in enumerate(weights, start=1):
        if weight == 0:
            continue
        if size == 1 and softmax_top_1:
            possible = _variables(row)[np.flatnonzero(row > -np.inf)]
            part = _variables(row)[position] - _log_sum(possible)
        else:
            part = _log_sum(ranks[:size])
        parts.append(part + np.log(weight))
    total = _log_sum(_stack(parts)).times(-1.0)
    slope = np.zeros(len(logits))
    slope[chosen] = total.slope
    return total.value, slope


@each_example
def relaxed_top_k_cross_entropy(
    logits, label, *, top_k_weights, num_candidates=None, softmax_top_1=True, **relaxation
):
    """`-log sum_k w_k q_k`."""
    return _cross_entropy(logits, label, top_k_weights, num_candidates, softmax_top_1, relaxation)[
        0
    ]


@each_example
def relaxed_top_k_cross_entropy_gradient(
    logits, label, *, top_k_weights, num_candidates=None, softmax_top_1=True, **relaxation
):
    """The derivative that the numbers carry."""
    return _cross_entropy(logits, label, top_k_weights, num_candidates, softmax_top_1, relaxation)[
        1
    ]
