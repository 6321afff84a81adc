"""Thresholds for a mean over all examples: of set sizes, of errors, of losses, of wrong answers."""

import decimal
import math
from collections.abc import Hashable
from decimal import Decimal
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _compilation, _example, _search, _sharding, _sums

__all__ = [
    "AverageKCalibrator",
    "average_error_threshold",
    "average_k_threshold",
    "false_negative_rates",
    "risk_controlled_index",
    "selective_threshold",
]

# Half of the digits that p-values have beyond those that they lose.
_SPARE_DIGITS = 20


@_sharding.allow_split(of="batch")
def average_k_threshold(
    probabilities: ArrayLike, *, k: float, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The threshold for sets with k classes on average over the given examples, without labels.

    .. math:: \lambda = \tfrac12 \big( P_{[N]} + P_{[N+1]} \big), \qquad N = \lfloor k n \rfloor,

    where P are all n L probabilities in descending order. If the midpoint would keep more than N of
    them, because they tie, it is the smallest probability above it, or infinity: the mean size of
    the sets never exceeds k. For k = L it is minus infinity. Denormal numbers count as 0.

    Args:
        class_axis_name: see `topk_jax.sets`.
        probabilities: floating-point, `[..., L]`.
        k: static mean set size, a real number from 1 to L, taken as its shortest decimal.

    Returns:
        A scalar for `threshold_set`.

    Example:
        >>> probabilities = jnp.array([[0.75, 0.125, 0.125], [0.5, 0.25, 0.25]])
        >>> print(average_k_threshold(probabilities, k=1.5))
        0.5

    Source: Garcin (2023), thesis, equations 2.29 to 2.31 and algorithm 1.
    """
    values = _checks.floating_array(probabilities, "probabilities")
    _checks.some_examples(values, "probabilities")
    num_classes = _classes.count(values, class_axis_name)
    size = _checks.mean_set_size(k, num_classes)
    num_examples = math.prod(values.shape[:-1])
    if num_examples * num_classes > jnp.iinfo(jnp.asarray(0).dtype).max:
        raise ValueError(
            "probabilities must be fewer than 2^31 in all, got "
            f"{num_examples} x {num_classes}: use AverageKCalibrator."
        )
    return _average_k_threshold(
        values.reshape(-1), math.floor(size * num_examples), class_axis_name
    )


class AverageKCalibrator:
    """`average_k_threshold` for a stream of batches, on the host, in O(k n) memory.

    Args:
        k: mean set size, a real number from 1 to L, taken as its shortest decimal.
        num_examples: the total number n of examples, at least 1.

    Example:
        >>> calibrator = AverageKCalibrator(1.5, num_examples=2)
        >>> for batch in ([[0.75, 0.125, 0.125]], [[0.5, 0.25, 0.25]]):
        ...     calibrator.update(jnp.array(batch))
        >>> print(calibrator.threshold())
        0.5

    Source: Garcin (2023), thesis, algorithm 1.
    """

    def __init__(self, k: float, num_examples: int) -> None:
        self._k = k
        self._num_examples = _checks.static_integer(num_examples, "num_examples", minimum=1)
        self._rank = math.floor(_checks.mean_set_size(k) * self._num_examples)
        self._num_classes: int | None = None
        self._num_seen = 0
        # The `rank + 1` largest so far, of which the smallest is known, and what came after them.
        self._stored: list[np.ndarray] = []
        self._smallest = np.nan

    def update(self, batch: ArrayLike) -> None:
        """Adds the probabilities of a batch, `[..., L]`, without padding and not traced."""
        _checks.concrete(batch, "batch")
        values = np.asarray(_checks.floating_array(batch, "batch"))
        num_classes = values.shape[-1]
        num_seen = self._num_seen + values.size // num_classes
        if self._num_classes is None:
            _checks.mean_set_size(self._k, num_classes)
        elif num_classes != self._num_classes:
            raise ValueError(
                f"batch must have {self._num_classes} classes, as before, got {num_classes}."
            )
        if num_seen > self._num_examples:
            raise ValueError(
                f"batch must not exceed num_examples = {self._num_examples} examples in total, "
                f"got {num_seen}."
            )
        self._num_classes, self._num_seen = num_classes, num_seen
        # A copy, because the caller may reuse the memory of the batch. NaN stays, and so does all
        # as long as the smallest is not known.
        values = values.reshape(-1)
        self._stored.append(values[~(values <= self._smallest)])
        if sum(map(len, self._stored)) > 2 * self._rank + 1:
            self._reduce()

    def threshold(self) -> jax.Array:
        """The threshold of all examples, a scalar."""
        if self._num_seen < self._num_examples:
            raise ValueError(
                f"num_examples = {self._num_examples} examples must be given before the threshold, "
                f"got {self._num_seen}."
            )
        self._reduce()
        return _average_k_threshold(jnp.asarray(self._stored[0]), self._rank)

    def _reduce(self) -> None:
        """Reduces the stored values to the `rank + 1` largest."""
        values = np.concatenate(self._stored)
        surplus = values.size - (self._rank + 1)
        if surplus >= 0:
            values = np.partition(values, surplus)[surplus:]
            self._smallest = values[0]
        self._stored = [values]


def average_error_threshold(probabilities: ArrayLike, *, error: ArrayLike) -> jax.Array:
    r"""The largest threshold whose sets miss at most `error` on average, without labels.

    .. math::
        \lambda = \max \Big\{ t :
        \frac1n \sum_i \sum_l p_l(x_i) \mathbf 1[p_l(x_i) < t] \le \varepsilon \Big\}

    It is one of the probabilities, or infinity if the sets may miss all of them.

    Args:
        probabilities: see `topk_jax.sets`.
        error: a real scalar in [0, 1), the mean probability that the sets may miss.

    Returns:
        A scalar for `threshold_set`.

    Example:
        >>> probabilities = jnp.array([[0.75, 0.125, 0.125], [0.5, 0.25, 0.25]])
        >>> print(average_error_threshold(probabilities, error=0.125))
        0.25

    Source: Garcin (2023), thesis, table 2.1, average error.
    """
    values = _checks.probabilities(probabilities, "probabilities")
    _checks.some_examples(values, "probabilities")
    error = _checks.scalar(error, "error", values.dtype, at_least=0.0, below=1.0)
    num_examples = values.size // values.shape[-1]
    rows = values.reshape(num_examples, values.shape[-1])
    return _average_error_threshold(rows, error * num_examples)


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
    rate = _checks.static_error(error)
    level = _checks.static_number(delta, "delta", above=0, below=1)
    allowed = jnp.asarray(_allowed_errors(values.size, rate, level))
    return _selective_threshold(_sharding.gather(values), _sharding.gather(right), allowed)


@partial(jax.jit, static_argnums=2)
def _average_k_threshold(
    values: jax.Array, rank: jax.Array | int, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The threshold between the `rank` largest of the values [N] and the next, if they differ."""
    # Denormal numbers are 0, as for some XLA backends: they could keep too many values.
    normal = _classes.flush(_compilation.compute_once(values))
    lower = _search.largest_threshold(
        normal, lambda kept: _classes.sum_classes(kept, class_axis_name) > rank, class_axis_name
    )
    upper = _classes.min_values(jnp.where(normal > lower, normal, jnp.inf), class_axis_name)
    midpoint = _classes.flush((lower + upper) / 2.0)
    separates = (_classes.sum_classes(normal > lower, class_axis_name) == rank) & (midpoint > lower)
    threshold = jnp.where(separates, midpoint, upper)
    threshold = jnp.where(rank >= _classes.count(values, class_axis_name), -jnp.inf, threshold)
    has_nan = _classes.any_class(jnp.isnan(values), class_axis_name)
    return jnp.where(has_nan, jnp.nan, threshold)


@jax.jit
def _average_error_threshold(values: jax.Array, allowed: jax.Array) -> jax.Array:
    """The largest t of the values [n, L], or infinity, whose smaller ones sum to at most `allowed`.

    In a fixed tree of additions, the rounded sum never decreases when more values are missed.
    """
    values = _compilation.compute_once(values)
    threshold = _search.largest_threshold(
        values,
        lambda kept: _sums.sum_of_rows_in_blocks(jnp.where(kept, 0.0, values)) <= allowed,
    )
    return jnp.where(jnp.isnan(values).any() | jnp.isnan(allowed), jnp.nan, threshold)


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
