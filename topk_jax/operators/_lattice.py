"""The counts of binned classes at any thresholds, by constant matrices.

The contribution of a point at a threshold depends only on their distance. For the thresholds of a
fixed grid, the lattice, all contributions are products with matrices that are known when the
program is traced. Other thresholds share the thresholds of the lattice as scores share points, with
as small an error. So no array has points, thresholds and examples as its axes.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax.operators import _binning, _poisson_binomial


class Sums(NamedTuple):
    """Sums over the binned classes, for a polynomial at each of the T thresholds.

    Attributes:
        log_none: the sums of log(1 - p), where p is the probability that a score at the point
            exceeds the threshold, `[T, b]`.
        powers: the sums of r^m for m = 1 .. k - 1, where r = p / (1 - p), `[k - 1, T, b]`.
    """

    log_none: jax.Array
    powers: jax.Array


def sums(k: int, weights: jax.Array, points: np.ndarray, thresholds: np.ndarray) -> Sums:
    """The sums at the lattice for binned classes with weights [b, Q].

    Cost: 2 k Q T operations per example, in matrix products.
    """
    distances, places = _distances(points, thresholds)
    above = _clipped_chances(k, distances)

    def product(factors: np.ndarray) -> jax.Array:
        matrix = _matrix(factors, places, weights.dtype).reshape(-1, len(points))
        return jnp.matmul(matrix, weights.T, precision=jax.lax.Precision.HIGHEST)

    powers = (above / (1 - above)) ** np.arange(1, k)[:, None]
    shape = (k - 1, len(thresholds), weights.shape[0])
    return Sums(product(np.log1p(-above)[None]), product(powers).reshape(shape))


def polynomial(sums: Sums, nodes: jax.Array, thresholds: np.ndarray) -> jax.Array:
    """The polynomial of the binned classes at nodes [n, b] between the thresholds: `[k, n, b]`.

    Hazard: high powers of the odds differ by orders of magnitude between neighbouring thresholds,
    so that their interpolation is far off. Choice: interpolate them nevertheless. They matter only
    where the odds are near the clip, and the polynomial is negligible there: see `num_likely`.
    Cost: 6 k reads per node.
    """
    log_none = _binning.interpolate(sums.log_none, _binning.locate(nodes, thresholds), axis=0)
    places = _binning.locate(nodes[None], thresholds)
    powers = _binning.interpolate(sums.powers, places, axis=1)
    return _poisson_binomial.polynomial_of_power_sums(log_none, powers)


def densities_without(
    polynomials: jax.Array,
    nodes: jax.Array,
    points: np.ndarray,
    thresholds: np.ndarray,
) -> jax.Array:
    """The sums over nodes [n, b] of the density at each point times P(N = k - 1): `[b, Q]`.

    N counts all classes but one at the point; `polynomials` [k, n, b] are the polynomials of all.

    Identity: division by 1 - p + p x = (1 - p)(1 + r x) leaves the coefficient
    sum_j (-r)^j e_(k-1-j) / (1 - p). Hazard: the sum alternates. Choice: use it only for events
    with at least C others that are as likely or more. By Newton's inequalities r^j e_(k-1-j) then
    shrinks by (k - j) / (C - k + j) from one j to the next, and C is at least nearly 2 k. Cost:
    2 k Q T operations per example, in a matrix product.
    """
    places = _binning.locate(nodes.T, thresholds)
    shared = _binning.sum_shares(places, len(thresholds), polynomials.transpose(2, 1, 0))
    num_examples, num_thresholds, k = shared.shape
    distances, where = _distances(points, thresholds)
    density = np.exp(-0.5 * distances**2) / math.sqrt(2 * math.pi)
    above = _clipped_chances(k, distances)
    powers = (above / (above - 1)) ** np.arange(k - 1, -1, -1)[:, None]
    matrix = _matrix(density / (1 - above) * powers, where, shared.dtype)
    return jnp.matmul(
        shared.reshape(num_examples, num_thresholds * k),
        matrix.swapaxes(0, 1).reshape(num_thresholds * k, len(points)),
        precision=jax.lax.Precision.HIGHEST,
    )


def _distances(points: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distances [D] of thresholds from points, and the place of each one among them, `[T, Q]`.

    Both are multiples of the spacing, so D is T + Q - 1.
    """
    steps = np.rint((thresholds[:, None] - points) / _binning.SPACING).astype(np.int32)
    first = steps.min()
    return np.arange(first, steps.max() + 1) * _binning.SPACING, steps - first


def _clipped_chances(k: int, distances: np.ndarray) -> np.ndarray:
    """The probabilities that scores exceed thresholds at these distances, clipped."""
    highest_odds = _poisson_binomial.highest_odds(k)
    above = np.array([_poisson_binomial.normal_above(distance) for distance in distances])
    return np.minimum(above, highest_odds / (1 + highest_odds))


def _matrix(of_distances: np.ndarray, places: np.ndarray, dtype: jnp.dtype) -> jax.Array:
    """The numbers [m, D] of the distances at the places [T, Q]: `[m, T, Q]`.

    Hazard: a program with all numbers takes megabytes in a file. Choice: it has the numbers of the
    distances, and XLA selects from them when it compiles. Cost: none when it runs.
    """
    numbers = jnp.asarray(of_distances, dtype)
    return numbers.at[:, places].get(mode="promise_in_bounds")
