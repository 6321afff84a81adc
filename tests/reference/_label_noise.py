"""Losses for wrong and for uncertain labels, as their papers write them."""

import numpy as np

from tests.reference._rows import each_example, float64, log_softmax, one_hot


@each_example
def generalized_cross_entropy(logits, label, *, q):
    """`(1 - p_y^q) / q` (Zhang and Sabuncu 2018)."""
    return (1.0 - np.exp(log_softmax(logits)[label]) ** q) / q


@each_example
def generalized_cross_entropy_gradient(logits, label, *, q):
    """`p_y^q (p - e_y)`."""
    probabilities = np.exp(log_softmax(logits))
    return probabilities[label] ** q * (probabilities - one_hot(label, len(logits)))


@each_example
def symmetric_cross_entropy(logits, label, *, alpha, beta, log_zero=-4.0):
    """`-alpha sum_j t_j log p_j - beta sum_j p_j log t_j`, with A for log 0 (Wang et al. 2019)."""
    logs = log_softmax(logits)
    log_targets = np.where(np.arange(len(logits)) == label, 0.0, log_zero)
    reverse = -(np.exp(logs) * log_targets).sum()
    return -alpha * logs[label] + beta * reverse if alpha > 0 else beta * reverse


@each_example
def symmetric_cross_entropy_gradient(logits, label, *, alpha, beta, log_zero=-4.0):
    """`(alpha - beta A p_y) (p - e_y)`."""
    probabilities = np.exp(log_softmax(logits))
    slope = alpha - beta * log_zero * probabilities[label]
    return slope * (probabilities - one_hot(label, len(logits)))


def expect_over_labels(logits, plausibilities, *, loss, num_labels=None, where=None):
    """`sum_y lambda_y loss(s, y)` of the most plausible labels."""
    logits, shares = float64(logits), float64(plausibilities)
    losses = np.stack(
        [loss(logits, np.full(len(logits), label)) for label in range(logits.shape[-1])], axis=-1
    )
    ranks = np.argsort(np.argsort(-shares, kind="stable", axis=-1), axis=-1)
    counted = (shares > 0) & (ranks < (num_labels or logits.shape[-1]))
    total = np.where(counted, shares * losses, 0.0).sum(axis=-1)
    return total if where is None else np.where(where, total, 0.0)
