"""Losses of the sets of a batch `[n, L]`, and of the choice of a set size."""

import math

import numpy as np
import scipy.optimize

from tests.reference._operators import expected_top_k_value
from tests.reference._rows import each_example, exact, float64, log_softmax, sigmoid, valid


def _scores(logits, labels, conformity):
    """The scores that conform if they are large, the same for the labels, and their indicators."""
    logits, labels = float64(logits), np.asarray(labels)
    scores = log_softmax(logits) if conformity == "log_probability" else logits
    return scores, scores[np.arange(len(labels)), labels], np.eye(logits.shape[-1])[labels]


def _to_logits(logits, slopes, conformity):
    """The gradient in the logits, given the one in the scores."""
    if conformity == "logit":
        return slopes
    return slopes - np.exp(log_softmax(float64(logits))) * slopes.sum(axis=-1, keepdims=True)


def conformal_training(
    logits,
    labels,
    *,
    error,
    temperature,
    smoothing,
    size_weight=1.0,
    target_size=1.0,
    loss_matrix=None,
    conformity="log_probability",
):
    """Equations 4 to 7 of Stutz et al., with the even places for the quantile."""
    if not all(valid(float64(row), label) for row, label in zip(logits, labels, strict=True)):
        return np.float64(np.nan)
    scores, of_labels, indicators = _scores(logits, labels, conformity)
    calibrating = of_labels[::2]
    rank = min(math.ceil(round((len(calibrating) + 1) * (1 - error), 9)), len(calibrating))
    threshold = expected_top_k_value(calibrating, rank, epsilon=smoothing)
    soft, indicators = sigmoid((scores[1::2] - threshold) / temperature), indicators[1::2]
    weights = np.eye(scores.shape[-1]) if loss_matrix is None else float64(loss_matrix)
    costs = indicators * (1 - soft) + (1 - indicators) * soft
    costs = (weights[np.asarray(labels)[1::2]] * costs).sum(axis=-1)
    sizes = np.maximum(0, soft.sum(axis=-1) - target_size)
    return np.log(np.mean(costs + size_weight * sizes) + 1e-8)


def p_value_uniformity(logits, labels, *, uniform, axis_name=None):
    """The distance of Kolmogorov and Smirnov from the uniform law."""
    return _distance(logits, labels, uniform)[0]


def p_value_uniformity_gradient(logits, labels, *, uniform):
    _, example, sign = _distance(logits, labels, uniform)
    probabilities = np.exp(log_softmax(float64(logits)))[example]
    weights = _shares(float64(logits)[example], np.asarray(labels)[example], uniform[example])
    gradient = np.zeros(np.shape(logits))
    gradient[example] = sign * probabilities * (weights - weights @ probabilities)
    return gradient


def efficiency_gap(logits, labels, *, error, axis_name=None):
    """The even places calibrate, the mean is over the odd ones."""
    values, threshold = _masses(logits, labels, error)[:2]
    return np.mean((values[threshold] - values[1::2]) ** 2)


def efficiency_gap_gradient(logits, labels, *, error):
    values, threshold, slopes = _masses(logits, labels, error)
    gradient, odd = np.zeros(np.shape(logits)), range(1, len(values), 2)
    for example in odd:
        factor = 2 * (values[threshold] - values[example]) / len(odd)
        gradient[threshold] += factor * slopes[threshold]
        gradient[example] -= factor * slopes[example]
    return gradient


def _masses(logits, labels, error):
    """The labels' scores, the example whose score is the threshold, and each score's gradient."""
    probabilities = np.exp(log_softmax(float64(logits)))
    shares = np.array(
        [_shares(row, label, 1.0) for row, label in zip(float64(logits), labels, strict=True)]
    )
    values = (shares * probabilities).sum(axis=-1)
    calibrating = values[::2]
    rank = min(math.ceil((len(calibrating) + 1) * (1 - exact(error))), len(calibrating))
    slopes = probabilities * (shares - values[:, None])
    return values, 2 * np.argsort(calibrating)[rank - 1], slopes


def _shares(row, label, uniform):
    """What part of each class counts for the score: all above the label, a part of the label."""
    return np.where(np.arange(len(row)) == label, float64(uniform), row > row[label])


def _distance(logits, labels, uniform):
    """The distance, the example that it is at, and whether it grows with this example's score."""
    probabilities = np.exp(log_softmax(float64(logits)))
    values = np.array(
        [
            _shares(row, label, drawn) @ own
            for row, label, drawn, own in zip(
                float64(logits), labels, uniform, probabilities, strict=True
            )
        ]
    )
    order, size = np.argsort(values), len(values)
    below = np.arange(1, size + 1) / size - values[order]
    above = values[order] - np.arange(size) / size
    if below.max() > above.max():
        return below.max(), order[below.argmax()], -1.0
    return above.max(), order[above.argmax()], 1.0


def _at_coverage(of_labels, coverage, temperature):
    def excess(threshold):
        return sigmoid((of_labels - threshold) / temperature).mean() - coverage

    reach = temperature * (abs(np.log(coverage / (1 - coverage))) + 1)
    span = (of_labels.min() - reach, of_labels.max() + reach)
    return scipy.optimize.brentq(excess, *span, xtol=1e-14, rtol=1e-15)


def size_at_average_error(
    logits, labels, *, error, temperature, conformity="log_probability", axis_name=None
):
    """The mean size of soft sets that miss the labels at the given rate."""
    scores, of_labels, _ = _scores(logits, labels, conformity)
    threshold = _at_coverage(of_labels, 1 - error, temperature)
    return sigmoid((scores - threshold) / temperature).sum(axis=-1).mean()


def size_at_average_error_gradient(
    logits, labels, *, error, temperature, conformity="log_probability"
):
    scores, of_labels, indicators = _scores(logits, labels, conformity)
    scaled = (scores - _at_coverage(of_labels, 1 - error, temperature)) / temperature
    slopes = sigmoid(scaled) * sigmoid(-scaled) / temperature
    price = slopes.sum() / (indicators * slopes).sum()
    slopes = slopes * (1 - price * indicators) / len(of_labels)
    return _to_logits(logits, slopes, conformity)


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
