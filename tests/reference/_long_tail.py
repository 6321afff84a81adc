"""Losses that know the class counts, or that labels may be wrong, as their papers write them."""

from fractions import Fraction

import numpy as np

from tests.reference._rows import each_example, float64, log_softmax, one_hot


def _log_prior(class_counts):
    counts = float64(class_counts)
    return np.log(counts) - np.log(counts.sum())


def adjust_logits(logits, *, class_counts, tau=1.0):
    """`s - tau log pi` (Menon et al. 2021, 9)."""
    return float64(logits) - tau * _log_prior(class_counts)


@each_example
def vector_scaling(logits, label, *, class_counts, gamma, tau):
    """The cross-entropy of `Delta_c s_c + iota_c` (Kini et al. 2021)."""
    return -log_softmax(_scaled(logits, class_counts, gamma, tau))[label]


@each_example
def vector_scaling_gradient(logits, label, *, class_counts, gamma, tau):
    """`Delta (softmax(Delta s + iota) - e_y)`."""
    probabilities = np.exp(log_softmax(_scaled(logits, class_counts, gamma, tau)))
    return _factors(class_counts, gamma) * (probabilities - one_hot(label, len(logits)))


def logit_adjusted_cross_entropy(logits, labels, *, class_counts, tau=1.0):
    """The cross-entropy of `s + tau log pi` (Menon et al. 2021, 10)."""
    return vector_scaling(logits, labels, class_counts=class_counts, gamma=0.0, tau=tau)


def logit_adjusted_cross_entropy_gradient(logits, labels, *, class_counts, tau=1.0):
    """`softmax(s + tau log pi) - e_y`."""
    return vector_scaling_gradient(logits, labels, class_counts=class_counts, gamma=0.0, tau=tau)


def class_balanced_weights(class_counts, *, beta):
    """`(1 - beta) / (1 - beta^n)` over its mean, in exact arithmetic (Cui et al. 2019)."""
    beta = Fraction(beta)
    inverses = [(1 - beta) / (1 - beta ** int(count)) for count in class_counts]
    return np.array([float(one * len(inverses) / sum(inverses)) for one in inverses])


def _factors(class_counts, gamma):
    counts = float64(class_counts)
    return (counts / counts.max()) ** gamma


def _scaled(logits, class_counts, gamma, tau):
    return _factors(class_counts, gamma) * logits + tau * _log_prior(class_counts)


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
