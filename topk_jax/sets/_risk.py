"""Conformal risk control: a bound on the expected loss of a set, whatever the loss is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks

__all__ = ["risk_controlled_index"]


def risk_controlled_index(losses: ArrayLike, *, error: float, bound: float = 1.0) -> jax.Array:
    r"""The first of several parameters of a set whose expected loss is at most `error`.

    .. math::
        \hat\jmath = \min \Big\{ j : \frac{B + \sum_i \ell_{ij'}}{n + 1} \le \varepsilon
        \text{ for all } j' \ge j \Big\}

    Column j has the losses of the sets of parameter j, such as a threshold that falls from column
    to column. Larger sets have no larger loss. For an example exchangeable with these, the expected
    loss of the sets of parameter :math:`\hat\jmath` is at most :math:`\varepsilon`. A usual loss is
    the part of the labels of an example that its set misses.

    Args:
        losses: floating-point losses in [0, B] of each example with each parameter, `[n, m]`.
        error: static bound of the expected loss, a real number in [0, B), interpreted as its
            shortest decimal.
        bound: static number B, the largest possible loss, positive.

    Returns:
        The index of the parameter, an integer scalar. It is m if no parameter is good enough, or if
        a loss is NaN or a traced loss is outside [0, B].

    Raises:
        TypeError: `losses` is not floating-point, or `error` or `bound` is not a static real
            number.
        ValueError: `losses` is not of shape `[n, m]` or is empty, a concrete loss is outside [0,
            B], or `error` or `bound` is outside its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> losses = jnp.array([[1.0, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
        >>> print(sets.risk_controlled_index(losses, error=0.5))
        1

    See Also:
        `conformal_quantile`, `conformal_threshold`.

    Source: Angelopoulos et al. (2024), "Conformal risk control", equation 4.
    """
    values = _checks.floating_array(losses, "losses")
    if values.ndim != 2 or values.size == 0:
        raise ValueError(
            "losses must have a row for each example and a column for each parameter, got shape "
            f"{values.shape}."
        )
    largest = _checks.static_positive(bound, "bound")
    rate = _checks.static_error(error, below=largest)
    values = _checks.within(losses, values, "losses", (0.0, float(largest)))
    # The rank of a quantile: exact for losses of 0 and 1, whose sums are whole numbers.
    allowed = float(rate * (values.shape[0] + 1) - largest)
    is_small = values.sum(axis=0) <= allowed
    # Only the columns at the end that are all small count. A NaN is not small.
    from_here = jax.lax.cummin(is_small.astype(jnp.int32), reverse=True)
    return values.shape[1] - from_here.sum()
