"""After deployment: sets that follow a drift, and tests that notice one.

Each class is the state after some outcomes. `start` makes the first one, and `update` returns the
next one: a pure function, which works under `jit`, `vmap` (over many states) and `scan` (over the
outcomes). A state is a tree of a few arrays, so any checkpoint can store it.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes
from topk_jax._sums import Sum
from topk_jax.sets._quantiles import vector_of_scores

__all__ = ["AdaptiveQuantile", "CoverageTest", "JumperMartingale", "OnlineRanks"]

# The rates, and the number of outcomes over which they are compared, that Gibbs and Candès choose.
_RATES = 0.001 * 2.0 ** np.arange(8)
_HORIZON = 500
# The sizes of the bets: the largest are best for sets that miss nearly all labels, the smallest for
# an error that is a hundredth above the promise. Half of a best size costs a sixth of the growth.
_NUM_BETS = 12
# Whether small p-values, any, or large ones are bet on, and the part of the capital that changes
# sides at each outcome, as Vovk et al. choose it.
_SIDES = (-1.0, 0.0, 1.0)
_JUMP = 0.01


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AdaptiveQuantile:
    r"""A conformal quantile that follows a drift: adaptive conformal inference, several rates.

    Each rate :math:`\gamma_i` has an error of its own, which follows the labels that it missed
    (:math:`m_i = 1`). The error in use is their mean, by weights that favour the rates that did
    best in the last 500 or so outcomes. With p the p-value of the label's score,

    .. math::
        \varepsilon_i \gets \varepsilon_i + \gamma_i (\varepsilon - m_i), \qquad
        w_i \gets (1 - \sigma) \, \frac{w_i e^{-\eta \ell(p, \varepsilon_i)}}
        {\sum_j w_j e^{-\eta \ell(p, \varepsilon_j)}} + \frac{\sigma}{R}, \qquad
        \ell(p, \theta) = \varepsilon (p - \theta) - \min(0, p - \theta)

    With one rate, the part of missed labels among the first T is within
    :math:`(\max(\varepsilon, 1 - \varepsilon) + \gamma) / (\gamma T)` of :math:`\varepsilon`,
    for any finite scores. With several, nothing is proven.

    Attributes:
        error: the rate of missed labels that is asked for, a scalar.
        ascending: the scores of the labels of the calibration examples, in ascending order, `[n]`.
        rates: the rates, `[R]`.
        log_weights: the logarithms of their weights, whose sum is 1, `[R]`.

    Example:
        >>> state = AdaptiveQuantile.start(jnp.linspace(0.0, 1.0, 99), error=0.1)
        >>> print(f"{state.quantile():.3f} {state.update(2.0).quantile():.3f}")
        0.908 0.939

    Source: Gibbs and Candès (2024), "Conformal inference for online prediction", algorithm 1.
    """

    error: jax.Array
    ascending: jax.Array
    rates: jax.Array
    _errors: Sum
    log_weights: jax.Array

    @property
    def errors(self) -> jax.Array:
        """The error of each rate, `[R]`; it may be below 0 (all classes) or above 1 (none)."""
        return self._errors.value()

    @staticmethod
    def start(
        calibration_scores: ArrayLike,
        *,
        error: ArrayLike,
        rates: ArrayLike = _RATES,
    ) -> "AdaptiveQuantile":
        """The state before any label.

        Args:
            calibration_scores: the scores of the labels of examples, `[n]`, at least one; smaller
                for classes that fit better.
            error: the rate of missed labels, a scalar greater than 0 and less than 1.
            rates: positive numbers, `[R]`. Larger ones follow a drift faster, and vary more.
        """
        scores = vector_of_scores(calibration_scores, "calibration_scores")
        dtype = scores.dtype
        rate = _checks.scalar(error, "error", dtype, above=0, below=1)
        steps = _checks.numbers(rates, "rates", dtype, None, above=0)
        size = steps.shape[0]
        return AdaptiveQuantile(
            rate,
            jnp.sort(scores),
            steps,
            Sum.of(jnp.full(size, rate)),
            jnp.full(size, -math.log(size), dtype),
        )

    def current_error(self) -> jax.Array:
        """The error in use, a scalar."""
        return (jnp.exp(self.log_weights) * self.errors).sum()

    def quantile(self) -> jax.Array:
        """The quantile for the next set, a scalar for `sets.score_set` or `sets.conformal_set`.

        It may be infinity, which keeps every class, or minus infinity; NaN if a score was.
        """
        return self._at(self.current_error())

    def update(self, score_of_label: ArrayLike) -> "AdaptiveQuantile":
        """The state after a label, by its score, a real scalar; NaN counts as infinity."""
        dtype = self.ascending.dtype
        score = _checks.real_array(score_of_label, "score_of_label", dtype, ())
        score = jnp.where(jnp.isnan(score), jnp.inf, score)
        # A set of a quantile that is NaN is empty.
        missed = (~(score <= self._at(self.errors))).astype(dtype)
        number, num_rates, error = self.ascending.shape[0], self.rates.shape[0], self.error
        below = jnp.searchsorted(self.ascending, score)
        p_value = (number + 1 - below).astype(dtype) / (number + 1)
        left = p_value - self.errors
        losses = error * left - jnp.minimum(0.0, left)
        # The speed eta, which suits scores without a drift.
        spread = (1 - error) ** 2 * error**3 + error**2 * (1 - error) ** 3
        speed = jnp.sqrt(3.0 / _HORIZON * (math.log(num_rates * _HORIZON) + 2.0) / spread)
        weighted = jax.nn.log_softmax(self.log_weights - speed * losses)
        shared = 1 / (2 * _HORIZON)
        return dataclasses.replace(
            self,
            _errors=self._errors + Sum.of(self.rates * (error - missed)),
            log_weights=jnp.logaddexp(weighted + math.log1p(-shared), math.log(shared / num_rates)),
        )

    def _at(self, errors: jax.Array) -> jax.Array:
        """The quantiles at some errors."""
        number = self.ascending.shape[0]
        # 16 roundings to spare: the product may be on the other side of an integer.
        spare = 16 * (number + 1) * float(jnp.finfo(errors.dtype).eps)
        ranks = jnp.ceil((number + 1) * (1 - errors) - spare)
        ranks = jnp.clip(ranks, 0, number + 1).astype(int)
        infinity = jnp.full(1, jnp.inf, self.ascending.dtype)
        quantiles = jnp.concatenate([-infinity, self.ascending, infinity])[ranks]
        # NaN is sorted to the end.
        return _classes.nan_unless(~jnp.isnan(self.ascending[-1:]).any(), quantiles)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Wealth:
    r"""Capital in several bets that are fair under the hypothesis, and a reserve.

    The player starts with 1. Before each outcome some of the reserve goes to the bets, in equal
    parts, so that 1 / (1 + log(1 + t)) is left after t outcomes: a late change is noticed soon.
    Under the hypothesis, it ever reaches 1 / delta with a probability of at most delta (Ville).
    `log_peak` is the logarithm of the largest wealth so far, a scalar.
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
        """The wealth after an outcome, by the logarithm of what each bet makes of 1, `[bets]`.

        A part of the capital, `redistributed`, is first divided equally among the bets.
        """
        # Amounts are logarithms, as of 1e1000, in sums that do not drift: the same rounding in a
        # million equal outcomes would be false evidence.
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
    test may be looked at after each outcome.

    A threshold calibrated on n examples misses a little more or less than promised. Give an `error`
    that allows for it: a large quantile of the beta distribution with the parameters n + 1 - r and
    r, where r is the rank of the quantile.

    Attributes:
        error: the rate of missed labels that is promised, a scalar.
        wealth: the bets; `wealth.count` is the number of outcomes.

    Example:
        >>> test = CoverageTest.start(error=0.1)
        >>> for missed in (False, True, True, True):
        ...     test = test.update(missed)
        >>> print(test.misses, test.rejects(delta=0.1), test.rejects(delta=0.01))
        3 True False

    Source: Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by
    betting"; Shin, Ramdas and Rinaldo (2024), "E-detectors", for bets that start at any outcome.
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
        """The test before any outcome, of an error of at least 0 and less than 1, a scalar."""
        rate = _checks.scalar(error, "error", jnp.result_type(float), at_least=0, below=1)
        return CoverageTest(rate, Sum.of(jnp.zeros((), int)), Wealth.start(_NUM_BETS))

    def update(self, missed: ArrayLike) -> "CoverageTest":
        """The test after an outcome: whether the set did not have the label, a boolean scalar."""
        outcome = _checks.boolean_array(missed, "missed", ())
        sizes = 2.0 ** (2.0 - jnp.arange(_NUM_BETS, dtype=self.error.dtype))
        factors = jnp.where(outcome, sizes, 0.0) - jnp.log1p(self.error * jnp.expm1(sizes))
        misses = self._misses + Sum.of(outcome.astype(int))
        return CoverageTest(self.error, misses, self.wealth.grow(factors))

    def rejects(self, *, delta: ArrayLike) -> jax.Array:
        """Whether the promise was broken, up to now; a false alarm has the probability `delta`."""
        return self.wealth.has_reached(delta)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OnlineRanks:
    r"""P-values of the scores of a stream, each among those before it and itself.

    .. math::
        p_t = \frac{|\{ i \le t : b_i > b_t \}| + u_t \, |\{ i \le t : b_i = b_t \}|}{t}

    :math:`b_t` is the number of `edges`, `[m]`, that are less than or equal to the score, and
    :math:`u_t` a random number in [0, 1]. If the scores are exchangeable, the p-values are
    independent and uniform, for any edges. Strange examples have large scores, small p-values.

    Example:
        >>> ranks = OnlineRanks.start(edges=jnp.array([0.5]))
        >>> for score in (0.25, 0.125, 0.75):
        ...     ranks, p_value = ranks.update(score, uniform=0.5)
        >>> print(ranks.counts, f"{p_value:.4f}")
        [2 1] 0.1667

    Source: Vovk et al. (2005), "Algorithmic learning in a random world", section 2.2.
    """

    edges: jax.Array
    _counts: Sum

    @property
    def counts(self) -> jax.Array:
        """The number of scores in each interval so far, integers `[m + 1]`."""
        return self._counts.value()

    @staticmethod
    def start(*, edges: ArrayLike) -> "OnlineRanks":
        """The ranks before any score, for finite edges in ascending order, `[m]`."""
        dtype = _checks.floating_array(edges, "edges").dtype
        bounds = _checks.in_order(edges, "edges", dtype, falls=False)
        return OnlineRanks(bounds, Sum.of(jnp.zeros(bounds.shape[0] + 1, int)))

    def update(self, score: ArrayLike, *, uniform: ArrayLike) -> "tuple[OnlineRanks, jax.Array]":
        """The ranks after a score, and its p-value; NaN if the score is NaN, which is not counted.

        `score` is a real scalar, and `uniform` one in [0, 1], drawn at random for each score.
        """
        dtype = self.edges.dtype
        value = _checks.real_array(score, "score", dtype, ())
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
        return OnlineRanks(self.edges, counts), _classes.nan_unless(~jnp.isnan(value), p_value)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JumperMartingale:
    r"""A bet against uniform p-values, which grows when a stream changes: the simple jumper.

    A capital in three parts has at each p-value the factors

    .. math:: 1 + \epsilon (p_t - \tfrac12), \qquad \epsilon \in \{ -1, 0, 1 \},

    after a hundredth of it was divided equally among the parts. If the p-values are independent and
    uniform, the probability that the wealth ever reaches :math:`1 / \delta` is at most
    :math:`\delta`. As in `CoverageTest`, a part of the money enters before each outcome.

    Example:
        >>> test = JumperMartingale.start()
        >>> for p_value in (0.01,) * 15:
        ...     test = test.update(p_value)
        >>> print(test.rejects(delta=0.1), test.rejects(delta=0.01))
        True False

    Source: Vovk et al. (2021), "Retrain or not retrain", algorithm 1.
    """

    wealth: Wealth

    @staticmethod
    def start() -> "JumperMartingale":
        """The martingale before any p-value."""
        return JumperMartingale(Wealth.start(len(_SIDES)))

    def update(self, p_value: ArrayLike) -> "JumperMartingale":
        """The martingale after a p-value, a scalar in [0, 1]; a traced NaN is not counted."""
        dtype = self.wealth.log_peak.dtype
        value = _checks.scalar(p_value, "p_value", dtype, at_least=0, at_most=1)
        factors = jnp.log1p(jnp.array(_SIDES, dtype) * (value - 0.5))
        grown = self.wealth.grow(factors, redistributed=_JUMP)
        is_missing = jnp.isnan(jnp.asarray(p_value, dtype))
        kept = jax.tree.map(lambda new, old: jnp.where(is_missing, old, new), grown, self.wealth)
        return JumperMartingale(kept)

    def rejects(self, *, delta: ArrayLike) -> jax.Array:
        """Whether the stream changed, up to now; a false alarm has the probability `delta`."""
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
