"""Losses that couple the examples of a batch `[n, L]`, and their gradients: scalars in closed form.

A NaN logit or a label outside [0, L) makes the value NaN: there is no example to confine it to. A
class masked out by -inf is harmless if it is not the true one: as a candidate, or as an estimated
label, its logarithm would be infinite, and gets no weight instead.
"""

import numpy as np

from tests.reference._rows import float64, log_softmax, sigmoid, whole_part


def _batch(logits, labels):
    """The logits in float64 and, for each example, the row of the indicator of its label."""
    logits, labels = float64(logits), np.asarray(labels)
    return logits, (labels[:, None] == np.arange(logits.shape[-1])).astype(np.float64)


def _checked(value, indicators, *arrays):
    broken = (indicators.sum(axis=-1) != 1).any() or any(np.isnan(array).any() for array in arrays)
    return np.float64(np.nan) if broken else np.float64(value)


def _log_sigmoid(logits):
    return -np.logaddexp(0.0, -logits)


def _masked_sum(mask, values):
    """The sum of `mask * values`; a masked infinity counts as 0."""
    return (mask * np.where(mask > 0.0, values, 0.0)).sum()


def _gap(logits, expected_positives):
    """`mean_i sum_j sig(z_ij) - K` (5.7)."""
    return sigmoid(logits).sum(axis=-1).mean() - float64(expected_positives)


def _gap_squared_gradient(logits, expected_positives):
    slopes = sigmoid(logits) * sigmoid(-logits)
    return 2.0 * _gap(logits, expected_positives) * slopes / len(logits)


def _positives(logits, indicators):
    """`mean_i -log sig(z_{i,y_i})` (5.6)."""
    return -_masked_sum(indicators, _log_sigmoid(logits)) / len(logits)


def _positives_gradient(logits, indicators):
    return -indicators * sigmoid(-logits) / len(logits)


def expected_positive_regularization(logits, labels, *, expected_positives, beta, axis_name=None):
    """`mean_i -log sig(z_{i,y_i}) + beta (mean_i sum_j sig(z_ij) - K)^2` (5.8)."""
    logits, indicators = _batch(logits, labels)
    value = _positives(logits, indicators) + beta * _gap(logits, expected_positives) ** 2
    return _checked(value, indicators, logits)


def expected_positive_regularization_gradient(logits, labels, *, expected_positives, beta):
    """The gradient of 5.8 in every logit of the batch."""
    logits, indicators = _batch(logits, labels)
    regularizer = beta * _gap_squared_gradient(logits, expected_positives)
    return _positives_gradient(logits, indicators) + regularizer


def _cross(logits, probabilities):
    """`mean_i sum_j -q log sig(z) - (1 - q) log(1 - sig(z))` with q held fixed."""
    positive = _masked_sum(probabilities * (logits > -np.inf), _log_sigmoid(logits))
    negative = _masked_sum(1.0 - probabilities, _log_sigmoid(-logits))
    return -(positive + negative) / len(logits)


def role(logits, label_logits, labels, *, expected_positives, weight, axis_name=None):
    """Half of (positives + cross + weight R) of f, half of the same of theta (5.4.6; Cole et al.).

    With R the squared gap of 5.8, sums over the classes and means over the examples: L times the
    value of Cole et al., who divide the gap by L and average over B L, at `weight = lambda / L`.
    """
    logits, indicators = _batch(logits, labels)
    estimates = float64(label_logits)
    value = 0.0
    for own, other in ((logits, estimates), (estimates, logits)):
        value += _positives(own, indicators) + _cross(own, sigmoid(other))
        value += weight * _gap(own, expected_positives) ** 2
    return _checked(value / 2.0, indicators, logits, estimates)


def role_gradient(logits, label_logits, labels, *, expected_positives, weight):
    """The gradients in the logits and in the label logits; a cross term moves its own side only."""
    logits, indicators = _batch(logits, labels)
    estimates = float64(label_logits)
    return tuple(
        (
            _positives_gradient(own, indicators)
            + (own > -np.inf) * (sigmoid(own) - sigmoid(other)) / len(logits)
            + weight * _gap_squared_gradient(own, expected_positives)
        )
        / 2.0
        for own, other in ((logits, estimates), (estimates, logits))
    )


def average_k_candidates(proposal_logits, labels, *, k, axis_name=None):
    """The `(k-1) n` largest softmax entries of the batch, true labels struck out (5.11, 5.12).

    Equal entries go to the lower index of the flattened batch. An example with a NaN or a label out
    of range has none, and leaves its part to others. Log-odds, a score less the log-sum
    of the others, order the entries as the probabilities do, and round to neither 0 nor 1.
    """
    proposal_logits, indicators = _batch(proposal_logits, labels)
    entries = np.array(
        [
            score - np.logaddexp.reduce(np.sort(np.delete(row, j)), initial=-np.inf)
            for row in proposal_logits
            for j, score in enumerate(row)
        ]
    )
    number = whole_part(k, len(indicators)) - len(indicators)
    chosen = np.zeros(entries.shape, bool)
    broken = (indicators.sum(axis=-1) != 1) | np.isnan(proposal_logits).any(axis=-1)
    allowed = np.flatnonzero(((indicators == 0) & ~broken[:, None]).reshape(-1))
    chosen[allowed[np.argsort(-entries[allowed], kind="stable")[:number]]] = True
    return chosen.reshape(indicators.shape)


def _shares(logits, indicators, candidates):
    """The weights of candidates and of negatives in 5.9: one over their number, 0 if none.

    A candidate that is masked out by -inf counts, and weighs nothing.
    """
    negatives = 1.0 - indicators - candidates
    positive, negative = (mask / max(mask.sum(), 1.0) for mask in (candidates, negatives))
    return positive * (logits > -np.inf), negative


def average_k(logits, proposal_logits, labels, *, k, alpha, axis_name=None):
    """The cross-entropy of the proposal head plus the three-term BCE of the other (5.15).

    The three terms are the terms of 5.9, which divides by counts: the third runs over the classes
    that are neither candidates nor true (5.14 prints the true one among them).
    """
    logits, indicators = _batch(logits, labels)
    proposal_logits = float64(proposal_logits)
    candidates = average_k_candidates(proposal_logits, labels, k=k).astype(np.float64)
    positive, negative = _shares(logits, indicators, candidates)
    value = -_masked_sum(indicators, log_softmax(proposal_logits)) / len(logits)
    value += _positives(logits, indicators)
    value -= alpha * _masked_sum(positive, _log_sigmoid(logits))
    value -= alpha * _masked_sum(negative, _log_sigmoid(-logits))
    return _checked(value, indicators, logits, proposal_logits)


def average_k_gradient(logits, proposal_logits, labels, *, k, alpha):
    """The gradients in the logits and in the proposal logits, with the candidates held fixed."""
    logits, indicators = _batch(logits, labels)
    candidates = average_k_candidates(proposal_logits, labels, k=k).astype(np.float64)
    positive, negative = _shares(logits, indicators, candidates)
    pseudo = alpha * (negative * sigmoid(logits) - positive * sigmoid(-logits))
    proposal = (np.exp(log_softmax(proposal_logits)) - indicators) / len(logits)
    return _positives_gradient(logits, indicators) + pseudo, proposal
