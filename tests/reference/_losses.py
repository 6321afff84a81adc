"""Losses of one example, and their gradients in its logits, in closed form."""

import itertools

import numpy as np

from tests.reference import _operators as operators
from tests.reference._draws import noise_of
from tests.reference._rows import each_example, float64, log_softmax, margin_of, one_hot, sigmoid


def _hinge(margin, value, score):
    """`(margin + value - score)+`, infinite if the true class has no chance."""
    return np.inf if score == -np.inf else max(0.0, margin + value - score)


def _hinge_gradient(hinge, value_gradient, label):
    return (hinge > 0.0) * (value_gradient - one_hot(label, len(value_gradient)))


@each_example
def top_k_error(logits, label, *, k):
    """One if the k-th largest score exceeds the score of the label (4.3)."""
    return operators.top_k_value(logits, k) > logits[label]


@each_example
def cross_entropy(logits, label, *, label_smoothing=0.0):
    """`-sum_j t_j log softmax_j(s)` (5.3), where t is `smoothed_label`."""
    target = smoothed_label(logits, label, label_smoothing)
    likely = target > 0
    return -(target[likely] * log_softmax(logits)[likely]).sum()


@each_example
def cross_entropy_gradient(logits, label, *, label_smoothing=0.0):
    """`softmax(s) - t` (6.10)."""
    return np.exp(log_softmax(logits)) - smoothed_label(logits, label, label_smoothing)


def smoothed_label(logits, label, label_smoothing):
    """`(1 - eps) e_y`, and `eps` spread over the classes that are not masked."""
    possible = np.asarray(logits) > -np.inf
    spread = possible / max(possible.sum(), 1)
    return (1 - label_smoothing) * one_hot(label, len(logits)) + label_smoothing * spread


@each_example
def focal(logits, label, *, gamma):
    """`(1 - p_y)^gamma CE` with `p_y = exp(-CE)` (Table 4.1, corrected)."""
    entropy = -log_softmax(logits)[label]
    return (-np.expm1(-entropy)) ** gamma * entropy if entropy < np.inf else np.inf


@each_example
def focal_gradient(logits, label, *, gamma):
    """`[(1 - p)^gamma + gamma (1 - p)^(gamma - 1) p CE] (softmax(s) - e_y)`."""
    log_probabilities = log_softmax(logits)
    entropy, probability = -log_probabilities[label], np.exp(log_probabilities[label])
    slope = (-np.expm1(-entropy)) ** gamma
    if gamma > 0 and 0.0 < entropy < np.inf:
        slope += gamma * (-np.expm1(-entropy)) ** (gamma - 1.0) * probability * entropy
    return slope * (np.exp(log_probabilities) - one_hot(label, len(logits)))


def _with_margin(logits, label, margins, scale):
    return scale * (logits - margin_of(margins, label) * one_hot(label, len(logits)))


@each_example
def ldam(logits, label, *, margins, scale=1.0):
    """The cross-entropy of `scale (s - m_y e_y)` (Table 4.1)."""
    return -log_softmax(_with_margin(logits, label, margins, scale))[label]


@each_example
def ldam_gradient(logits, label, *, margins, scale=1.0):
    """`scale (softmax(scale (s - m_y e_y)) - e_y)`."""
    probabilities = np.exp(log_softmax(_with_margin(logits, label, margins, scale)))
    return scale * (probabilities - one_hot(label, len(logits)))


@each_example
def top_k_hinge(logits, label, *, k):
    """`(1 + (s without y)_[k] - s_y)+` (4.4)."""
    return _hinge(1.0, operators.top_k_value(np.delete(logits, label), k), logits[label])


@each_example
def top_k_hinge_gradient(logits, label, *, k):
    """The mark of the k-th of the other scores, minus `e_y`, if the hinge is active."""
    others = operators.top_k_value_gradient(np.delete(logits, label), k)
    hinge = 1.0 + operators.top_k_value(np.delete(logits, label), k) - logits[label]
    return _hinge_gradient(hinge, np.insert(others, label, 0.0), label)


@each_example
def convex_top_k_hinge(logits, label, *, k):
    """`(mean of the k largest of s + 1 - e_y, less s_y)+` (Table 4.1)."""
    raised = logits + 1.0 - one_hot(label, len(logits))
    return _hinge(0.0, operators.top_k_sum(raised, k) / k, logits[label])


@each_example
def convex_top_k_hinge_gradient(logits, label, *, k):
    """The marks of the k largest of `s + 1 - e_y` over k, minus `e_y`, if the hinge is active."""
    raised = logits + 1.0 - one_hot(label, len(logits))
    hinge = operators.top_k_sum(raised, k) / k - logits[label]
    return _hinge_gradient(hinge, operators.top_k_sum_gradient(raised, k) / k, label)


@each_example
def calibrated_top_k_hinge(logits, label, *, k):
    """`(1 + s_[k+1] - s_y)+` with the complete vector, y included (4.5)."""
    return _hinge(1.0, operators.top_k_value(logits, k + 1), logits[label])


@each_example
def calibrated_top_k_hinge_gradient(logits, label, *, k):
    """The mark of the (k+1)-th score, minus `e_y`, if the hinge is active."""
    hinge = 1.0 + operators.top_k_value(logits, k + 1) - logits[label]
    return _hinge_gradient(hinge, operators.top_k_value_gradient(logits, k + 1), label)


def _smooth_exponent(logits, label, k, tau):
    """`1/tau + log sigma_k - log sigma_{k-1}` of `exp((s_j - s_y) / (k tau))`, j other than y."""
    others = (np.delete(logits, label) - logits[label]) / (k * tau)
    logs = operators.log_symmetric_polynomials(others, k)
    # Fewer than k classes are left unmasked: no set without y can be formed.
    return others, -np.inf if logs[k] == -np.inf else 1.0 / tau + logs[k] - logs[k - 1]


@each_example
def smooth_top_k_hinge(logits, label, *, k, tau):
    """`tau log(1 + e^{1/tau} sigma_k / (sigma_{k-1} e^{s_y / (k tau)}))` (Berrada et al.)."""
    if logits[label] == -np.inf:
        return np.inf
    return tau * np.logaddexp(0.0, _smooth_exponent(logits, label, k, tau)[1])


@each_example
def smooth_top_k_hinge_by_subsets(logits, label, *, k, tau):
    """tau times the log-sum-exp over all k-sets A of `1{y not in A}/tau + sum_A s / (k tau)`,
    less that over the k-sets that contain y (Berrada et al.; Table 4.1, corrected).
    """
    subsets = [list(subset) for subset in itertools.combinations(range(len(logits)), k)]
    sums = np.array([logits[subset].sum() / (k * tau) for subset in subsets])
    with_label = np.array([label in subset for subset in subsets])
    everything = np.logaddexp.reduce(sums + np.where(with_label, 0.0, 1.0 / tau))
    return tau * (everything - np.logaddexp.reduce(sums[with_label]))


@each_example
def smooth_top_k_hinge_gradient(logits, label, *, k, tau):
    """`w / k (d log sigma_k - d log sigma_{k-1})` at j other than y, and `-w / k` at y.

    w is the sigmoid of the exponent; the derivatives come from the leave-one-out polynomials.
    """
    others, exponent = _smooth_exponent(logits, label, k, tau)
    derivatives = operators.log_symmetric_polynomials_gradient(others, k)
    return sigmoid(exponent) / k * np.insert(derivatives[k] - derivatives[k - 1], label, -1.0)


def _noise_last(noise):
    """Noise of shape `[M, ..., L]` as a list of `[M, L]`, one an example."""
    noise = float64(noise)
    return np.moveaxis(noise.reshape(noise.shape[0], -1, noise.shape[-1]), 0, 1)


def _with_noise(function, logits, labels, noise, where, **parameters):
    logits, labels = float64(logits), np.asarray(labels)
    rows = logits.reshape(-1, logits.shape[-1])
    counted = np.broadcast_to(True if where is None else where, labels.shape)
    examples = zip(rows, labels.flat, _noise_last(noise), counted.flat, strict=True)
    results = [
        function(row, label, where=counts, noise=draws, **parameters)
        for row, label, draws, counts in examples
    ]
    return np.reshape(results, (*labels.shape, *np.shape(results[0])))


def _smoothed_hinge(logits, label, k, margins, scale, hinge, smooth):
    """A hinge on a smoothed threshold and its gradient; `smooth` is of scores and a rank."""
    margin, size = float(margin_of(margins, label)), len(logits)
    others = np.delete(np.arange(size), label)
    if hinge == "calibrated":
        value, slope = smooth(logits, np.arange(size), k + 1)
    elif hinge == "lapin":
        value, of_others = smooth(logits[others], others, k)
        slope = np.zeros(size)
        slope[others] = of_others
    else:
        raised = logits + np.where(np.arange(size) == label, 0.0, margin)
        parts = [smooth(raised, np.arange(size), rank) for rank in range(1, k + 1)]
        value, slope = (np.mean([part[i] for part in parts], axis=0) for i in range(2))
        margin = 0.0
    gap = margin + value - logits[label]
    return (
        scale * _hinge(margin, value, logits[label]),
        scale * _hinge_gradient(gap, slope, label),
    )


@each_example
def _noised_one(logits, label, *, k, epsilon, noise, margins, scale, hinge, part):
    def smooth(scores, classes, rank):
        own = noise[:, classes]
        value = operators.perturbed_top_k_value(
            None, scores, rank, epsilon=epsilon, num_samples=len(noise), noise=own
        )
        return value, operators.perturbed_top_k_value_gradient(
            scores, rank, epsilon=epsilon, noise=own
        )

    return _smoothed_hinge(logits, label, k, margins, scale, hinge, smooth)[part]


def noised_top_k_hinge(
    logits,
    labels,
    *,
    k,
    epsilon,
    num_samples=None,
    key=None,
    noise=None,
    margins=1.0,
    scale=1.0,
    hinge="calibrated",
    where=None,
    part=0,
):
    """`scale (m_y + mean_m (s + eps Z_m)_[k+1] - s_y)+` with that noise (4.10, 4.13).

    The lapin hinge has the k-th largest of the other classes in place of it, and the convex hinge
    the mean of the k largest, with the margin on the other classes.
    """
    parameters = {"k": k, "epsilon": epsilon, "margins": margins, "scale": scale, "hinge": hinge}
    noise = noise_of(key, noise, num_samples, np.shape(logits))
    return _with_noise(_noised_one, logits, labels, noise, where, part=part, **parameters)


def noised_top_k_hinge_gradient(logits, labels, **parameters):
    """`scale (mean_m mark of the (k+1)-th of s + eps Z_m, minus e_y)` if active (4.12)."""
    return noised_top_k_hinge(logits, labels, **parameters, part=1)


@each_example
def expected_top_k_hinge(
    logits, label, *, k, epsilon, margins=1.0, scale=1.0, hinge="calibrated", part=0
):
    """`scale (m_y + E (s + eps Z)_[k+1] - s_y)+` (4.8), and the others as above."""

    def smooth(scores, classes, rank):
        value = operators.expected_top_k_value(scores, rank, epsilon=epsilon)
        return value, operators.expected_top_k_value_gradient(scores, rank, epsilon=epsilon)

    return _smoothed_hinge(logits, label, k, margins, scale, hinge, smooth)[part]


def expected_top_k_hinge_gradient(logits, labels, **parameters):
    """`scale (chance of each class to be the (k+1)-th, minus e_y)` if active (4.9)."""
    return expected_top_k_hinge(logits, labels, **parameters, part=1)


def class_margins(class_counts, *, max_margin):
    """`max_margin (n_min / n_c)^(1/4)` (4.13)."""
    counts = float64(class_counts)
    return max_margin * (counts.min() / counts) ** 0.25


@each_example
def positive_cross_entropy(logits, label):
    """`-log sig(z_y)` (5.6)."""
    return np.logaddexp(0.0, -logits[label])


@each_example
def positive_cross_entropy_gradient(logits, label):
    """`-sig(-z_y) e_y`."""
    return -sigmoid(-logits[label]) * one_hot(label, len(logits))


@each_example
def assume_negative(logits, label):
    """`-log sig(z_y) - 1/(L-1) sum over the others of log(1 - sig(z_j))` (5.5)."""
    others = np.delete(logits, label)
    return np.logaddexp(0.0, -logits[label]) + np.logaddexp(0.0, others).mean()


@each_example
def assume_negative_gradient(logits, label):
    """`sig(z_j) / (L - 1)` at j other than y, `sig(z_y) - 1` at y."""
    gradient = sigmoid(logits) / (len(logits) - 1)
    gradient[label] = -sigmoid(-logits[label])
    return gradient


def binary_cross_entropy(logits, targets):
    """The sum of `-t log sig(s_j)` and of `-(1 - t) log(1 - sig(s_j))` (6.3)."""
    logits, targets = float64(logits), float64(targets)
    terms = np.zeros_like(logits)
    for position, share in np.ndenumerate(targets):
        for part, score in ((share, -logits[position]), (1 - share, logits[position])):
            if part:
                terms[position] += part * np.logaddexp(0.0, score)
    return terms.sum(axis=-1)


def binary_cross_entropy_gradient(logits, targets):
    """`sig(s) - t`."""
    return sigmoid(logits) - float64(targets)


def asymmetric(logits, targets, *, gamma_positive, gamma_negative, margin):
    """Binary cross-entropies, with damped and shifted probabilities (Ridnik et al. 2021)."""
    terms = np.zeros(np.shape(logits))
    for position, share in np.ndenumerate(float64(targets)):
        score = float64(logits)[position]
        p, rest = sigmoid(score), sigmoid(-score)
        shifted = p - margin
        if share:
            terms[position] += share * rest**gamma_positive * np.logaddexp(0.0, -score)
        if share < 1 and shifted > 0:
            cost = -np.log(rest + margin) if margin else np.logaddexp(0.0, score)
            terms[position] += (1 - share) * shifted**gamma_negative * cost
    return terms.sum(axis=-1)


def asymmetric_gradient(logits, targets, *, gamma_positive, gamma_negative, margin):
    """The product rule, entry by entry; the slope of the sigmoid is `p (1 - p)`."""
    slopes = np.zeros(np.shape(logits))
    for position, share in np.ndenumerate(float64(targets)):
        score = float64(logits)[position]
        p, rest = sigmoid(score), sigmoid(-score)
        shifted = p - margin
        if share:
            damped = gamma_positive * p * np.logaddexp(0.0, -score) + rest
            slopes[position] -= share * rest**gamma_positive * damped
        if share < 1 and shifted > 0:
            cost = -np.log(rest + margin) if margin else np.logaddexp(0.0, score)
            of_cost = p * rest / (rest + margin) if margin else p
            of_power = gamma_negative * shifted ** (gamma_negative - 1) * p * rest
            slopes[position] += (1 - share) * (of_power * cost + shifted**gamma_negative * of_cost)
    return slopes


def sparse_top_loss(logits, targets):
    """`-sum_Y s + sum_H (s - 1/2) + 1/2 sum_M (s^2 - lambda^2) + |Y|/2` (6.25).

    A constant added to all scores leaves it unchanged: the largest is moved to 0 first.
    """
    logits, positive = float64(logits), np.asarray(targets) > 0
    losses = np.zeros(logits.shape[:-1])
    for position in np.ndindex(losses.shape):
        row, members = logits[position], positive[position]
        count = int(members.sum())
        if np.isnan(row).any():
            losses[position] = np.nan
        elif 0 < count < len(row):
            row = row - row.max()
            threshold = operators.sparse_top_threshold(row, count)
            ones = row - threshold >= 1.0
            between = (row > threshold) & ~ones
            losses[position] = (
                -row[members].sum()
                + (row[ones] - 0.5).sum()
                + (row[between] ** 2 - threshold**2).sum() / 2.0
                + count / 2.0
            )
    return losses


def sparse_top_loss_gradient(logits, targets):
    """`sparse_top(s, |Y|) - 1_Y` (6.24)."""
    members = (np.asarray(targets) > 0).astype(np.float64)
    return operators.sparse_top(logits, members.sum(axis=-1).astype(int)) - members


@each_example
def sparsemax_loss(logits, label):
    """The loss with the label as the only target (6.12)."""
    return sparse_top_loss(logits, one_hot(label, len(logits)))


@each_example
def sparsemax_loss_gradient(logits, label):
    """`sparse_top(s, 1) - e_y` (6.11)."""
    return sparse_top_loss_gradient(logits, one_hot(label, len(logits)))
