"""Operators on scores: sorts, loops over samples, recursions, bisection and quadrature."""

import numpy as np
from scipy.special import ndtr

from tests.reference._draws import noise_of
from tests.reference._rows import classes_last, float64


def descending(row):
    """Class indices from the largest score to the smallest, the lower index first among equals."""
    return np.argsort(-row, kind="stable")


def top_k_value(scores, k, *, axis=-1):
    """The k-th largest score (4.1), NaN beside a NaN."""
    scores = classes_last(scores, axis)
    values = np.sort(scores, axis=-1)[..., scores.shape[-1] - k]
    return np.where(np.isnan(scores).any(axis=-1), np.nan, values)


def top_k_sum(scores, k, *, axis=-1):
    """The sum of the k largest scores (4.2), NaN beside a NaN."""
    scores = classes_last(scores, axis)
    values = np.sort(scores, axis=-1)[..., scores.shape[-1] - k :].sum(axis=-1)
    return np.where(np.isnan(scores).any(axis=-1), np.nan, values)


def _marked(scores, k, first, axis):
    scores = classes_last(scores, axis)
    marks = np.zeros_like(scores)
    for position in np.ndindex(scores.shape[:-1]):
        marks[position][descending(scores[position])[first:k]] = 1.0
    return np.moveaxis(marks, -1, axis)


def top_k_value_gradient(scores, k, *, axis=-1):
    """One at the coordinate of the k-th largest score, of lower index among equals (after 4.2)."""
    return _marked(scores, k, k - 1, axis)


def top_k_sum_gradient(scores, k, *, axis=-1):
    """Ones at the coordinates of the k largest scores, of lower index among equals (after 4.2)."""
    return _marked(scores, k, 0, axis)


def _mean_over_samples(function, scores, k, epsilon, noise, axis):
    scores, noise = float64(scores), float64(noise)
    samples = [function(scores + float64(epsilon) * draw, k, axis=axis) for draw in noise]
    return sum(samples) / len(samples)


def perturbed_top_k_sum(key, scores, k, *, epsilon, num_samples, noise=None, axis=-1):
    """The mean of the sum of the k largest of `s + eps Z_m` over the noise (4.11)."""
    noise = noise_of(key, noise, num_samples, np.shape(scores))
    return _mean_over_samples(top_k_sum, scores, k, epsilon, noise, axis)


def perturbed_top_k_value(key, scores, k, *, epsilon, num_samples, noise=None, axis=-1):
    """The mean of the k-th largest of `s + eps Z_m` over the noise (after 4.10)."""
    noise = noise_of(key, noise, num_samples, np.shape(scores))
    return _mean_over_samples(top_k_value, scores, k, epsilon, noise, axis)


def perturbed_top_k_sum_gradient(scores, k, *, epsilon, noise, axis=-1):
    """The mean of the marks of the k largest of `s + eps Z_m` (4.7)."""
    return _mean_over_samples(top_k_sum_gradient, scores, k, epsilon, noise, axis)


def perturbed_top_k_value_gradient(scores, k, *, epsilon, noise, axis=-1):
    """The mean of the mark of the k-th largest of `s + eps Z_m` (after 4.12)."""
    return _mean_over_samples(top_k_value_gradient, scores, k, epsilon, noise, axis)


def _partial_polynomials(log_values, k):
    """`log sigma_j(exp(x))`, j = 0..k, of no class, of the first, of the first two, and so on."""
    partial = np.full((*log_values.shape[:-1], k + 1), -np.inf)
    partial[..., 0] = 0.0
    yield partial
    for column in np.moveaxis(log_values, -1, 0):
        added = np.logaddexp(partial[..., 1:], column[..., None] + partial[..., :-1])
        partial = np.concatenate([partial[..., :1], added], axis=-1)
        yield partial


def log_symmetric_polynomials(log_values, k, *, axis=-1):
    """`log sigma_j(exp(x))`, j = 0..k, on the last axis, by `sigma_j += e^{x_l} sigma_{j-1}`."""
    *_, whole = _partial_polynomials(classes_last(log_values, axis), k)
    return whole


def log_symmetric_polynomials_gradient(log_values, k):
    """`d log sigma_j / d x_l = e^{x_l} sigma_{j-1}(without l) / sigma_j`: `[k + 1, L]` for one row.

    The polynomial without l is the product of the polynomials of the classes before l and after l.
    """
    log_values = float64(log_values)
    size = len(log_values)
    *before, whole = _partial_polynomials(log_values, k)
    *after, _ = _partial_polynomials(log_values[::-1], k)
    before, after = np.stack(before), np.stack(after[::-1])
    gradient = np.zeros((k + 1, size))
    for degree in range(1, k + 1):
        without = np.logaddexp.reduce(
            [before[:, i] + after[:, degree - 1 - i] for i in range(degree)], axis=0
        )
        if whole[degree] > -np.inf:
            gradient[degree] = np.exp(log_values + without - whole[degree])
    return gradient


def sparse_top_threshold(row, k):
    """The lambda at which `sum clip(s - lambda, 0, 1) = k`, the middle one if there are many."""

    def bisect(is_left):
        finite = row[np.isfinite(row)]
        left, right = finite.min() - 2.0, finite.max() + 1.0
        while left < (middle := (left + right) / 2.0) < right:
            left, right = (middle, right) if is_left(middle) else (left, middle)
        return right

    def total(threshold):
        return np.clip(row - threshold, 0.0, 1.0).sum()

    return (bisect(lambda t: total(t) > k) + bisect(lambda t: total(t) >= k)) / 2.0


def sparse_top(scores, k, *, axis=-1):
    """The nearest point of `{0 <= q <= 1, sum q = k}` (6.13): `clip(s - lambda, 0, 1)` (6.14)."""
    scores = classes_last(scores, axis)
    result = np.empty_like(scores)
    counts = np.broadcast_to(k, scores.shape[:-1])
    for position in np.ndindex(scores.shape[:-1]):
        row, count = scores[position], int(counts[position])
        if np.isnan(row).any():
            result[position] = np.nan
        elif count in (0, len(row)):
            result[position] = float(count > 0)
        else:
            shifted = row - row.max()
            result[position] = np.clip(shifted - sparse_top_threshold(shifted, count), 0.0, 1.0)
    return np.moveaxis(result, -1, axis)


def sparse_top_jacobian(scores, k):
    """`diag(m) - m m^T / |m|`, m the coordinates strictly between 0 and 1 (6.21), for one row."""
    projection = sparse_top(scores, k)
    between = ((projection > 0.0) & (projection < 1.0)).astype(np.float64)
    return np.diag(between) - np.outer(between, between) / max(between.sum(), 1.0)


def _poisson_binomial(probabilities, k):
    """P(N = j), j < k, for a sum N of independent coins, after each coin: `[L + 1, ..., k]`."""
    counts = np.zeros((len(probabilities) + 1, *probabilities.shape[1:], k))
    counts[0, ..., 0] = 1.0
    for index, probability in enumerate(probabilities):
        heads = probability[..., None]
        counts[index + 1] = (1.0 - heads) * counts[index]
        counts[index + 1][..., 1:] += heads * counts[index][..., :-1]
    return counts


# The integrands below are analytic, and beyond 12 eps of the k-th score they are under L * 1e-32:
# the trapezoidal rule then converges geometrically, and 20 nodes an eps leave rounding errors only.
_NODES = np.linspace(-12.0, 12.0, 481)
_SPACING = _NODES[1] - _NODES[0]


def _above(row, k, epsilon):
    standard = (row - np.sort(row)[len(row) - k]) / epsilon
    return standard, ndtr(standard[:, None] - _NODES)


def expected_top_k_value(scores, k, *, epsilon, axis=-1):
    """`E[(s + eps Z)_[k]] = a + integral_a P(N(t) >= k) dt`, N(t) counting the scores above t."""
    scores = classes_last(scores, axis)
    result = top_k_value(scores, k)
    for position in np.ndindex(scores.shape[:-1]):
        if epsilon > 0 and np.isfinite(result[position]):
            fewer = _poisson_binomial(_above(scores[position], k, epsilon)[1], k)[-1].sum(axis=-1)
            # The first node weighs half; the integrand is one there.
            integral = _NODES[0] + _SPACING * ((1.0 - fewer).sum() - 0.5)
            result[position] += epsilon * integral
    return result


def expected_top_k_value_gradient(scores, k, *, epsilon):
    """`integral phi((t - s_l) / eps) / eps P(N without l = k - 1) dt`: that l is k-th."""
    scores = float64(scores)
    result = top_k_value_gradient(scores, k)
    for position in np.ndindex(scores.shape[:-1]):
        row = scores[position]
        if epsilon > 0 and np.isfinite(top_k_value(row, k)):
            standard, above = _above(row, k, epsilon)
            before = _poisson_binomial(above, k)[:-1]
            after = _poisson_binomial(above[::-1], k)[-2::-1]
            others = (before * after[..., ::-1]).sum(axis=-1)
            density = np.exp(-((_NODES - standard[:, None]) ** 2) / 2.0) / np.sqrt(2.0 * np.pi)
            result[position] = _SPACING * (density * others).sum(axis=-1)
    return result
