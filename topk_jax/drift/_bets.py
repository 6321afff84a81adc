"""Bets against a promise and against unchanging scores: evidence that holds at any time."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _example
from topk_jax._sums import Sum

__all__ = ["CoverageTest", "JumperMartingale", "OnlineRanks"]

# The sizes of the bets: the largest are best for sets that miss nearly all labels, the smallest for
# an error that is a hundredth above the promise. Half of a best size costs a sixth of the growth.
_NUM_BETS = 12
# Whether small p-values, any, or large ones are bet on, and the part of the capital that changes
# sides at each outcome, as Vovk et al. choose it.
_SIDES = (-1.0, 0.0, 1.0)
_JUMP = 0.01


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Wealth:
    r"""Capital in several bets that are fair under the hypothesis, and a reserve.

    The player starts with 1. Before each outcome some of the reserve goes to the bets, in equal
    parts, so that 1 / (1 + log(1 + t)) is left after t outcomes: a change after a long time is
    noticed soon. Under the hypothesis, the probability that the wealth ever reaches 1 / delta is at
    most delta (Ville).

    Attributes:
        log_peak: the logarithm of the largest wealth so far, a scalar.
    """

    _log_capital: Sum
    _count: Sum
    log_peak: jax.Array

    @staticmethod
    def start(num_bets: int) -> "Wealth":
        """The wealth before any outcome."""
        dtype = jnp.result_type(float)
        capital = Sum.of(jnp.full(num_bets, -jnp.inf, dtype))
        return Wealth(capital, Sum.of(jnp.zeros((), int)), jnp.zeros((), dtype))

    @property
    def log_capital(self) -> jax.Array:
        """The logarithm of the capital in each bet, `[bets]`."""
        return self._log_capital.value()

    @property
    def count(self) -> jax.Array:
        """The number of outcomes so far, an integer scalar."""
        return self._count.value()

    def log_value(self) -> jax.Array:
        """The logarithm of the capital and the reserve."""
        reserve = _log_reserve(self._count.as_floats(self._log_capital.dtype))
        return jnp.logaddexp(jax.nn.logsumexp(self.log_capital), reserve)

    def grow(self, log_factors: jax.Array, *, redistributed: float = 0.0) -> "Wealth":
        """The wealth after an outcome.

        Amounts are logarithms, because capital may be 1e-1000 or 1e1000, and in sums that do not
        drift: the same rounding in a million equal outcomes would be false evidence.

        Args:
            log_factors: the logarithm of what each bet makes of 1, `[bets]`.
            redistributed: the part of the capital that is first divided equally among the bets.
        """
        capital, number = self._log_capital, self._log_capital.shape[0]
        if redistributed:
            place = capital.value().argmax()
            largest = jax.tree.map(lambda part: part[place], capital)
            of_all = jax.nn.logsumexp(_difference(capital, largest))
            shared = largest + Sum.of(of_all + math.log(redistributed / number))
            kept = jnp.full(number, math.log1p(-redistributed), capital.dtype)
            capital = _log_add(capital + Sum.of(kept), shared)
        # What goes to the bets, 1 / a - 1 / b, is (b - a) / (a b): a and b agree in all digits.
        count = self._count.as_floats(capital.dtype)
        step = jnp.log1p(1.0 / (1.0 + count)) / number
        invested = jnp.log(step) + _log_reserve(count) + _log_reserve(count + 1)
        grown = Wealth(
            _log_add(capital, Sum.of(invested)) + Sum.of(log_factors),
            self._count + Sum.of(jnp.ones((), int)),
            self.log_peak,
        )
        # A NaN is not evidence.
        return dataclasses.replace(grown, log_peak=jnp.fmax(self.log_peak, grown.log_value()))

    def has_reached(self, delta: ArrayLike) -> jax.Array:
        """Whether it was ever 1 / delta."""
        chance = _checks.scalar(delta, "delta", self.log_peak.dtype, above=0, below=1)
        return self.log_peak >= -jnp.log(chance)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CoverageTest:
    r"""A test, after every outcome, of the promise to miss at most an `error` of the labels.

    With the outcomes :math:`m_t`, 1 for a label outside its set:

    .. math::
        W_t = r_t + \sum_{s \le t} \sum_{j=1}^{12} \frac{r_{s-1} - r_s}{12}
        \prod_{u=s}^t \frac{e^{\lambda_j m_u}}{1 - \varepsilon + \varepsilon e^{\lambda_j}},
        \qquad \lambda_j = 2^{3 - j}, \quad r_t = \frac{1}{1 + \log(1 + t)}

    If each label is missed with a probability of at most :math:`\varepsilon`, whatever came before
    it, the probability that W ever reaches :math:`1 / \delta` is at most :math:`\delta`. So the
    test may be looked at after each outcome. Bets start at any outcome s, so that it also notices a
    change after many good outcomes.

    In a long time the test finds that a threshold calibrated on n examples misses a little more or
    less than promised. Give an `error` that allows for it: a large quantile of the beta
    distribution with the parameters n + 1 - r and r, where r is the rank of the quantile.

    Attributes:
        error: the rate of missed labels that is promised, a scalar.
        wealth: the bets; `wealth.count` is the number of outcomes.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from topk_jax import drift
        >>> missed = jnp.arange(60) >= 40
        >>> def update(state, missed):
        ...     state = state.update(missed)
        ...     return state, state.rejects(delta=0.01)
        >>> _, alarms = jax.lax.scan(update, drift.CoverageTest.start(error=0.1), missed)
        >>> print(alarms.argmax())
        46

    Source: Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by
    betting"; Robbins (1970), "Statistical methods related to the law of the iterated logarithm",
    for the mixture of bets; Shin, Ramdas and Rinaldo (2024), "E-detectors: a nonparametric
    framework for sequential change detection", for bets that start at any outcome.
    """

    error: jax.Array
    _misses: Sum
    wealth: Wealth

    @property
    def misses(self) -> jax.Array:
        """The number of labels missed so far, an integer scalar."""
        return self._misses.value()

    @staticmethod
    def start(*, error: ArrayLike) -> "CoverageTest":
        """The test before any outcome.

        Args:
            error: a scalar, at least 0 and less than 1.
        """
        rate = _checks.scalar(error, "error", jnp.result_type(float), at_least=0, below=1)
        return CoverageTest(rate, Sum.of(jnp.zeros((), int)), Wealth.start(_NUM_BETS))

    def update(self, missed: ArrayLike) -> "CoverageTest":
        """The test after an outcome.

        Args:
            missed: whether the set did not have the label, a boolean scalar.
        """
        outcome = _checks.boolean_array(missed, "missed", ())
        sizes = 2.0 ** (2.0 - jnp.arange(_NUM_BETS, dtype=self.error.dtype))
        factors = jnp.where(outcome, sizes, 0.0) - jnp.log1p(self.error * jnp.expm1(sizes))
        misses = self._misses + Sum.of(outcome.astype(int))
        return CoverageTest(self.error, misses, self.wealth.grow(factors))

    def rejects(self, *, delta: ArrayLike) -> jax.Array:
        """Whether the promise was broken, up to now, with that probability of a false alarm.

        Args:
            delta: a scalar, greater than 0 and less than 1.
        """
        return self.wealth.has_reached(delta)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OnlineRanks:
    r"""P-values of the scores of a stream, each among those before it and itself.

    .. math::
        p_t = \frac{|\{ i \le t : b_i > b_t \}| + u_t \, |\{ i \le t : b_i = b_t \}|}{t}

    :math:`b_t` is the number of `edges` that are less than or equal to the score, and :math:`u_t` a
    random number in [0, 1]. If the scores are exchangeable, the p-values are independent and
    uniform. This holds for any edges: they only determine what can be noticed. Strange examples
    have large scores and small p-values.

    Attributes:
        edges: the bounds of the intervals, in ascending order, `[m]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import drift
        >>> ranks = drift.OnlineRanks.start(edges=jnp.array([0.5]))
        >>> for score in (0.25, 0.125, 0.75):
        ...     ranks, p_value = ranks.update(score, uniform=0.5)
        ...     print(round(float(p_value), 4))
        0.5
        0.5
        0.1667

    Source: Vovk, Gammerman and Shafer (2005), "Algorithmic learning in a random world", section
    2.2: a smoothed conformal predictor, online.
    """

    edges: jax.Array
    _counts: Sum

    @property
    def counts(self) -> jax.Array:
        """The number of scores in each interval so far, integers `[m + 1]`."""
        return self._counts.value()

    @staticmethod
    def start(*, edges: ArrayLike) -> "OnlineRanks":
        """The ranks before any score.

        Args:
            edges: finite numbers in ascending order, `[m]`.
        """
        bounds = _checks.ascending(edges, "edges")
        return OnlineRanks(bounds, Sum.of(jnp.zeros(bounds.shape[0] + 1, int)))

    def update(self, score: ArrayLike, *, uniform: ArrayLike) -> "tuple[OnlineRanks, jax.Array]":
        """The ranks after a score, and its p-value; NaN if the score is NaN, which is not counted.

        Args:
            score: a real scalar; infinite ones are allowed.
            uniform: a scalar in [0, 1], drawn at random for each score.
        """
        dtype = self.edges.dtype
        value = _checks.real_array(score, "score", (), dtype)
        part = _checks.scalar(uniform, "uniform", dtype, at_least=0, at_most=1)
        place = jnp.searchsorted(self.edges, value, side="right")
        places = jnp.arange(self._counts.shape[0])
        is_here = (places == place) & ~jnp.isnan(value)
        counts = self._counts + Sum.of(is_here.astype(int))
        numbers = counts.as_floats(dtype)
        above = jnp.where(places > place, numbers, 0).sum()
        equal = jnp.where(is_here, numbers, 0).sum()
        # Sums of more than 2^24 scores are rounded.
        p_value = jnp.minimum((above + part * equal) / jnp.maximum(numbers.sum(), 1), 1)
        return OnlineRanks(self.edges, counts), _example.nan_unless(~jnp.isnan(value), p_value)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JumperMartingale:
    r"""A bet against uniform p-values, which grows when a stream changes: the simple jumper.

    A capital in three parts has at each p-value the factors

    .. math:: 1 + \epsilon (p_t - \tfrac12), \qquad \epsilon \in \{ -1, 0, 1 \},

    after a hundredth of it was divided equally among the parts. If the p-values are independent and
    uniform, the probability that the wealth ever reaches :math:`1 / \delta` is at most
    :math:`\delta`. As in `CoverageTest`, a part of the money enters before each outcome, so that a
    change after a long time is noticed, too.

    Attributes:
        wealth: the capital; `wealth.count` is the number of p-values.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from topk_jax import drift
        >>> p_values = jnp.where(jnp.arange(60) < 30, jnp.arange(60) / 30, 0.01)
        >>> def update(state, p_value):
        ...     state = state.update(p_value)
        ...     return state, state.rejects(delta=0.01)
        >>> start = drift.JumperMartingale.start()
        >>> print(jax.lax.scan(update, start, p_values)[1].argmax())
        47

    Source: Vovk et al. (2021), "Retrain or not retrain: conformal test martingales for change-point
    detection", algorithm 1.
    """

    wealth: Wealth

    @staticmethod
    def start() -> "JumperMartingale":
        """The martingale before any p-value."""
        return JumperMartingale(Wealth.start(len(_SIDES)))

    def update(self, p_value: ArrayLike) -> "JumperMartingale":
        """The martingale after a p-value.

        Args:
            p_value: a scalar in [0, 1]. May be traced. Then NaN, as `OnlineRanks` gives for a score
                that is NaN, is not counted.
        """
        dtype = self.wealth.log_peak.dtype
        value = _checks.scalar(p_value, "p_value", dtype, at_least=0, at_most=1)
        factors = jnp.log1p(jnp.array(_SIDES, dtype) * (value - 0.5))
        grown = self.wealth.grow(factors, redistributed=_JUMP)
        is_missing = jnp.isnan(jnp.asarray(p_value, dtype))
        kept = jax.tree.map(lambda new, old: jnp.where(is_missing, old, new), grown, self.wealth)
        return JumperMartingale(kept)

    def rejects(self, *, delta: ArrayLike) -> jax.Array:
        """Whether the stream changed, up to now, with that probability of a false alarm.

        Args:
            delta: a scalar, greater than 0 and less than 1.
        """
        return self.wealth.has_reached(delta)


def _log_reserve(count: jax.Array) -> jax.Array:
    return -jnp.log1p(jnp.log1p(count))


def _log_add(logarithms: Sum, added: Sum) -> Sum:
    """The logarithms of the sums of two amounts: the larger logarithm, and what is added to it."""
    gap = _difference(logarithms, added)
    larger = jax.tree.map(lambda one, other: jnp.where(gap >= 0, one, other), logarithms, added)
    return larger + Sum.of(jnp.log1p(jnp.exp(-jnp.abs(gap))))


def _difference(one: Sum, other: Sum) -> jax.Array:
    """One minus the other, precisely where they are close; 0 for two that are infinite."""
    are_equal = one.high == other.high
    # Without the difference of two infinities, even an unused one.
    high = one.high - jnp.where(are_equal, 0, other.high)
    return jnp.where(are_equal, 0, high) + (one.low - other.low)
