"""Binning of scores on a fixed grid, so that sums over many scores become sums over few points.

Each score is shared by the points next to it. `bin_scores` computes the total share of each point,
and `interpolate` is its transpose: it maps a function's values at the points to its values at the
scores. A sum over the points therefore has interpolated derivatives in the scores.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax.operators import _poisson_binomial

# The number of points that share a score, and their distance in units of the noise. Interpolation
# of degree 5 has an error of 0.005 / 12^6 max |f^(6)| = 2e-9 max |f^(6)|. For functions like
# exp(-t z), such as the tail of the noise at t, the relative error is 0.005 (t / 12)^6: 1e-5 at
# t = 4.4, about the largest of 100,000 normals, and 2e-6 at the largest of 1,000.
_NUM_POINTS = 6
_SPACING = 1 / 12
# A running sum in float32 loses a digit whenever it grows tenfold. So sums run over blocks of this
# many scores, and the sums of the blocks are added. It also limits the memory for the shares.
_BLOCK = 512


class BinnedScores(NamedTuple):
    """Scores [b, L] on a grid of Q points.

    Attributes:
        cells: the index of the first point that shares each score, integers `[b, L]`.
        offsets: the distance of each score from that point, in steps, `[b, L]`.
        weights: the sum of the shares of each point, `[b, Q]`.
    """

    cells: jax.Array
    offsets: jax.Array
    weights: jax.Array


def grid(k: int, num_classes: int) -> np.ndarray:
    """The points in ascending order, for scores in units of the noise; 0 is the k-th largest.

    The binned scores are at most 0. Scores below the grid are moved to its lower end. A class at z
    matters only if it exceeds one of the k largest, which are at least 0. The probability of this
    is at most k Phi(z / sqrt 2), and negligible for all classes together at the lower end.
    """
    chance = _poisson_binomial.NEGLIGIBLE / (k * num_classes)
    num_cells = math.ceil(-math.sqrt(2) * NormalDist().inv_cdf(chance) / _SPACING)
    # The first and the last cell need as many points on each side as the others.
    half = _NUM_POINTS // 2
    return np.arange(1 - half - num_cells, half) * _SPACING


def bin_scores(scores: jax.Array, points: np.ndarray) -> BinnedScores:
    """Bins scores [b, L], none above 0, on the grid."""
    num_examples, num_classes = scores.shape
    num_cells = len(points) - _NUM_POINTS + 1
    position = jnp.maximum(scores / _SPACING + num_cells, 0.0)
    # A score of 0 is at the end of the last cell. NaN may become any integer.
    cells = jnp.clip(jax.lax.stop_gradient(position).astype(jnp.int32), 0, num_cells - 1)
    offsets = position - cells.astype(position.dtype) + (_NUM_POINTS // 2 - 1)
    rows = jnp.arange(num_examples, dtype=cells.dtype)[:, None]
    # Under shard_map the zeros need the type of the scores.
    zeros = jnp.zeros((num_examples, num_cells, _NUM_POINTS), scores.dtype)
    zeros += jnp.zeros_like(scores[:, :1, None])

    def sums_of_block(start: int | jax.Array, size: int) -> jax.Array:
        cells_of_block = jax.lax.dynamic_slice_in_dim(cells, start, size, axis=-1)
        offsets_of_block = jax.lax.dynamic_slice_in_dim(offsets, start, size, axis=-1)
        shares = [_share(offsets_of_block, i) for i in range(_NUM_POINTS)]
        # One update of six numbers per score instead of six updates.
        sums = zeros.at[rows, cells_of_block].add(
            jnp.stack(shares, axis=-1), mode="promise_in_bounds"
        )
        # Without a barrier XLA adds the shares to the sums of the other blocks one by one.
        return jax.lax.optimization_barrier(sums)

    num_blocks, left = divmod(num_classes, _BLOCK)
    sums = sums_of_block(num_blocks * _BLOCK, left)
    if num_blocks:
        starts = _BLOCK * jnp.arange(num_blocks, dtype=cells.dtype)
        sums, _ = jax.lax.scan(
            lambda sums, start: (sums + sums_of_block(start, _BLOCK), None), sums, starts
        )
    padded = [jnp.pad(sums[..., i], ((0, 0), (i, _NUM_POINTS - 1 - i))) for i in range(_NUM_POINTS)]
    return BinnedScores(cells, offsets, sum(padded[1:], padded[0]))


def _share(offsets: jax.Array, i: int) -> jax.Array:
    """The share of point i: the Lagrange polynomial that is 1 at i and 0 at the other points.

    The shares of all points add up to one.
    """
    factors = [(offsets - j) / (i - j) for j in range(_NUM_POINTS) if j != i]
    return math.prod(factors[1:], start=factors[0])


def interpolate(table: jax.Array, binned: BinnedScores) -> jax.Array:
    """The values at the scores, [b, L], of a function with values `table` [b, Q] at the points."""
    # The shares are computed again in the same pass, so they are not stored.
    values = [
        _share(binned.offsets, i)
        * jnp.take_along_axis(table, binned.cells + i, axis=-1, mode="promise_in_bounds")
        for i in range(_NUM_POINTS)
    ]
    return sum(values[1:], values[0])
