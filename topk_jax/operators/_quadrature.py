"""The quadrature of the k-th largest score under noise: its units, its interval, its nodes."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax.operators import _poisson_binomial

# Scores farther from the k-th than this many times the noise count as infinitely far.
FAR = 60.0
# Probabilities below exp(-_LOG_TAIL), 1e-7, are neglected at the default number of nodes.
_LOG_TAIL = 16.0
# Thresholds at which the mean count of the binned classes is computed, in units of the noise.
COARSE = np.arange(-6.0, 6.5, 0.125)
# Of the highest power first; a minimax fit of the relative error.
_TAIL = (
    *(-3.86586034e-05, 1.56323513e-04, 1.61694363e-04, -1.31284841e-03, -1.99362403e-03),
    *(9.86879505e-03, 5.12988381e-02, 1.24570772e-01, 2.00566098e-01, 1.16722621e-01),
)


def default_nodes(k: int, num_classes: int) -> int:
    """The number of nodes for an error of 1e-4 with any scores.

    The integrand changes faster if more classes compete. The interval has at most some 12 standard
    deviations. The tests check the value to 1e-4 epsilon and the coordinates of the gradient to
    1e-4, from L = 2 to 100,000.
    """
    rank = min(k, num_classes + 1 - k)
    return math.ceil(11 + 2.2 * math.log(num_classes) + 1.5 * math.log(rank))


def in_units_of_noise(gaps: jax.Array, epsilon: jax.Array, smooth: jax.Array) -> jax.Array:
    """The gaps [..., b, L] in units of epsilon [..., b, 1], clipped.

    Hazard: without noise the quotients are infinite or NaN, and their derivatives reach entries
    that are not selected. Choice: divide by 1 and use the limit: a gap is zero or very large.
    """
    scaled = jnp.clip(gaps / jnp.where(smooth, epsilon, 1.0), -FAR, FAR)
    return jnp.where(smooth, scaled, FAR * jnp.sign(gaps))


class Bounds(NamedTuple):
    """Distances that bound the k-th largest with negligible error probability.

    Attributes:
        above: for j = k .. C, how far it is at most below the j-th largest score.
        below: for j = 1 .. k, how far it is at most above the j-th largest score.
        mean: the mean count of scores above a threshold at which the k-th largest is above it, too.
    """

    above: list[float]
    below: list[float]
    mean: float


def bounds(k: int, num_classes: int, num_nodes: int, num_highest: int, dtype: jnp.dtype) -> Bounds:
    """The bounds for the `num_highest` largest scores.

    The neglected tail is balanced with the quadrature error: for a normal both decrease
    exponentially with the number of nodes.
    """
    limit = math.log(float(jnp.finfo(dtype).eps) / 8)
    log_tail = max(-_LOG_TAIL * num_nodes / default_nodes(k, num_classes), limit)
    above = [
        _poisson_binomial.surely_above(k, size, log_tail) for size in range(k, num_highest + 1)
    ]
    below = [_poisson_binomial.surely_below(k - j, num_classes - j, log_tail) for j in range(k)]
    return Bounds(above, below, _poisson_binomial.sure_mean(k, log_tail))


def normal(gaps: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(Z > gap) and the density at the gap, for a standard normal Z."""
    return _above(gaps), _density(gaps)


@jax.custom_jvp
def _above(gaps: jax.Array) -> jax.Array:
    """P(Z > gap).

    Identity: for x >= 0, P(Z > x) / exp(-x^2 / 2) is a smooth function of 2 / (1 + 0.318 x) - 1,
    which is in (-1, 1]. Hazard: XLA's `erfc` has the polynomials of three intervals, which its
    compiler for TPUs takes as long for as for all else. Choice: one polynomial of degree 9, with a
    relative error of 6e-8 up to 8 and 2e-7 up to 14. Cost: some 5e-7 of rounding.
    """
    if gaps.dtype == jnp.float64:
        return 0.5 * jax.scipy.special.erfc(gaps * math.sqrt(0.5))
    place = 2 / (1 + 0.318 * jnp.abs(gaps)) - 1
    ratio = jnp.full_like(gaps, _TAIL[0])
    for coefficient in _TAIL[1:]:
        ratio = ratio * place + coefficient
    tail = jnp.exp(-0.5 * gaps * gaps) * ratio
    return jnp.where(gaps < 0, 1 - tail, tail)


@_above.defjvp
def _above_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return _above(*primals), -_density(*primals) * tangents[0]


def _density(gaps: jax.Array) -> jax.Array:
    return jnp.exp(-0.5 * gaps * gaps) / math.sqrt(2 * math.pi)
