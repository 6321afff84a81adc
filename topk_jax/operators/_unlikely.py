"""The classes that rarely have rank k: the polynomial of all of them, and their densities.

On accelerators every class is taken at every node, in a few passes that store no array of both. On
the CPU this would take twenty times as long, so the classes are binned there: each score is shared
by the points of a grid next to it, and each threshold by those of a lattice next to it, with
interpolated derivatives. The contribution of a point at a threshold depends only on their distance,
so that sums are products with matrices that are known when the program is traced.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import _classes
from topk_jax._classes import take_along
from topk_jax.operators import _poisson_binomial

# The number of points that share a score, and their distance in units of the noise. For functions
# like exp(-t z), such as the tail of the noise at t, the relative error of the interpolation is
# 0.005 (t / 12)^6: 1e-5 at t = 4.4, about the largest of 100,000 normals.
_NUM_POINTS = 6
_SPACING = 1 / 12
# A running sum in float32 loses a digit whenever it grows tenfold. So sums run over blocks of this
# many scores, and the sums of the blocks are added. It also limits the memory for the shares.
_BLOCK = 512


@dataclass(frozen=True)
class Unbinned:
    """The classes with gaps [b, L] to the k-th largest in units of the noise, for accelerators.

    If they are split along an axis, each device has its own.
    """

    gaps: jax.Array
    class_axis_name: Hashable | None

    def means(self, thresholds: np.ndarray) -> jax.Array:
        """The mean number of classes that exceed the thresholds [T]: `[b, T]`."""
        places = jnp.asarray(thresholds, self.gaps.dtype)[:, None, None]
        above, _ = _poisson_binomial.normal(places - self.gaps[None])
        return _classes.sum_classes(above, self.class_axis_name).T

    def polynomial(self, k: int, nodes: jax.Array, unroll: int) -> jax.Array:
        """The polynomial at the nodes [n, b]: `[k, n, b]`."""
        # All sums are one, because XLA would store the chances that several have in common.
        above, _ = self._chances(k, jnp.broadcast_to(nodes[None], (k, *nodes.shape)))
        log_odds = jnp.log(jnp.maximum(above / (1 - above), jnp.finfo(above.dtype).tiny))
        power = jnp.arange(k).astype(above.dtype).reshape(-1, 1, 1, 1)
        terms = jnp.where(power == 0, jnp.log1p(-above), jnp.exp(power * log_odds))
        sums = _classes.sum_classes(terms, self.class_axis_name)
        return _poisson_binomial.polynomial_of_sums(sums, unroll)

    def densities(self, total: jax.Array, nodes: jax.Array) -> jax.Array:
        """The sums over nodes [n, b] of the density of each class times P(N = k - 1): `[b, L]`.

        N counts all classes but this one; `total` [k, n, b] are the polynomials of all classes.
        """
        # Without a barrier XLA would store the chances of `polynomial`.
        nodes, total = jax.lax.optimization_barrier((nodes, total))
        above, density = self._chances(len(total), nodes)
        odds = above / (1 - above)
        without = total[0][..., None]
        for coefficient in total[1:]:
            without = coefficient[..., None] - odds * without
        return (density / (1 - above) * without).sum(axis=0)

    def _chances(self, k: int, nodes: jax.Array) -> tuple[jax.Array, jax.Array]:
        above, density = _poisson_binomial.normal(
            nodes[..., None] - self.gaps.reshape(*[1] * (nodes.ndim - 1), *self.gaps.shape)
        )
        return jnp.minimum(above, _poisson_binomial.highest_chance(k)), density


class _Places(NamedTuple):
    """The first points that share numbers, integers, and the distances from them in steps."""

    cells: jax.Array
    offsets: jax.Array


@dataclass(frozen=True)
class Binned:
    """The same for the CPU: the places of the scores [b, L] among the points of the grid [Q].

    The weights [b, Q] are the sums of the shares of each point over all devices; the lattice of
    thresholds [T] shares the nodes.
    """

    places: _Places
    weights: jax.Array
    points: np.ndarray
    thresholds: np.ndarray

    @classmethod
    def of(
        cls,
        gaps: jax.Array,
        k: int,
        num_classes: int,
        ends: tuple[float, float],
        class_axis_name: Hashable | None,
    ) -> "Binned":
        """Bins gaps [b, L], none above 0, for nodes between the ends.

        Scores below the grid are moved to its lower end. A class at z matters only if it exceeds
        one of the k largest, which are at least 0. The probability of this is at most
        k Phi(z / sqrt 2), and negligible for all classes together at the lower end.
        """
        chance = _poisson_binomial.NEGLIGIBLE / (k * num_classes)
        points = _points(math.sqrt(2) * NormalDist().inv_cdf(chance), 0)
        places = _locate(gaps, points)
        weights = _classes.sum_devices(_sum_blocks(places, len(points)), class_axis_name)
        return cls(places, weights, points, _points(*ends))

    def means(self, thresholds: np.ndarray) -> jax.Array:
        """As `Unbinned.means`."""
        above = _normals_above(thresholds - self.points[:, None])
        return self.weights @ jnp.asarray(above, self.weights.dtype)

    def polynomial(self, k: int, nodes: jax.Array, unroll: int) -> jax.Array:
        """As `Unbinned.polynomial`.

        The interpolation of high powers of the odds is far off, but they matter only where the odds
        are near the clip, and the polynomial is negligible there: see `num_likely`.
        """
        distances, where = self._distances()
        above = _clipped_chances(k, distances)
        terms = [np.log1p(-above), *((above / (1 - above)) ** power for power in range(1, k))]
        matrix = self._matrix(np.stack(terms), where).reshape(-1, len(self.points))
        sums = jnp.matmul(matrix, self.weights.T, precision=jax.lax.Precision.HIGHEST)
        sums = sums.reshape(k, len(self.thresholds), -1)
        sums = _interpolate(sums, _locate(nodes[None], self.thresholds), axis=1)
        return _poisson_binomial.polynomial_of_sums(sums, unroll)

    def densities(self, total: jax.Array, nodes: jax.Array) -> jax.Array:
        """As `Unbinned.densities`."""
        # Rounding can make interpolated probabilities near zero negative.
        return self.spread(self._densities_at_points(total, nodes))

    def spread(self, table: jax.Array) -> jax.Array:
        """The nonnegative numbers of the points [b, Q] as those of the classes, `[b, L]`."""
        return _interpolate(table, self.places)

    def _densities_at_points(self, total: jax.Array, nodes: jax.Array) -> jax.Array:
        """The densities of a class at each point, `[b, Q]`.

        Division by 1 - p + p x = (1 - p)(1 + r x) leaves sum_j (-r)^j e_(k-1-j) / (1 - p). The sum
        alternates; with at least C others that are as likely or more, its terms shrink by
        (k - j) / (C - k + j) from one j to the next (Newton's inequalities).
        """
        places = _locate(nodes.T, self.thresholds)
        shared = _sum_shares(places, len(self.thresholds), total.transpose(2, 1, 0))
        num_examples, num_thresholds, k = shared.shape
        distances, where = self._distances()
        density = np.exp(-0.5 * distances**2) / math.sqrt(2 * math.pi)
        above = _clipped_chances(k, distances)
        powers = (above / (above - 1)) ** np.arange(k - 1, -1, -1)[:, None]
        matrix = self._matrix(density / (1 - above) * powers, where).swapaxes(0, 1)
        return jnp.matmul(
            shared.reshape(num_examples, num_thresholds * k),
            matrix.reshape(num_thresholds * k, len(self.points)),
            precision=jax.lax.Precision.HIGHEST,
        )

    def _distances(self) -> tuple[np.ndarray, np.ndarray]:
        """The distances [D] of thresholds from points; the place of each among them, `[T, Q]`."""
        steps = np.rint((self.thresholds[:, None] - self.points) / _SPACING).astype(np.int32)
        first = steps.min()
        return np.arange(first, steps.max() + 1) * _SPACING, steps - first

    def _matrix(self, of_distances: np.ndarray, places: np.ndarray) -> jax.Array:
        """The numbers [m, D] of the distances at the places [T, Q]: `[m, T, Q]`.

        The program has the numbers of the distances, and XLA selects from them when it compiles:
        all of them would take megabytes in a file.
        """
        numbers = jnp.asarray(of_distances, self.weights.dtype)
        return numbers.at[:, places].get(mode="promise_in_bounds")


def _points(low: float, high: float) -> np.ndarray:
    """The points in ascending order that share the numbers from `low` to `high`."""
    # The first and the last cell need as many points on each side as the others.
    half = _NUM_POINTS // 2
    cells = np.arange(math.floor(low / _SPACING) + 1 - half, math.ceil(high / _SPACING) + half)
    return cells * _SPACING


def _locate(numbers: jax.Array, points: np.ndarray) -> _Places:
    """The places of numbers, none above the last cell; those below the first move to its end."""
    half, num_cells = _NUM_POINTS // 2, len(points) - _NUM_POINTS + 1
    first = round(points[half - 1] / _SPACING)
    position = jnp.maximum(numbers / _SPACING - first, 0.0)
    # The upper end belongs to the last cell. NaN may become any integer.
    cells = jnp.clip(jax.lax.stop_gradient(position).astype(jnp.int32), 0, num_cells - 1)
    return _Places(cells, position - cells.astype(position.dtype) + (half - 1))


def _sum_blocks(places: _Places, size: int) -> jax.Array:
    """The sums [b, size] of the shares of points, over blocks of classes."""

    def sums_of_block(start: int | jax.Array, length: int) -> jax.Array:
        def block(part: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(part, start, length, axis=-1)

        sums = _sum_shares(jax.tree.map(block, places), size)
        # Without a barrier XLA adds the shares to the sums of the other blocks one by one.
        return jax.lax.optimization_barrier(sums)

    num_blocks, left = divmod(places.cells.shape[-1], _BLOCK)
    sums = sums_of_block(num_blocks * _BLOCK, left)
    if num_blocks:
        starts = _BLOCK * jnp.arange(num_blocks, dtype=places.cells.dtype)
        sums, _ = jax.lax.scan(
            lambda sums, start: (sums + sums_of_block(start, _BLOCK), None), sums, starts
        )
    return sums


def _sum_shares(places: _Places, size: int, factors: jax.Array | None = None) -> jax.Array:
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


def _interpolate(table: jax.Array, places: _Places, axis: int = -1) -> jax.Array:
    """The values at the places of a function with values `table` at the points along `axis`."""
    # The shares are computed again in the same pass, so they are not stored.
    values = [
        _share(places.offsets, i) * take_along(table, places.cells + i, axis)
        for i in range(_NUM_POINTS)
    ]
    return sum(values[1:], values[0])


def _normals_above(distances: np.ndarray) -> np.ndarray:
    """The probabilities that scores exceed thresholds at these distances."""
    return np.vectorize(_poisson_binomial.normal_above, otypes=[float])(distances)


def _clipped_chances(k: int, distances: np.ndarray) -> np.ndarray:
    return np.minimum(_normals_above(distances), _poisson_binomial.highest_chance(k))
