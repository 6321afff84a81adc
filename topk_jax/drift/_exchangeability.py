"""Whether the scores of a stream change with time."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax._sums import Sum
from topk_jax.drift._coverage import reached
from topk_jax.drift._wealth import Wealth

__all__ = ["JumperMartingale", "OnlineRanks"]

# Whether small p-values, any, or large ones are bet on, and the part of the capital that changes
# sides at each outcome, as Vovk et al. choose it.
_SIDES = (-1.0, 0.0, 1.0)
_JUMP = 0.01


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

    The state has one count for each interval between edges, however long the stream is.

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
    def start(*, edges: ArrayLike) -> OnlineRanks:
        """The ranks before any score.

        Args:
            edges: finite numbers in ascending order, `[m]`.

        Raises:
            TypeError: `edges` is not floating-point.
            ValueError: `edges` is not a vector, or concrete ones are not finite and ascending.
        """
        bounds = _checks.ascending(edges, "edges")
        return OnlineRanks(bounds, Sum.of(jnp.zeros(bounds.shape[0] + 1, int)))

    def update(self, score: ArrayLike, *, uniform: ArrayLike) -> tuple[OnlineRanks, jax.Array]:
        """The ranks after a score, and its p-value; NaN if the score is NaN, which is not counted.

        Args:
            score: a real scalar; infinite ones are allowed.
            uniform: a scalar in [0, 1], drawn at random for each score. May be traced.

        Raises:
            TypeError: an argument is not real.
            ValueError: an argument is not a scalar, or `uniform` is outside [0, 1].
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
        return OnlineRanks(self.edges, counts), _numerics.nan_unless(~jnp.isnan(value), p_value)


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
    def start() -> JumperMartingale:
        """The martingale before any p-value."""
        return JumperMartingale(Wealth.start(len(_SIDES)))

    def update(self, p_value: ArrayLike) -> JumperMartingale:
        """The martingale after a p-value.

        Args:
            p_value: a scalar in [0, 1]. May be traced. Then NaN, as `OnlineRanks` gives for a score
                that is NaN, is not counted.

        Raises:
            TypeError: `p_value` is not real.
            ValueError: `p_value` is not a scalar in [0, 1].
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
            delta: a scalar, greater than 0 and less than 1. May be traced.

        Raises:
            TypeError: `delta` is not real.
            ValueError: `delta` is outside its range.
        """
        return reached(self.wealth, delta)
