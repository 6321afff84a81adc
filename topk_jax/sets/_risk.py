"""Risk control: a bound on the expected loss of sets, and on the errors among confident answers."""

import decimal
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _example, _sharding

__all__ = ["false_negative_rates", "risk_controlled_index", "selective_threshold"]

# Half of the digits that p-values have beyond those that they lose.
_SPARE_DIGITS = 20


def risk_controlled_index(losses: ArrayLike, *, error: float, bound: float = 1.0) -> jax.Array:
    r"""The first of several parameters of a set whose expected loss is at most `error`.

    .. math::
        \hat\jmath = \min \Big\{ j : \frac{B + \sum_i \ell_{ij'}}{n + 1} \le \varepsilon
        \text{ for all } j' \ge j \Big\}

    A larger set must not have a larger loss.

    Args:
        losses: floating-point losses in [0, B] of each example with each parameter, such as a
            threshold that falls from column to column, `[..., m]`.
        error: static bound of the expected loss, a real number in [0, B), taken as its decimal.
        bound: static number B, the largest possible loss, positive.

    Returns:
        The index of the parameter, an integer scalar. It is m if no parameter is good enough, or if
        a loss is NaN or a traced loss is outside [0, B].

    Example:
        >>> losses = jnp.array([[1.0, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
        >>> print(risk_controlled_index(losses, error=0.5))
        1

    Source: Angelopoulos et al. (2024), "Conformal risk control", equation 4.
    """
    values = _checks.floating_array(losses, "losses")
    if values.ndim < 2 or values.size == 0:
        raise ValueError(
            "losses must have a row for each example and a column for each parameter, got shape "
            f"{values.shape}."
        )
    largest = _checks.static_number(bound, "bound", above=0)
    rate = _checks.static_error(error, below=largest)
    values = _checks.within(losses, values, "losses", at_least=0, at_most=float(largest))
    exact = rate * (values.size // values.shape[-1] + 1) - largest
    # Sums of thirds are rounded. Sums of losses of 0 and 1 are integers, which less than one more
    # does not change. A sum of 0 is exact.
    rounding = _classes.rounding_to_spare(values.dtype)
    allowed = float(exact) + min(rounding * max(float(exact), float(largest)), float(largest) / 2)
    is_small = (values.sum(axis=range(values.ndim - 1)) <= allowed) & (exact >= 0)
    # Only the columns at the end that are all small count. A NaN is not small.
    from_here = jax.lax.cummin(is_small.astype(jnp.int32), reverse=True)
    return values.shape[-1] - from_here.sum()


def false_negative_rates(
    probabilities: ArrayLike, targets: ArrayLike, *, thresholds: ArrayLike
) -> jax.Array:
    r"""The part of the labels that `threshold_set` misses, as a loss for `risk_controlled_index`.

    .. math:: \ell_j(p, Y) = \frac{|\{ y \in Y : p_y < \lambda_j \}|}{|Y|}

    Args:
        probabilities: floating-point scores of any range, larger for likelier classes, `[..., L]`.
        targets: which classes are labels, `[..., L]`: booleans, or numbers that are 0 or 1.
        thresholds: real, `[m]`, which never grow.

    Returns:
        The losses in [0, 1], `[..., m]`, 0 without labels; NaN where a score is NaN or a traced
        target is neither 0 nor 1. All are NaN if traced thresholds grow.

    Example:
        >>> scores, targets = jnp.array([0.9, 0.6, 0.2]), jnp.array([1, 0, 1])
        >>> print(false_negative_rates(scores, targets, thresholds=jnp.array([0.75, 0.1])))
        [0.5 0. ]

    Source: Angelopoulos et al. (2024), "Conformal risk control", section 3.
    """
    values = _checks.floating_array(probabilities, "probabilities")
    labels, is_target = _example.multi_hot(targets, "targets", values.shape)
    limits = _checks.in_order(thresholds, "thresholds", values.dtype, falls=True)
    valid = is_target.all(axis=-1) & ~jnp.isnan(values).any(axis=-1)
    rates = _sharding.map_examples(
        _false_negative_rates, values.ndim - 1, values, labels, shared=(limits,)
    )
    return _classes.nan_unless(valid[..., None] & ~jnp.isnan(limits).any(), rates)


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

    With a probability of at least :math:`1 - \delta`, the rate of errors among the answers is at
    most :math:`\varepsilon`, if it does not fall as the threshold falls.

    Args:
        error: see `topk_jax.sets`; the rate of errors among the answers.
        confidences: floating-point and larger for surer answers, `[...]`.
        hits: whether each answer is right, booleans, `[...]`.
        delta: static probability that the rate is larger, a real number in (0, 1).

    Returns:
        A scalar: give an answer if the confidence is greater. It is infinity if no threshold is
        good enough, and minus infinity if every answer may be given.

    Example:
        >>> confidences = jnp.arange(128) / 128
        >>> print(selective_threshold(confidences, confidences > 0.5, error=0.125, delta=0.05))
        0.4765625

    Source: Angelopoulos et al. (2021), "Learn then test", sections 3 and 4.
    """
    values = _checks.floating_numbers(confidences, "confidences")
    _checks.some_examples(values, "confidences")
    right = _checks.boolean_array(hits, "hits", values.shape)
    rate, level = _checks.static_error(error), _checks.static_number(delta, "delta", above=0)
    if level >= 1:
        raise ValueError(f"delta must be less than 1, got {delta}.")
    allowed = jnp.asarray(_allowed_errors(values.size, rate, level))
    return _selective_threshold(_sharding.gather(values), _sharding.gather(right), allowed)


def _false_negative_rates(values: jax.Array, labels: jax.Array, thresholds: jax.Array) -> jax.Array:
    """The rates of values [..., L] for thresholds [m]."""
    # The first threshold that keeps a class, and a count of labels for each: comparing all pairs
    # would take memory for them.
    number = thresholds.shape[0]
    first = jnp.searchsorted(-thresholds, -values.reshape(-1, values.shape[-1]), side="left")
    rows, of_rows = jnp.arange(first.shape[0])[:, None], labels.reshape(first.shape)
    kept = jnp.zeros((first.shape[0], number), jnp.int32)
    kept = kept.at[rows, first].add(of_rows.astype(jnp.int32), mode="drop")
    sizes = of_rows.sum(axis=-1, keepdims=True, dtype=jnp.int32)
    missed = (sizes - jnp.cumsum(kept, axis=-1)).astype(values.dtype)
    rates = missed / jnp.maximum(sizes, 1).astype(values.dtype)
    return rates.reshape(*values.shape[:-1], number)


def _allowed_errors(number: int, error: Fraction, delta: Fraction) -> np.ndarray:
    """For each number of answers from 0, the most errors with which p <= delta, or -1."""
    # By P(Bin(m + 1, e) <= k) = P(Bin(m, e) <= k) - e P(Bin(m, e) = k), in decimals, because floats
    # that fall from 1 to a small p have few right digits of it. A million answers take a second.
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
