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

# How many points about a score share it, and their distance in units of the noise. Polynomials of
# degree 5 are exact to 0.005 / 12^6 max |f^(6)| = 2e-9 max |f^(6)|, and for what bends like
# exp(-t z), as the noise's tail does at t, to 0.005 (t / 12)^6 relative to it: 1e-5 at t = 4.4,
# about where the largest of 100,000 normals is, and 2e-6 at that of 1,000.
_NUM_POINTS = 6
_SPACING = 1 / 12
# A float32 that counts one score after another loses a digit every ten. So no sum is longer than
# this before the sums are summed up; and no more shares than of so many scores are held at once.
_BLOCK = 512


class BinnedScores(NamedTuple):
    """Where scores [b, L] lie on a grid of Q points.

    Attributes:
        cells: the first of the points that share each score, integers `[b, L]`.
        offsets: how far from the first of the points the score is, in steps, `[b, L]`.
        weights: the sum of the shares of each point, `[b, Q]`.
    """

    cells: jax.Array
    offsets: jax.Array
    weights: jax.Array


def grid(k: int, num_classes: int) -> np.ndarray:
    """The points, ascending, for scores of at most 0 in units of the noise; 0 is the k-th largest.

    What is below the grid counts as its lower end. For a class at z to have any part in the k-th
    largest, it must exceed one of the k largest, which are at least 0: a chance of at most
    k Phi(z / sqrt 2). At the lower end this is negligible for all classes together.
    """
    chance = _poisson_binomial.NEGLIGIBLE / (k * num_classes)
    num_cells = math.ceil(-math.sqrt(2) * NormalDist().inv_cdf(chance) / _SPACING)
    # As many points on either side of the first and the last cell as on either side of the others.
    half = _NUM_POINTS // 2
    return np.arange(1 - half - num_cells, half) * _SPACING


def bin_scores(scores: jax.Array, points: np.ndarray) -> BinnedScores:
    """The scores [b, L], none above 0, on the grid."""
    num_examples, num_classes = scores.shape
    num_cells = len(points) - _NUM_POINTS + 1
    position = jnp.maximum(scores / _SPACING + num_cells, 0.0)
    # The score of 0 is at the end of the last cell; NaN may become any integer.
    cells = jnp.clip(jax.lax.stop_gradient(position).astype(jnp.int32), 0, num_cells - 1)
    offsets = position - cells.astype(position.dtype) + (_NUM_POINTS // 2 - 1)
    rows = jnp.arange(num_examples, dtype=cells.dtype)[:, None]
    # Of the type of the scores under shard_map.
    zeros = jnp.zeros((num_examples, num_cells, _NUM_POINTS), scores.dtype)
    zeros += jnp.zeros_like(scores[:, :1, None])

    def sums_of_block(start: int | jax.Array, size: int) -> jax.Array:
        cells_of_block = jax.lax.dynamic_slice_in_dim(cells, start, size, axis=-1)
        offsets_of_block = jax.lax.dynamic_slice_in_dim(offsets, start, size, axis=-1)
        shares = [_share(offsets_of_block, i) for i in range(_NUM_POINTS)]
        # One update of six numbers a score, rather than six updates.
        sums = zeros.at[rows, cells_of_block].add(
            jnp.stack(shares, axis=-1), mode="promise_in_bounds"
        )
        # XLA would add them to the sums of the other blocks one by one.
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
    """The share of point i: the polynomial that is 1 there and 0 at the others (Lagrange).

    The shares of all points add up to one.
    """
    factors = [(offsets - j) / (i - j) for j in range(_NUM_POINTS) if j != i]
    return math.prod(factors[1:], start=factors[0])


def interpolate(table: jax.Array, binned: BinnedScores) -> jax.Array:
    """A function of a score, known at the points [b, Q], at the scores [b, L]."""
    # The shares again: computed in the same pass, they need not be kept.
    values = [
        _share(binned.offsets, i)
        * jnp.take_along_axis(table, binned.cells + i, axis=-1, mode="promise_in_bounds")
        for i in range(_NUM_POINTS)
    ]
    return sum(values[1:], values[0])
