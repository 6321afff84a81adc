"""Conformal risk control: a bound on the expected loss of a set, whatever the loss is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _sharding

__all__ = ["false_negative_rates", "risk_controlled_index"]


def risk_controlled_index(losses: ArrayLike, *, error: float, bound: float = 1.0) -> jax.Array:
    r"""The first of several parameters of a set whose expected loss is at most `error`.

    .. math::
        \hat\jmath = \min \Big\{ j : \frac{B + \sum_i \ell_{ij'}}{n + 1} \le \varepsilon
        \text{ for all } j' \ge j \Big\}

    Column j has the losses of the sets of parameter j, such as a threshold that falls from column
    to column. A larger set must not have a larger loss. For an example exchangeable with these, the
    expected loss of the sets of parameter :math:`\hat\jmath` is at most :math:`\varepsilon`. A
    usual loss is the part of the labels of an example that its set misses.

    Args:
        losses: floating-point losses in [0, B] of each example with each parameter, `[..., m]`.
        error: static bound of the expected loss, a real number in [0, B), interpreted as its
            shortest decimal.
        bound: static number B, the largest possible loss, positive.

    Returns:
        The index of the parameter, an integer scalar. It is m if no parameter is good enough, or if
        a loss is NaN or a traced loss is outside [0, B]. A positive sum of losses that exceeds
        the limit by at most 16 roundings, of the limit or of B, counts as equal to it.

    Raises:
        TypeError: `losses` is not floating-point, or `error` or `bound` is not a static real
            number.
        ValueError: `losses` has fewer than two axes or is empty, a concrete loss is outside [0,
            B], or `error` or `bound` is outside its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> losses = jnp.array([[1.0, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
        >>> print(sets.risk_controlled_index(losses, error=0.5))
        1

    See Also:
        `false_negative_rates`, `conformal_quantile`, `conformal_threshold`.

    Source: Angelopoulos et al. (2024), "Conformal risk control", equation 4.
    """
    values = _checks.floating_array(losses, "losses")
    if values.ndim < 2 or values.size == 0:
        raise ValueError(
            "losses must have a row for each example and a column for each parameter, got shape "
            f"{values.shape}."
        )
    largest = _checks.static_positive(bound, "bound")
    rate = _checks.static_error(error, below=largest)
    values = _checks.within(losses, values, "losses", (0.0, float(largest)))
    exact = rate * (values.size // values.shape[-1] + 1) - largest
    # Sums of thirds are rounded. Sums of losses of 0 and 1 are integers, which less than one more
    # does not change. A sum of 0 is exact.
    rounding = _numerics.rounding_to_spare(values.dtype)
    allowed = float(exact) + min(rounding * max(float(exact), float(largest)), float(largest) / 2)
    is_small = (values.sum(axis=range(values.ndim - 1)) <= allowed) & (exact >= 0)
    # Only the columns at the end that are all small count. A NaN is not small.
    from_here = jax.lax.cummin(is_small.astype(jnp.int32), reverse=True)
    return values.shape[-1] - from_here.sum()


@_class_axis.refuse_split
def false_negative_rates(
    probabilities: ArrayLike, targets: ArrayLike, *, thresholds: ArrayLike
) -> jax.Array:
    r"""The part of the labels of an example that `threshold_set` misses, by threshold.

    .. math:: \ell_j(p, Y) = \frac{|\{ y \in Y : p_y < \lambda_j \}|}{|Y|}

    These are losses for `risk_controlled_index`, for examples with several labels. The loss of an
    example without labels is 0.

    Args:
        probabilities: floating-point scores, larger for classes that fit better, `[..., L]`; of any
            range, such as the sigmoids of logits.
        targets: which classes are labels, `[..., L]`: booleans, or numbers that are 0 or 1.
        thresholds: real, `[m]`, which never grow, so that the losses do not grow either.

    Returns:
        The losses in [0, 1], `[..., m]`, in the scores' dtype (float32 or float64); NaN where a
        score is NaN or a traced target is neither 0 nor 1. All are NaN if traced thresholds grow.

    Raises:
        TypeError: `probabilities` is not floating-point, or `targets` or `thresholds` is not real.
        ValueError: the shapes do not match, a concrete target is neither 0 nor 1, or concrete
            thresholds grow or are NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores = jnp.array([[0.9, 0.6, 0.2], [0.3, 0.8, 0.7]])
        >>> targets = jnp.array([[1, 0, 1], [0, 1, 1]])
        >>> losses = sets.false_negative_rates(
        ...     scores, targets, thresholds=jnp.array([0.75, 0.5, 0.1]))
        >>> print(losses, sets.risk_controlled_index(losses, error=0.5))
        [[0.5 0.5 0. ]
         [0.5 0.  0. ]] 1

    See Also:
        `risk_controlled_index`, `threshold_set`, `label_coverage`.

    Source: Angelopoulos et al. (2024), "Conformal risk control", section 3.
    """
    values = _checks.floating_array(probabilities, "probabilities")
    labels, is_target = _checks.multi_hot(targets, "targets", values.shape)
    limits = _checks.descending(thresholds, "thresholds", values.dtype)
    valid = is_target.all(axis=-1) & ~jnp.isnan(values).any(axis=-1)
    batch_ndim = values.ndim - 1
    rates = _sharding.map_examples(
        _false_negative_rates, batch_ndim, values, labels, shared=(limits,)
    )
    return _numerics.nan_unless(valid[..., None] & ~jnp.isnan(limits).any(), rates)


def _false_negative_rates(values: jax.Array, labels: jax.Array, thresholds: jax.Array) -> jax.Array:
    """The rates of values [..., L] for thresholds [m].

    Hazard: comparing every label with every threshold takes memory for all pairs. Choice: the first
    threshold that keeps the class, and a count of labels for each. Cost: a search per class.
    """
    number = thresholds.shape[0]
    first = jnp.searchsorted(-thresholds, -values.reshape(-1, values.shape[-1]), side="left")
    rows = jnp.arange(first.shape[0])[:, None]
    kept = jnp.zeros((first.shape[0], number), jnp.int32)
    kept = kept.at[rows, first].add(labels.reshape(first.shape).astype(jnp.int32), mode="drop")
    sizes = labels.reshape(first.shape).sum(axis=-1, keepdims=True, dtype=jnp.int32)
    missed = (sizes - jnp.cumsum(kept, axis=-1)).astype(values.dtype)
    rates = missed / jnp.maximum(sizes, 1).astype(values.dtype)
    return rates.reshape(*values.shape[:-1], number)
