"""Binning of scores on a fixed grid, so that sums over many scores become sums over few points.

Each score is shared by the points next to it. `bin_scores` computes the total share of each point,
and `interpolate` is its transpose: it maps a function's values at the points to its values at the
scores. A sum over the points therefore has interpolated derivatives in the scores. Thresholds are
shared by the points of a grid in the same way.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax._entries import take_along
from topk_jax.operators import _poisson_binomial

# The number of points that share a score, and their distance in units of the noise. Interpolation
# of degree 5 has an error of 0.005 / 12^6 max |f^(6)| = 2e-9 max |f^(6)|. For functions like
# exp(-t z), such as the tail of the noise at t, the relative error is 0.005 (t / 12)^6: 1e-5 at
# t = 4.4, about the largest of 100,000 normals, and 2e-6 at the largest of 1,000.
_NUM_POINTS = 6
SPACING = 1 / 12
# A running sum in float32 loses a digit whenever it grows tenfold. So sums run over blocks of this
# many scores, and the sums of the blocks are added. It also limits the memory for the shares.
_BLOCK = 512


class Places(NamedTuple):
    """Numbers on a grid.

    Attributes:
        cells: the index of the first point that shares each number, integers.
        offsets: the distance of each number from that point, in steps.
    """

    cells: jax.Array
    offsets: jax.Array


class BinnedScores(NamedTuple):
    """Scores [b, L] on a grid of Q points.

    Attributes:
        places: the places of the scores, `[b, L]`.
        weights: the sum of the shares of each point, `[b, Q]`.
    """

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
    """The places of numbers on a grid, none above its last cell.

    Numbers below the first cell are moved to its lower end.
    """
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
    """The sums of the shares of each of `size` points, `[b, size]`, of numbers at places [b, m].

    With factors [b, m, ...] the shares are multiplied by these: `[b, size, ...]`.
    """
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
    """The share of point i: the Lagrange polynomial that is 1 at i and 0 at the other points.

    The shares of all points add up to one.
    """
    factors = [(offsets - j) / (i - j) for j in range(_NUM_POINTS) if j != i]
    return math.prod(factors[1:], start=factors[0])


def interpolate(table: jax.Array, places: Places, axis: int = -1) -> jax.Array:
    """The values at the places of a function with values `table` at the points along `axis`.

    The other axes of the places have the sizes of the table's axes, or size 1.
    """
    # The shares are computed again in the same pass, so they are not stored.
    values = [
        _share(places.offsets, i) * take_along(table, places.cells + i, axis)
        for i in range(_NUM_POINTS)
    ]
    return sum(values[1:], values[0])
