"""Losses and scores that know the class counts, as their papers write them."""

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
