"""The choice of a set size, straight from the definitions."""

import numpy as np

from tests.reference._rows import each_example, float64, log_softmax


def cardinality_aware(selector_logits, costs, *, where=None):
    """`sum_j (1 - c_j) log sum_i e^(r_i - r_j)` (Cortes et al.)."""
    logs, weights = log_softmax(selector_logits), 1 - float64(costs)
    weights = np.where(float64(selector_logits) == -np.inf, 0.0, weights)
    terms = np.where(weights == 0, 0.0, weights * np.where(weights == 0, 0.0, logs))
    return np.where(True if where is None else where, -terms.sum(axis=-1), 0.0)


def cardinality_aware_gradient(selector_logits, costs):
    """`sum_i (1 - c_i) softmax(r) - (1 - c)`."""
    weights = np.where(float64(selector_logits) == -np.inf, 0.0, 1 - float64(costs))
    probabilities = np.exp(log_softmax(selector_logits))
    return weights.sum(axis=-1, keepdims=True) * probabilities - weights


@each_example
def cardinality_costs(logits, label, *, sizes, weight):
    """`(1{y not among the k best} + lambda log k) / (1 + lambda log max k)` by sorting."""
    ordered = np.sort(logits)[::-1]
    missed = np.array([logits[label] < ordered[size - 1] for size in sizes])
    return (missed + weight * np.log(sizes)) / (1 + weight * np.log(max(sizes)))
