"""The wealth of a player who bets against a hypothesis: evidence that holds at any time."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp


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
        log_capital: the logarithm of the capital in each bet, `[bets]`.
        count: the number of outcomes so far, an integer scalar.
        log_peak: the logarithm of the largest wealth so far, a scalar.
    """

    log_capital: jax.Array
    count: jax.Array
    log_peak: jax.Array

    @staticmethod
    def start(num_bets: int) -> Wealth:
        """The wealth before any outcome."""
        dtype = jnp.result_type(float)
        return Wealth(jnp.full(num_bets, -jnp.inf, dtype), jnp.zeros((), int), jnp.zeros((), dtype))

    def log_value(self) -> jax.Array:
        """The logarithm of the capital and the reserve."""
        reserve = self._log_reserve(self.count)
        return jnp.logaddexp(jax.nn.logsumexp(self.log_capital), reserve)

    def _log_reserve(self, count: jax.Array) -> jax.Array:
        return -jnp.log1p(jnp.log1p(count.astype(self.log_capital.dtype)))

    def grow(self, log_factors: jax.Array, *, redistributed: float = 0.0) -> Wealth:
        """The wealth after an outcome.

        Identity: what goes to the bets, 1 / a - 1 / b, is (b - a) / (a b), and b - a is
        log1p(1 / (1 + t)). Hazard: the two numbers agree to all digits for a large t, and a capital
        may be 1e-1000 or 1e1000. Choice: the product, and logarithms of all amounts. Cost: some
        exponentials of an outcome.

        Args:
            log_factors: the logarithm of what each bet makes of 1, `[bets]`.
            redistributed: the part of the capital that is first divided equally among the bets.
        """
        capital, number = self.log_capital, self.log_capital.shape[0]
        if redistributed:
            shared = jax.nn.logsumexp(capital) + jnp.log(redistributed / number)
            capital = jnp.logaddexp(capital + jnp.log1p(-redistributed), shared)
        step = jnp.log1p(1.0 / (1.0 + self.count.astype(capital.dtype))) / number
        invested = jnp.log(step) + self._log_reserve(self.count) + self._log_reserve(self.count + 1)
        grown = dataclasses.replace(
            self,
            log_capital=jnp.logaddexp(capital, invested) + log_factors,
            count=self.count + 1,
        )
        # A NaN is not evidence.
        return dataclasses.replace(grown, log_peak=jnp.fmax(self.log_peak, grown.log_value()))
