"""Answers only if a classifier is confident enough, with few errors among the answers."""

from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _sharding

__all__ = ["selective_threshold"]

# Half of the digits that p-values have beyond those that they lose.
_SPARE_DIGITS = 20


def selective_threshold(
    confidences: ArrayLike, hits: ArrayLike, *, error: float, delta: float
) -> jax.Array:
    r"""The confidence above which the answers are wrong at most at a given rate.

    With the number :math:`n_\lambda` of examples whose confidence exceeds :math:`\lambda`, and the
    number :math:`k_\lambda` of wrong answers among them:

    .. math::
        p_\lambda = P\big( \mathrm{Bin}(n_\lambda, \varepsilon) \le k_\lambda \big), \qquad
        \hat\lambda = \inf \{ \lambda : p_{\lambda'} \le \delta
        \text{ for all } \lambda' \ge \lambda \text{ with }
        P( \mathrm{Bin}(n_{\lambda'}, \varepsilon) \le 1 ) \le \delta \}

    These are the p-values of fixed-sequence testing, from the largest threshold down to the first
    one that is not rejected. If so few examples exceed a threshold that not even one error is
    allowed, it is left out, so that a single confident error does not end the sequence. With a
    probability of at least :math:`1 - \delta` over the calibration examples, the rate of errors
    among the answers, :math:`P(\text{wrong} \mid c > \hat\lambda)`, is at most :math:`\varepsilon`.
    This needs a rate that does not fall as the threshold falls.

    Args:
        confidences: floating-point and larger for surer answers, `[...]`, such as the largest
            probability.
        hits: whether each answer is right, booleans, `[...]`.
        error: static rate of errors among the answers, a real number in [0, 1), interpreted as its
            shortest decimal.
        delta: static probability that the rate is larger, a real number in (0, 1).

    Returns:
        A scalar in float32 or float64: give an answer if the confidence is greater. It is
        infinity if no threshold is good enough, minus infinity if every answer may be given, and
        NaN if a confidence is NaN.

    Raises:
        TypeError: `confidences` is not floating-point, `hits` is not boolean, or `error` or `delta`
            is not a static real number.
        ValueError: the shapes do not match, there is no example, or `error` or `delta` is outside
            its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> confidences = jnp.arange(128) / 128
        >>> hits = confidences > 0.5
        >>> print(sets.selective_threshold(confidences, hits, error=0.125, delta=0.05))
        0.4765625

    See Also:
        `risk_controlled_index`, `open_set`, `temperature`.

    Source: Angelopoulos et al. (2021), "Learn then test: calibrating predictive algorithms to
    achieve risk control", sections 3 and 4; Geifman and El-Yaniv (2017), "Selective classification
    for deep neural networks".
    """
    values = _checks.floating_numbers(confidences, "confidences")
    _checks.some_examples(values, "confidences")
    right = _checks.boolean_array(hits, "hits", values.shape)
    rate, level = _checks.static_error(error), _checks.static_positive(delta, "delta")
    if level >= 1:
        raise ValueError(f"delta must be less than 1, got {delta}.")
    allowed = jnp.asarray(allowed_errors(values.size, rate, level))
    return _selective_threshold(_sharding.gather(values), _sharding.gather(right), allowed)


def allowed_errors(number: int, error: Fraction, delta: Fraction) -> np.ndarray:
    """The most errors among m answers with which p <= delta, for m from 0; -1 if there are none.

    Identity: P(Bin(m + 1, e) <= k) = P(Bin(m, e) <= k) - e P(Bin(m, e) = k), and the smallest k
    that is too large grows by at most 1 with m. Hazard: sums of binomials underflow, and floats
    that fall from 1 to a small p have few right digits of it. Choice: one step for each number of
    answers, near the mean, in decimals with 40 digits more than p loses. Cost: a loop over all of
    them on the host, one or two seconds for a million.
    """
    num_digits = 2 * _SPARE_DIGITS + len(str(delta.denominator // delta.numerator))
    allowed = np.empty(number + 1, np.int32)
    too_many, below, own = 0, Decimal(1), Decimal(1)
    with decimal.localcontext(decimal.Context(prec=num_digits)):
        rate, level = (Decimal(each.numerator) / each.denominator for each in (error, delta))
        odds, right = rate / (1 - rate), 1 - rate
        # A p that is delta exactly is allowed, whichever way its last digit is rounded.
        level += level.scaleb(-_SPARE_DIGITS)
        for answers in range(number + 1):
            if below <= level:
                own *= odds * (answers - too_many) / (too_many + 1)
                too_many += 1
                below += own
            allowed[answers] = too_many - 1
            below -= rate * own
            own *= right * (answers + 1) / (answers + 1 - too_many)
    return allowed


@jax.jit
def _selective_threshold(values: jax.Array, hits: jax.Array, allowed: jax.Array) -> jax.Array:
    confidences = values.reshape(-1)
    order = jnp.argsort(-confidences)
    descending = confidences[order]
    errors = (~hits.reshape(-1)[order]).cumsum(dtype=allowed.dtype)
    # Either all or none of several equal confidences are above a threshold.
    is_last = jnp.append(descending[1:] < descending[:-1], True)
    is_tested = is_last & (allowed[1:] >= 1)
    fails = is_tested & (errors > allowed[1:])
    first = jnp.argmax(fails)
    none_before = ~is_tested.any() | (fails.any() & (is_tested.argmax() == first))
    threshold = jnp.where(fails.any(), descending[first], -jnp.inf)
    threshold = jnp.where(none_before, jnp.inf, threshold)
    return jnp.where(jnp.isnan(confidences).any(), jnp.nan, threshold)
