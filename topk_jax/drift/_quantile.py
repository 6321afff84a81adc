"""Conformal sets whose error is adapted after each label, so that it is right in a drift."""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _example
from topk_jax._sums import Sum

__all__ = ["AdaptiveQuantile"]

# The rates, and the number of outcomes over which they are compared, that Gibbs and Candès choose.
_RATES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
_HORIZON = 500


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AdaptiveQuantile:
    r"""A conformal quantile that follows a drift: adaptive conformal inference, several rates.

    Each rate :math:`\gamma_i` has an error of its own. After a label it becomes

    .. math::
        \varepsilon_i \gets \varepsilon_i + \gamma_i (\varepsilon - m_i), \qquad
        m_i = 1 \text{ if the set at } \varepsilon_i \text{ missed the label, else } 0

    The error in use is the mean of the :math:`\varepsilon_i`, by weights that favour the rates that
    did best in the last 500 or so outcomes: with p the p-value of the label's score,

    .. math::
        w_i \gets (1 - \sigma) \, \frac{w_i e^{-\eta \ell(p, \varepsilon_i)}}
        {\sum_j w_j e^{-\eta \ell(p, \varepsilon_j)}} + \frac{\sigma}{R}, \qquad
        \ell(p, \theta) = \varepsilon (p - \theta) - \min(0, p - \theta)

    With one rate, the part of missed labels among the first T is within
    :math:`(\max(\varepsilon, 1 - \varepsilon) + \gamma) / (\gamma T)` of :math:`\varepsilon`,
    whatever the scores are, if they are above minus infinity. With several, the regret to the best
    rate over any 500 outcomes is bounded, but nothing is proven about the part of missed labels.

    Attributes:
        error: the rate of missed labels that is asked for, a scalar.
        ascending: the scores of the labels of the calibration examples, in ascending order, `[n]`.
        rates: the rates, `[R]`.
        log_weights: the logarithms of their weights, whose sum is 1, `[R]`.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from topk_jax import drift
        >>> calibration_scores = jnp.linspace(0.0, 1.0, 99)
        >>> state = drift.AdaptiveQuantile.start(calibration_scores, error=0.1)
        >>> print(round(float(state.quantile()), 4))
        0.9082
        >>> def update(state, score):
        ...     return state.update(score), score > state.quantile()
        >>> # The scores of new labels are higher.
        >>> scores = jnp.sqrt(jax.random.uniform(jax.random.key(0), (2000,)))
        >>> state, missed = jax.lax.scan(update, state, scores)
        >>> print(round(float(missed[1000:].mean()), 2))
        0.1

    Source: Gibbs and Candès (2021), "Adaptive conformal inference under distribution shift"; Gibbs
    and Candès (2024), "Conformal inference for online prediction with arbitrary distribution
    shifts", algorithm 1, with the mean of the errors.
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
        calibration_scores: ArrayLike, *, error: ArrayLike, rates: Sequence[float] = _RATES
    ) -> "AdaptiveQuantile":
        """The state before any label.

        Args:
            calibration_scores: the scores of the labels of the calibration examples, floating-point
                and smaller for classes that fit better, `[n]`, at least one.
            error: the rate of missed labels, a scalar greater than 0 and less than 1.
            rates: at least one positive number. Larger ones follow a drift faster, and vary more.
        """
        scores = _checks.floating_array(calibration_scores, "calibration_scores")
        if scores.ndim != 1:
            raise ValueError(f"calibration_scores must be a vector, got shape {scores.shape}.")
        dtype = scores.dtype
        rate = _checks.scalar(error, "error", dtype, above=0, below=1)
        steps = [float(_checks.static_positive(step, "rates")) for step in rates]
        if not steps:
            raise ValueError("rates must have at least one number, got none.")
        size = len(steps)
        return AdaptiveQuantile(
            rate,
            jnp.sort(scores),
            jnp.array(steps, dtype),
            Sum.of(jnp.full(size, rate)),
            jnp.full(size, -math.log(size), dtype),
        )

    def current_error(self) -> jax.Array:
        """The error in use, a scalar."""
        return (jnp.exp(self.log_weights) * self.errors).sum()

    def quantile(self) -> jax.Array:
        """The quantile for the next set, a scalar for `sets.score_set` or `sets.conformal_set`.

        It is infinity, which keeps every class, or minus infinity, which keeps only scores of minus
        infinity, if the error is too small or too large for the number of calibration examples. It
        is NaN, which keeps none, if a calibration score is NaN.
        """
        return self._at(self.current_error())

    def update(self, score_of_label: ArrayLike) -> "AdaptiveQuantile":
        """The state after a label. A score that is NaN counts as infinity.

        Args:
            score_of_label: the score of the label of the last example, a real scalar.
        """
        dtype = self.ascending.dtype
        score = _checks.real_array(score_of_label, "score_of_label", (), dtype)
        score = jnp.where(jnp.isnan(score), jnp.inf, score)
        # A set of a quantile that is NaN is empty.
        missed = (~(score <= self._at(self.errors))).astype(dtype)
        number = self.ascending.shape[0]
        below = jnp.searchsorted(self.ascending, score)
        p_value = (number + 1 - below).astype(dtype) / (number + 1)
        left = p_value - self.errors
        losses = self.error * left - jnp.minimum(0.0, left)
        weighted = jax.nn.log_softmax(self.log_weights - _speed(self.error, len(missed)) * losses)
        shared = 1 / (2 * _HORIZON)
        return dataclasses.replace(
            self,
            _errors=self._errors + Sum.of(self.rates * (self.error - missed)),
            log_weights=jnp.logaddexp(
                weighted + math.log1p(-shared), math.log(shared / len(missed))
            ),
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
        return _example.nan_unless(~jnp.isnan(self.ascending[-1:]).any(), quantiles)


def _speed(error: jax.Array, num_rates: int) -> jax.Array:
    """How fast the weights follow the losses: eta, which suits scores without a drift."""
    spread = (1 - error) ** 2 * error**3 + error**2 * (1 - error) ** 3
    return jnp.sqrt(3.0 / _HORIZON * (math.log(num_rates * _HORIZON) + 2.0) / spread)
