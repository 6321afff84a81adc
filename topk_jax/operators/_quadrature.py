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
    above = 0.5 * jax.scipy.special.erfc(gaps * math.sqrt(0.5))
    return above, jnp.exp(-0.5 * gaps * gaps) / math.sqrt(2 * math.pi)
