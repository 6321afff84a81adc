"""Intervals of shares: of examples that come in groups, and intervals that hold at all times."""

import math
import statistics
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes
from topk_jax.metrics._tally import tally_by_class

__all__ = ["anytime_interval", "cluster_interval"]

# The parameters of the mixture of `anytime_interval`, from shares near 1 to intervals of a
# hundred-thousandth. Half of the best parameter costs a sixth of the exponent, and a finer grid as
# much by its number.
_NUM_PARAMETERS = 20
_BISECTIONS = 40


def cluster_interval(
    hits: ArrayLike,
    groups: ArrayLike,
    *,
    num_groups: int,
    level: float = 0.95,
    counted: Literal["examples", "groups"] = "examples",
    where: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    r"""A confidence interval of the share of hits, if the examples come in independent groups.

    With the hits :math:`h_g` and the size :math:`n_g` of each of the G groups:

    .. math::
        R = \frac{\sum_g h_g}{\sum_g n_g}, \qquad
        v = \frac{G}{G - 1} \frac{\sum_g (h_g - R \, n_g)^2}{(\sum_g n_g)^2}, \qquad
        m = \frac{R (1 - R)}{v} \frac{z^2}{t_{G-1}^2}

    The interval is Wilson's for m independent examples, at most as many as there are. If v is 0,
    the first factor of m is G.

    Args:
        where: see `topk_jax.metrics`.
        hits: booleans, `[...]`.
        groups: the integer group of each example, `[...]`; one outside [0, num_groups) is left out.
        num_groups: static largest number of groups.
        level: static probability that an interval has the share, in (0, 1).
        counted: what counts alike in the share. "examples" is the accuracy. "groups" is the mean of
            the shares of the groups: :math:`h_g` is divided by :math:`n_g`, which is 1 above.

    Returns:
        The two bounds, float scalars in [0, 1]: 0 and 1 with a single group, NaN without any.

    Example:
        >>> hits, groups = jnp.array([True, True, False, True]), jnp.array([0, 0, 1, 2])
        >>> low, high = cluster_interval(hits, groups, num_groups=3)
        >>> print((100 * low).round(), (100 * high).round())
        6.0 99.0

    Source: Korn and Graubard (1998), "Confidence intervals for proportions with small expected
    number of positive counts"; Cochran (1977), "Sampling techniques", section 9A, for v.
    """
    values = _checks.boolean_array(hits, "hits")
    of_examples = _checks.integer_array(groups, "groups", values.shape)
    num_groups = _checks.static_integer(num_groups, "num_groups", minimum=1)
    share = float(_checks.static_number(level, "level", above=0, below=1))
    unit = _checks.choice(counted, "counted", ("examples", "groups"))
    if where is not None:
        where = _checks.boolean_array(where, "where", values.shape)
    normal = statistics.NormalDist().inv_cdf(0.5 + share / 2)
    return _cluster_interval(num_groups, unit, values, of_examples, where, normal)


def anytime_interval(
    hits: ArrayLike, counts: ArrayLike, *, level: float = 0.95
) -> tuple[jax.Array, jax.Array]:
    r"""An interval of the probability of a hit that holds after every outcome: a sequence.

    With h hits among t outcomes, the lower bound is the smallest m with

    .. math::
        \frac{1}{20} \sum_{j=1}^{20}
        \frac{e^{\lambda_j h}}{(1 - m + m e^{\lambda_j})^t} < \frac{2}{1 - \text{level}},
        \qquad \lambda_j = 2^{3 - j},

    and the upper bound is 1 minus the lower bound of the t - h others. With a probability of
    `level`, the means of the probabilities of the first t hits, each given what came before, are
    in their intervals for all t. So outcomes may depend on each other, their probability may drift,
    and one may stop at any time.

    Args:
        hits: the numbers of hits so far, integers `[...]`.
        counts: the numbers of outcomes so far, integers `[...]`.
        level: static probability that all intervals hold, in (0, 1).

    Returns:
        The lower and the upper bounds, `[...]`, in [0, 1]: 0 and 1 without outcomes, NaN where
        there are fewer than 0 hits, or more hits than outcomes.

    Example:
        >>> low, high = anytime_interval(jnp.array([9, 900]), jnp.array([10, 1000]))
        >>> print((100 * low).round(), (100 * high).round())
        [37. 86.] [100.  93.]

    Source: Howard et al. (2021), "Time-uniform, nonparametric, nonasymptotic confidence sequences".
    """
    found = _checks.integer_array(hits, "hits")
    total = _checks.integer_array(counts, "counts", found.shape, of=("hits", found.shape))
    # Of what is rarer, hits or other outcomes: float32 has few digits of a distance from 1.
    are_rare = found <= total - found
    rarer = jnp.where(are_rare, found, total - found)
    share = float(_checks.static_number(level, "level", above=0, below=1))
    limit = math.log(2 / (1 - share))
    low, high = (_bound(rarer, total, limit, sign) for sign in (1, -1))
    low, high = jnp.where(are_rare, low, 1 - high), jnp.where(are_rare, high, 1 - low)
    valid = (found >= 0) & (found <= total)
    return _classes.nan_unless(valid, low), _classes.nan_unless(valid, high)


@partial(jax.jit, static_argnums=(0, 1))
def _cluster_interval(
    num_groups: int,
    unit: str,
    hits: jax.Array,
    groups: jax.Array,
    where: jax.Array | None,
    normal: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    by_group, dtype = tally_by_class(hits, groups, num_classes=num_groups, where=where), float
    num_hits, sizes = by_group.total.astype(dtype), by_group.count.astype(dtype)
    number, is_group, z = sizes.sum(), sizes > 0, normal.astype(dtype)
    if unit == "groups":
        num_hits, sizes = num_hits / jnp.maximum(sizes, 1), jnp.minimum(sizes, 1)
    present = is_group.sum().astype(dtype)
    total = jnp.maximum(sizes.sum(), 1)
    share = num_hits.sum() / total
    residuals = num_hits - share * sizes
    correction = present / jnp.maximum(present - 1.0, 1.0)
    # Rounded residuals are not 0 if all groups have one share; their quotients are rounded alike.
    shares = num_hits / jnp.maximum(sizes, 1)
    are_alike = shares.max(where=is_group, initial=0) <= shares.min(where=is_group, initial=1)
    variance = jnp.where(are_alike, 0, correction * (residuals**2).sum() / total**2)
    spread = share * (1.0 - share)
    scale = (z / _student(z, jnp.maximum(present - 1.0, 1.0))) ** 2
    # Without variance, each group counts as one example.
    as_many = jnp.where(variance > 0.0, spread / jnp.where(variance > 0.0, variance, 1.0), present)
    effective = jnp.maximum(jnp.minimum(scale * as_many, number), float(jnp.finfo(z.dtype).tiny))
    ratio = z**2 / effective
    middle = share + ratio / 2
    half = jnp.sqrt(ratio * spread + ratio**2 / 4)
    bounds = (middle - half) / (1.0 + ratio), (middle + half) / (1.0 + ratio)
    low, high = (jnp.clip(bound, 0.0, 1.0) for bound in bounds)
    low, high = jnp.where(present > 1.0, low, 0.0), jnp.where(present > 1.0, high, 1.0)
    return jnp.where(present > 0.0, low, jnp.nan), jnp.where(present > 0.0, high, jnp.nan)


def _student(z: jax.Array, freedom: jax.Array) -> jax.Array:
    """The quantile of Student's distribution, from the normal one: Abramowitz and Stegun, 26.7.5.

    It is exact with 1 and 2 degrees of freedom, and within a hundredth with 3 at the level 0.95.
    """
    # Rounding may make it 1, for which there is no quantile.
    level = jnp.minimum(jax.lax.erf(z / 2**0.5), 1 - float(jnp.finfo(z.dtype).epsneg))
    of_one = jnp.tan(jnp.pi / 2 * level)
    of_two = level * jnp.sqrt(2 / (1 - level**2))
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    series = z + (first + (second + third / freedom) / freedom) / freedom
    return jnp.select([freedom == 1, freedom == 2], [of_one, of_two], series)


@partial(jax.jit, static_argnums=3)
def _bound(hits: jax.Array, counts: jax.Array, limit: jax.Array, sign: int) -> jax.Array:
    """The lower bounds for a sign of 1, the upper bounds for -1: where evidence reaches the limit.

    The exponent is t (lambda h / t - log(1 - m + m e^lambda)). Its two parts apart would have an
    error of t roundings in float32; their difference has some sqrt(t).
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
