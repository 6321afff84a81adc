"""Whether sets still have their labels as often as they promise."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks
from topk_jax._sums import Sum
from topk_jax.drift._wealth import Wealth

__all__ = ["CoverageTest"]

# The sizes of the bets: the largest are best for sets that miss nearly all labels, the smallest for
# an error that is a hundredth above the promise. Half of a best size costs a sixth of the growth.
_NUM_BETS = 12


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
    test may be looked at after each outcome, and for any time. It may start to bet at any outcome
    s, so that it also notices a change after many good outcomes.

    A threshold that is calibrated on n examples misses with a probability that varies around the
    promise, with a standard deviation of :math:`\sqrt{\varepsilon (1 - \varepsilon) / n}`. In a
    long time the test finds this, too. Give an `error` that allows for it: a large quantile of the
    beta distribution with the parameters n + 1 - r and r, where r is the rank of the quantile.

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
    def start(*, error: ArrayLike) -> CoverageTest:
        """The test before any outcome.

        Args:
            error: a scalar, at least 0 and less than 1. May be traced.

        Raises:
            TypeError: `error` is not real.
            ValueError: `error` is outside its range.
        """
        rate = _checks.scalar(error, "error", jnp.result_type(float), at_least=0, below=1)
        return CoverageTest(rate, Sum.of(jnp.zeros((), int)), Wealth.start(_NUM_BETS))

    def update(self, missed: ArrayLike) -> CoverageTest:
        """The test after an outcome.

        Args:
            missed: whether the set did not have the label, a boolean scalar.

        Raises:
            TypeError: `missed` is not boolean.
            ValueError: `missed` is not a scalar.
        """
        outcome = _checks.boolean_array(missed, "missed", ())
        sizes = 2.0 ** (2.0 - jnp.arange(_NUM_BETS, dtype=self.error.dtype))
        factors = jnp.where(outcome, sizes, 0.0) - jnp.log1p(self.error * jnp.expm1(sizes))
        misses = self._misses + Sum.of(outcome.astype(int))
        return CoverageTest(self.error, misses, self.wealth.grow(factors))

    def rejects(self, *, delta: ArrayLike) -> jax.Array:
        """Whether the promise was broken, up to now, with that probability of a false alarm.

        Args:
            delta: a scalar, greater than 0 and less than 1. May be traced.

        Raises:
            TypeError: `delta` is not real.
            ValueError: `delta` is outside its range.
        """
        return reached(self.wealth, delta)


def reached(wealth: Wealth, delta: ArrayLike) -> jax.Array:
    """Whether the wealth was ever 1 / delta."""
    chance = _checks.scalar(delta, "delta", wealth.log_peak.dtype, above=0, below=1)
    return wealth.log_peak >= -jnp.log(chance)
