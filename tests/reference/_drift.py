"""What changes after deployment, one outcome after the other."""

import numpy as np
from scipy import optimize, special

from tests.reference._rows import exact, float64

__all__ = [
    "AdaptiveQuantile",
    "CoverageTest",
    "JumperMartingale",
    "OnlineRanks",
    "anytime_interval",
    "covariate_shift_quantiles",
]


def covariate_shift_quantiles(log_weights, calibration_scores, calibration_log_weights, *, error):
    """The smallest score up to which the weights reach their part; NaN for a weight of NaN."""
    scores, known = float64(calibration_scores), np.exp(float64(calibration_log_weights))
    order = np.argsort(scores)
    result = []
    for weight in np.exp(float64(log_weights)):
        required = float(1 - exact(error)) * (known.sum() + weight)
        reached = np.flatnonzero(known[order].cumsum() >= required * (1 - 1e-12))
        quantile = scores[order[reached[0]]] if len(reached) else np.inf
        result.append(quantile if weight < np.inf else np.nan)
    return np.array(result)


def anytime_interval(hits, counts, *, level=0.95):
    """The roots of the bound of the mixture of 20 bets, and of the same for the other outcomes."""
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


class _Wealth:
    """The wealth after each outcome, from the factors of the bets at all outcomes so far."""

    def __init__(self, values):
        self.count, self.values = len(values), [1.0, *values]

    def rejects(self, *, delta):
        return max(self.values) >= 1 / delta


class CoverageTest:
    """The sum over the outcomes at which a bet may begin."""

    def __init__(self, error, missed=()):
        self.error, self.outcomes = error, missed
        self.misses = sum(missed)
        sizes = 2.0 ** np.arange(2, -10, -1)
        factors = [np.exp(sizes * miss) / (1 - error + error * np.exp(sizes)) for miss in missed]
        self.wealth = _Wealth(_begun_at_each(factors, 12))
        self.rejects = self.wealth.rejects

    @staticmethod
    def start(*, error):
        return CoverageTest(error)

    def update(self, missed):
        return CoverageTest(self.error, (*self.outcomes, bool(missed)))


def _left(number):
    return 1 / (1 + np.log(np.arange(1, number + 2)))


def _begun_at_each(factors, number):
    left = _left(len(factors))
    return [
        left[t]
        + sum(
            np.prod(factors[s - 1 : t], axis=0).sum() * (left[s - 1] - left[s]) / number
            for s in range(1, t + 1)
        )
        for t in range(1, len(factors) + 1)
    ]


class JumperMartingale:
    """The capital in three parts, in numbers that may overflow; a NaN is not counted."""

    def __init__(self, p_values=()):
        self.p_values = p_values
        parts, values, left = np.zeros(3), [], _left(len(p_values))
        for t, p_value in enumerate(p_values):
            parts = 0.99 * parts + 0.01 * parts.sum() / 3 + (left[t] - left[t + 1]) / 3
            parts *= 1 + np.array([-1, 0, 1]) * (p_value - 0.5)
            values.append(parts.sum() + left[t + 1])
        self.wealth = _Wealth(values)
        self.rejects = self.wealth.rejects

    @staticmethod
    def start():
        return JumperMartingale()

    def update(self, p_value):
        return self if np.isnan(p_value) else JumperMartingale((*self.p_values, float(p_value)))


class OnlineRanks:
    """The places of all scores so far; a NaN has none."""

    def __init__(self, edges, places=()):
        self.edges, self.places = float64(edges), places
        self.counts = np.bincount(np.array(places, int), minlength=len(self.edges) + 1)

    @staticmethod
    def start(*, edges):
        return OnlineRanks(edges)

    def update(self, score, *, uniform):
        if np.isnan(score):
            return self, np.nan
        place = int((self.edges <= score).sum())
        places = np.array((*self.places, place))
        p_value = ((places > place).sum() + uniform * (places == place).sum()) / len(places)
        return OnlineRanks(self.edges, (*self.places, place)), p_value


class AdaptiveQuantile:
    """The error of each rate and its weight, as Gibbs and Candès write them."""

    def __init__(self, ascending, error, rates, errors, weights):
        self.ascending, self.error, self.rates = ascending, error, rates
        self.errors, self.weights = errors, weights
        self.log_weights = np.log(weights)

    @staticmethod
    def start(
        calibration_scores, *, error, rates=(0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
    ):
        number, ascending = len(rates), np.sort(float64(calibration_scores))
        same = np.full(number, error), np.full(number, 1 / number)
        return AdaptiveQuantile(ascending, error, float64(rates), *same)

    def current_error(self):
        return self.weights @ self.errors

    def quantile(self):
        return self._at(self.current_error())

    def _at(self, error):
        size = len(self.ascending)
        rank = int(np.ceil((size + 1) * (1 - error) - 1e-5))
        return [-np.inf, *self.ascending, np.inf][min(max(rank, 0), size + 1)]

    def update(self, score_of_label):
        score = np.inf if np.isnan(score_of_label) else float(score_of_label)
        error, number = self.error, len(self.rates)
        spread = ((1 - error) ** 2 * error**3 + error**2 * (1 - error) ** 3) / 3
        speed = np.sqrt((np.log(500 * number) + 2) / (500 * spread))
        p_value = (1 + (self.ascending >= score).sum()) / (len(self.ascending) + 1)
        left = p_value - self.errors
        weights = self.weights * np.exp(-speed * (error * left - np.minimum(0, left)))
        missed = np.array([score > self._at(one) for one in self.errors])
        return AdaptiveQuantile(
            self.ascending,
            error,
            self.rates,
            self.errors + self.rates * (error - missed),
            0.999 * weights / weights.sum() + 0.001 / number,
        )
