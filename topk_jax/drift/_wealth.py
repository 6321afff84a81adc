"""The wealth of a player who bets against a hypothesis: evidence that holds at any time."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from topk_jax._sums import Sum


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Wealth:
    r"""Capital in several bets that are fair under the hypothesis, and a reserve.

    The player starts with 1. Before each outcome some of the reserve goes to the bets, in equal
    parts, so that 1 / (1 + log(1 + t)) is left after t outcomes. The wealth falls at most that far
    in a long time without a change, and a change is noticed soon after. Money that moves between
    fair bets keeps the wealth fair: under the hypothesis, the probability that it ever reaches
    1 / delta is at most delta (Ville).

    Attributes:
        log_peak: the logarithm of the largest wealth so far, a scalar.
    """

    _log_capital: Sum
    _count: Sum
    log_peak: jax.Array

    @staticmethod
    def start(num_bets: int) -> Wealth:
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

    def grow(self, log_factors: jax.Array, *, redistributed: float = 0.0) -> Wealth:
        """The wealth after an outcome.

        Identity: what goes to the bets, 1 / a - 1 / b, is (b - a) / (a b), and b - a is
        log1p(1 / (1 + t)). Hazard: the two numbers agree to all digits for a large t, and a capital
        may be 1e-1000 or 1e1000. Choice: the product, and logarithms of all amounts. Hazard: the
        rounding of these logarithms, which is the same for equal outcomes, adds up to false
        evidence in a million of them. Choice: sums that do not drift. Cost: some exponentials and
        additions of an outcome.

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
