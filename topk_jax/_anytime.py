"""Intervals of shares that hold at all times together: one may look at any of them."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics

__all__ = ["anytime_interval"]

# The parameters of the mixture, from shares near 1 to intervals of a hundred-thousandth. Half of
# the best parameter costs a sixth of the exponent. A finer grid costs as much by its larger number
# of parameters.
_NUM_PARAMETERS = 20
_BISECTIONS = 40


def anytime_interval(
    hits: ArrayLike, counts: ArrayLike, *, level: float = 0.95
) -> tuple[jax.Array, jax.Array]:
    r"""An interval of the probability of a hit that holds after every outcome: a sequence.

    With h hits among t outcomes, the lower bound is the smallest m with

    .. math::
        \frac{1}{20} \sum_{j=1}^{20}
        \frac{e^{\lambda_j h}}{(1 - m + m e^{\lambda_j})^t} < \frac{2}{1 - \text{level}},
        \qquad \lambda_j = 2^{3 - j},

    and the upper bound is 1 minus the lower bound of the t - h others. Let :math:`\mu_t` be the
    probability of hit t, given all that came before. The probability that all means
    :math:`\frac1t \sum_{s \le t} \mu_s` are in their intervals, for t = 1, 2, …, is at least
    `level`. So the outcomes may depend on each other, their probability may drift, and one may stop
    at any time. An interval for one number of outcomes that was chosen before is about half as
    long.

    Why: for each :math:`\lambda`, :math:`\prod_s e^{\lambda x_s} / (1 - \mu_s + \mu_s e^\lambda)`
    is fair. The logarithm of the denominator is concave in :math:`\mu`, so the product with the
    mean of the :math:`\mu_s` is at most as large.

    Args:
        hits: the numbers of hits so far, integers `[...]`.
        counts: the numbers of outcomes so far, integers `[...]`.
        level: static probability that all intervals hold, in (0, 1).

    Returns:
        The lower and the upper bounds, `[...]`, in [0, 1]: 0 and 1 without outcomes, NaN where
        there are fewer than 0 hits, or more hits than outcomes.

    Raises:
        TypeError: `hits` or `counts` is not integer, or `level` is not a static real number.
        ValueError: the shapes do not match, or `level` is outside its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> hits, counts = jnp.array([9, 90, 900]), jnp.array([10, 100, 1000])
        >>> low, high = metrics.anytime_interval(hits, counts)
        >>> print((100 * low).round(), (100 * high).round())
        [37. 76. 86.] [100.  98.  93.]

    See Also:
        `cluster_interval`.

    Source: Howard et al. (2021), "Time-uniform, nonparametric, nonasymptotic confidence sequences",
    with a discrete mixture; Robbins (1970), "Statistical methods related to the law of the iterated
    logarithm".
    """
    found = _checks.integer_array(hits, "hits", jnp.shape(hits))
    total = _checks.integer_array(counts, "counts", found.shape, of=("hits", found.shape))
    share = _checks.static_positive(level, "level")
    if share >= 1:
        raise ValueError(f"level must be less than 1, got {level}.")
    # Hazard: near 1, a bound in float32 has lost the digits of its distance from 1. Choice: the
    # bounds of what is rarer, hits or other outcomes. Cost: none.
    are_rare = found <= total - found
    rarer = jnp.where(are_rare, found, total - found)
    limit = math.log(2 / float(1 - share))
    low, high = (_bound(rarer, total, limit, sign) for sign in (1, -1))
    low, high = jnp.where(are_rare, low, 1 - high), jnp.where(are_rare, high, 1 - low)
    valid = (found >= 0) & (found <= total)
    return _numerics.nan_unless(valid, low), _numerics.nan_unless(valid, high)


@partial(jax.jit, static_argnums=3)
def _bound(hits: jax.Array, counts: jax.Array, limit: jax.Array, sign: int) -> jax.Array:
    """The lower bounds for a sign of 1, the upper bounds for a sign of -1.

    Means are refuted whose evidence has a logarithm of at least `limit`.

    Identity: the exponent is t (lambda h / t - log(1 - m + m e^lambda)), and that of the other
    outcomes is the same with -lambda. Hazard: in float32 each of the two has an error of t
    roundings if they are computed apart. Choice: their difference is computed before it is
    multiplied by t; the parameters that matter are below 5 / sqrt(t), so that the error is some
    sqrt(t) roundings. Cost: none.
    """
    dtype = jnp.result_type(float)
    number = counts.astype(dtype)
    share = hits.astype(dtype) / jnp.maximum(number, 1.0)
    sizes = [sign * 2.0 ** (2 - j) for j in range(_NUM_PARAMETERS)]

    def is_refuted(mean: jax.Array) -> jax.Array:
        exponents = [number * (size * share - jnp.log1p(mean * math.expm1(size))) for size in sizes]
        evidence = jax.nn.logsumexp(jnp.stack(exponents), axis=0) - math.log(_NUM_PARAMETERS)
        return evidence >= limit

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        outer, inner = bounds
        middle = (outer + inner) / 2
        refuted = is_refuted(middle)
        return jnp.where(refuted, middle, outer), jnp.where(refuted, inner, middle)

    # Refuted values are beyond the share.
    farthest = jnp.full_like(share, 0.0 if sign > 0 else 1.0)
    outer, _ = jax.lax.fori_loop(0, _BISECTIONS, halve, (farthest, share))
    return outer
