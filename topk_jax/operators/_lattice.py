"""Scores on a fixed grid, and their counts at any thresholds, by constant matrices.

Each score is shared by the points next to it, and each threshold by those of a lattice next to it,
so that a sum over many scores becomes one over few points, with interpolated derivatives. The
contribution of a point at a threshold depends only on their distance. So all contributions are
products with matrices that are known when the program is traced, and no array has points,
thresholds and examples as its axes. On the CPU this takes a twentieth of the time of all classes at
all nodes.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax._entries import take_along
from topk_jax.operators import _poisson_binomial

# The number of points that share a score, and their distance in units of the noise. For functions
# like exp(-t z), such as the tail of the noise at t, the relative error of the interpolation is
# 0.005 (t / 12)^6: 1e-5 at t = 4.4, about the largest of 100,000 normals.
_NUM_POINTS = 6
SPACING = 1 / 12
# A running sum in float32 loses a digit whenever it grows tenfold. So sums run over blocks of this
# many scores, and the sums of the blocks are added. It also limits the memory for the shares.
_BLOCK = 512


class Places(NamedTuple):
    """The first points that share numbers, integers, and the distances from them in steps."""

    cells: jax.Array
    offsets: jax.Array


class BinnedScores(NamedTuple):
    """The places [b, L] of scores, and the sums [b, Q] of the shares of points."""

    places: Places
    weights: jax.Array


def grid(k: int, num_classes: int) -> np.ndarray:
    """The points in ascending order, for scores in units of the noise; 0 is the k-th largest.

    The binned scores are at most 0. Scores below the grid are moved to its lower end. A class at z
    matters only if it exceeds one of the k largest, which are at least 0. The probability of this
    is at most k Phi(z / sqrt 2), and negligible for all classes together at the lower end.
    """
    chance = _poisson_binomial.NEGLIGIBLE / (k * num_classes)
    num_cells = math.ceil(-math.sqrt(2) * NormalDist().inv_cdf(chance) / SPACING)
    return _points(-num_cells, 0)


def grid_around(low: float, high: float) -> np.ndarray:
    """The points in ascending order that share the numbers from `low` to `high`."""
    return _points(math.floor(low / SPACING), math.ceil(high / SPACING))


def _points(first: int, last: int) -> np.ndarray:
    """The points of the cells between two multiples of the spacing."""
    # The first and the last cell need as many points on each side as the others.
    half = _NUM_POINTS // 2
    return np.arange(first + 1 - half, last + half) * SPACING


def locate(numbers: jax.Array, points: np.ndarray) -> Places:
    """The places of numbers, none above the last cell; those below the first move to its end."""
    half, num_cells = _NUM_POINTS // 2, len(points) - _NUM_POINTS + 1
    first = round(points[half - 1] / SPACING)
    position = jnp.maximum(numbers / SPACING - first, 0.0)
    # The upper end belongs to the last cell. NaN may become any integer.
    cells = jnp.clip(jax.lax.stop_gradient(position).astype(jnp.int32), 0, num_cells - 1)
    return Places(cells, position - cells.astype(position.dtype) + (half - 1))


def bin_scores(scores: jax.Array, points: np.ndarray) -> BinnedScores:
    """Bins scores [b, L], none above 0, on the grid."""
    places = locate(scores, points)

    def sums_of_block(start: int | jax.Array, size: int) -> jax.Array:
        def block(part: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(part, start, size, axis=-1)

        sums = sum_shares(jax.tree.map(block, places), len(points))
        # Without a barrier XLA adds the shares to the sums of the other blocks one by one.
        return jax.lax.optimization_barrier(sums)

    num_blocks, left = divmod(scores.shape[-1], _BLOCK)
    sums = sums_of_block(num_blocks * _BLOCK, left)
    if num_blocks:
        starts = _BLOCK * jnp.arange(num_blocks, dtype=places.cells.dtype)
        sums, _ = jax.lax.scan(
            lambda sums, start: (sums + sums_of_block(start, _BLOCK), None), sums, starts
        )
    return BinnedScores(places, sums)


def sum_shares(places: Places, size: int, factors: jax.Array | None = None) -> jax.Array:
    """The sums [b, size, ...] of the shares of points, times factors [b, m, ...] if given."""
    shares = jnp.stack([_share(places.offsets, i) for i in range(_NUM_POINTS)], axis=-1)
    if factors is not None:
        shape = (*shares.shape, *[1] * (factors.ndim - 2))
        shares = shares.reshape(shape) * jnp.expand_dims(factors, 2)
    # One update for the points next to a number instead of one for each point.
    window = jax.lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, shares.ndim - 1)),
        inserted_window_dims=(),
        scatter_dims_to_operand_dims=(0,),
    )

    def of_example(zeros: jax.Array, cells: jax.Array, shares: jax.Array) -> jax.Array:
        return jax.lax.scatter_add(zeros, cells[:, None], shares, window, mode="promise_in_bounds")

    # Under shard_map the zeros need the type of the shares.
    zeros = jnp.zeros((shares.shape[0], size, *shares.shape[3:]), shares.dtype)
    zeros += jnp.zeros_like(shares[:, :0, 0].sum(axis=1, keepdims=True))
    return jax.vmap(of_example)(zeros, places.cells, shares)


def _share(offsets: jax.Array, i: int) -> jax.Array:
    """The share of point i: the Lagrange polynomial that is 1 at i and 0 at the other points."""
    factors = [(offsets - j) / (i - j) for j in range(_NUM_POINTS) if j != i]
    return math.prod(factors[1:], start=factors[0])


def interpolate(table: jax.Array, places: Places, axis: int = -1) -> jax.Array:
    """The values at the places of a function with values `table` at the points along `axis`."""
    # The shares are computed again in the same pass, so they are not stored.
    values = [
        _share(places.offsets, i) * take_along(table, places.cells + i, axis)
        for i in range(_NUM_POINTS)
    ]
    return sum(values[1:], values[0])


class Sums(NamedTuple):
    """Sums over the binned classes at T thresholds, which these exceed with probabilities p.

    They are those of log(1 - p), `[T, b]`, and of (p / (1 - p))^m for m < k, `[k - 1, T, b]`.
    """

    log_none: jax.Array
    powers: jax.Array


def sums(k: int, weights: jax.Array, points: np.ndarray, thresholds: np.ndarray) -> Sums:
    """The sums at the lattice for binned classes with weights [b, Q]."""
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

    The interpolation of high powers of the odds is far off, but they matter only where the odds are
    near the clip, and the polynomial is negligible there: see `num_likely`.
    """
    log_none = interpolate(sums.log_none, locate(nodes, thresholds), axis=0)
    places = locate(nodes[None], thresholds)
    powers = interpolate(sums.powers, places, axis=1)
    return _poisson_binomial.polynomial_of_power_sums(log_none, powers)


def densities_without(
    polynomials: jax.Array,
    nodes: jax.Array,
    points: np.ndarray,
    thresholds: np.ndarray,
) -> jax.Array:
    """The sums over nodes [n, b] of the density at each point times P(N = k - 1): `[b, Q]`.

    N counts all classes but one at the point; `polynomials` [k, n, b] are the polynomials of all.

    Division by 1 - p + p x = (1 - p)(1 + r x) leaves sum_j (-r)^j e_(k-1-j) / (1 - p). The sum
    alternates; with at least C others that are as likely or more, its terms shrink by
    (k - j) / (C - k + j) from one j to the next (Newton's inequalities).
    """
    places = locate(nodes.T, thresholds)
    shared = sum_shares(places, len(thresholds), polynomials.transpose(2, 1, 0))
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
    """The distances [D] of thresholds from points, and the place of each among them, `[T, Q]`."""
    steps = np.rint((thresholds[:, None] - points) / SPACING).astype(np.int32)
    first = steps.min()
    return np.arange(first, steps.max() + 1) * SPACING, steps - first


def _clipped_chances(k: int, distances: np.ndarray) -> np.ndarray:
    """The probabilities that scores exceed thresholds at these distances, clipped."""
    highest_odds = _poisson_binomial.highest_odds(k)
    above = np.array([_poisson_binomial.normal_above(distance) for distance in distances])
    return np.minimum(above, highest_odds / (1 + highest_odds))


def _matrix(of_distances: np.ndarray, places: np.ndarray, dtype: jnp.dtype) -> jax.Array:
    """The numbers [m, D] of the distances at the places [T, Q]: `[m, T, Q]`.

    The program has the numbers of the distances, and XLA selects from them when it compiles: all of
    them would take megabytes in a file.
    """
    numbers = jnp.asarray(of_distances, dtype)
    return numbers.at[:, places].get(mode="promise_in_bounds")
