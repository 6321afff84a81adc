"""What changes after deployment, one outcome after the other."""

import numpy as np
from scipy import optimize, special

from tests.reference._rows import exact, float64

__all__ = [
    "adaptive_errors",
    "anytime_interval",
    "covariate_shift_quantiles",
    "coverage_wealth",
    "jumper_wealth",
    "online_p_values",
]


def covariate_shift_quantiles(log_weights, calibration_scores, calibration_log_weights, *, error):
    scores, known = float64(calibration_scores), np.exp(float64(calibration_log_weights))
    order = np.argsort(scores)
    result = []
    for weight in np.exp(float64(log_weights)):
        required = float(1 - exact(error)) * (known.sum() + weight)
        reached = np.flatnonzero(known[order].cumsum() >= required * (1 - 1e-12))
        result.append(scores[order[reached[0]]] if len(reached) else np.inf)
    return np.array(result)


def anytime_interval(hits, counts, *, level=0.95):
    sizes = 2.0 ** np.arange(2, -18, -1)

    def low(hits, count):
        def excess(mean):
            exponents = sizes * hits - count * np.log1p(mean * np.expm1(sizes))
            return special.logsumexp(exponents, b=1 / 20) - np.log(2 / (1 - level))

        return optimize.brentq(excess, 0, hits / count) if hits and excess(0) > 0 else 0.0

    pairs = list(zip(np.asarray(hits), np.asarray(counts), strict=True))
    return (
        np.array([low(h, t) for h, t in pairs]),
        np.array([1 - low(t - h, t) for h, t in pairs]),
    )


def coverage_wealth(missed, error):
    """The wealth after each outcome, by the sum over the outcomes at which a bet may begin."""
    sizes = 2.0 ** np.arange(2, -10, -1)
    factors = [np.exp(sizes * miss) / (1 - error + error * np.exp(sizes)) for miss in missed]
    return _begun_at_each(factors, 12)


def _begun_at_each(factors, number):
    left = 1 / (1 + np.log(np.arange(1, len(factors) + 2)))
    return [
        left[t]
        + sum(
            np.prod(factors[s - 1 : t], axis=0).sum() * (left[s - 1] - left[s]) / number
            for s in range(1, t + 1)
        )
        for t in range(1, len(factors) + 1)
    ]


def jumper_wealth(p_values):
    """The wealth after each p-value, in numbers that may overflow."""
    parts, result = np.zeros(3), []
    left = 1 / (1 + np.log(np.arange(1, len(p_values) + 2)))
    for t, p_value in enumerate(p_values):
        parts = 0.99 * parts + 0.01 * parts.sum() / 3 + (left[t] - left[t + 1]) / 3
        parts *= 1 + np.array([-1, 0, 1]) * (p_value - 0.5)
        result.append(parts.sum() + left[t + 1])
    return result


def online_p_values(scores, edges, uniform):
    places = [sum(edge <= score for edge in edges) for score in scores]
    return [
        (
            sum(other > place for other in places[: t + 1])
            + uniform[t] * sum(other == place for other in places[: t + 1])
        )
        / (t + 1)
        for t, place in enumerate(places)
    ]


def adaptive_errors(scores, calibration_scores, error, rates):
    """The error in use before each outcome, and whether the label was missed."""
    ascending, rates = np.sort(float64(calibration_scores)), np.array(rates)
    errors, weights = np.full(len(rates), error), np.full(len(rates), 1 / len(rates))
    spread = ((1 - error) ** 2 * error**3 + error**2 * (1 - error) ** 3) / 3
    speed = np.sqrt((np.log(500 * len(rates)) + 2) / (500 * spread))
    used, missed = [], []

    def misses(score, error):
        rank = int(np.ceil((len(ascending) + 1) * (1 - error) - 1e-9))
        return rank <= 0 or (rank <= len(ascending) and score > ascending[rank - 1])

    for score in scores:
        used.append(weights @ errors)
        missed.append(misses(score, used[-1]))
        p_value = (1 + (ascending >= score).sum()) / (len(ascending) + 1)
        left = p_value - errors
        weights = weights * np.exp(-speed * (error * left - np.minimum(0, left)))
        weights = 0.999 * weights / weights.sum() + 0.001 / len(rates)
        errors = errors + rates * (error - np.array([misses(score, one) for one in errors]))
    return np.array(used), np.array(missed)
