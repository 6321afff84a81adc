"""The expected k-th largest score under Gaussian noise, computed without samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _numerics, _platforms, _selection, _sharding
from topk_jax._compilation import compiled
from topk_jax.operators import (
    _binning,
    _contour,
    _expected_at_once,
    _lattice,
    _poisson_binomial,
    _quadrature,
)
from topk_jax.operators._top_k import move_classes_last, select_largest_of_split

__all__ = ["expected_top_k_value"]

# On a TPU the number of nodes is a multiple of this.
_NODES_TOGETHER = 8
# All nodes are computed at once if their largest arrays fit in this many bytes, else one at a time.
_BYTES_AT_ONCE = 1 << 26
# Measured on two CPU cores: above it the computation on a circle is faster.
_HIGHEST_MULTIPLIED_RANK = 32


def expected_top_k_value(
    scores: ArrayLike,
    k: int,
    *,
    epsilon: ArrayLike,
    num_nodes: int | None = None,
    axis: int = -1,
) -> jax.Array:
    r"""The k-th largest score, in expectation over Gaussian perturbations of the scores.

    .. math::
        \tau_{k,\varepsilon}(s) = \mathbb E\bigl[(s + \varepsilon Z)_{[k]}\bigr], \qquad
        \frac{\partial \tau_{k,\varepsilon}}{\partial s_l}
        = P\bigl(s_l + \varepsilon Z_l = (s + \varepsilon Z)_{[k]}\bigr), \qquad
        Z \sim \mathcal N(0, I_L)

    This is the expectation of `perturbed_top_k_value`, without its variance. The value and the
    gradient are one-dimensional integrals. At the default number of nodes, and for up to 100,000
    classes, their errors are at most 1e-4 epsilon and 1e-4. The gradient is positive and adds up to
    one. Forward mode and second derivatives are supported.

    Args:
        scores: floating-point array with L entries along `axis`.
        k: static rank, from 1 (the largest) to L. Time and memory grow linearly in L and with the
            square of min(k, L + 1 - k).
        epsilon: scalar standard deviation of the noise, in the units of the scores, at least 0;
            0 gives `top_k_value`. May be traced, and has a gradient.
        num_nodes: static number of nodes of the quadrature, at least 1; chosen from L and k if
            `None`. Doubling the number of nodes squares the error. With more than about 4 k + 20
            classes, all but the most likely classes are binned, which leaves an error of about
            2e-6.
        axis: the axis of the classes.

    Returns:
        The scores' shape without `axis`, in float32 or float64; NaN where a score is NaN or +inf. A
        score of -inf never has rank k. If fewer than k other scores are left, the value is -inf and
        its gradient 0.

    Raises:
        TypeError: `scores` is not floating-point, or `k`, `num_nodes` or `axis` is not a static
            integer.
        ValueError: an argument is outside its range, or `scores` has no such axis.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import operators
        >>> def smoothed(scores):
        ...     return operators.expected_top_k_value(scores, 2, epsilon=0.5)
        >>> value, gradient = jax.value_and_grad(smoothed)(jnp.array([2.4, 2.6, 2.3, 0.5]))
        >>> print(f"{value:.3f}", *(f"{chance:.3f}" for chance in gradient))
        2.432 0.356 0.314 0.329 0.001

    See Also:
        `perturbed_top_k_value`, `top_k_value`.

    Source: Garcin et al. (2022); thesis, definitions 4.3.2 and 4.3.4 and equation 4.8. The thesis
    estimates them.
    """
    last = move_classes_last(scores, axis)
    num_classes = last.shape[-1]
    k = _checks.rank(k, num_classes)
    epsilon, num_nodes = check_expectation(k, num_classes, epsilon, num_nodes, last.dtype)
    return compute_expected_top_k_value(last, k, epsilon, num_nodes)


def check_expectation(
    k: int, num_classes: int, epsilon: ArrayLike, num_nodes: int | None, dtype: jnp.dtype
) -> tuple[jax.Array, int]:
    """The standard deviation of the noise and the number of nodes for a checked rank, or raises."""
    epsilon = _checks.scalar(epsilon, "epsilon", dtype, at_least=0)
    if num_nodes is None:
        return epsilon, _quadrature.default_nodes(k, num_classes)
    return epsilon, _checks.static_integer(num_nodes, "num_nodes", minimum=1)


def compute_expected_top_k_value(
    last: jax.Array, k: int, epsilon: jax.Array, num_nodes: int
) -> jax.Array:
    """`expected_top_k_value` of checked scores [..., L]."""
    return compute_expected_mean(last, (k,), epsilon, (num_nodes,))


@compiled
def compute_expected_mean(
    last: jax.Array,
    ranks: tuple[int, ...],
    epsilon: jax.Array,
    num_nodes: tuple[int, ...],
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """The mean of `expected_top_k_value` over ranks with their numbers of nodes.

    The classes of the checked scores [..., L] may be split over devices. The mean is -inf if a rank
    has no score.

    Communication: each device sends its most likely classes, and one number for each point of the
    grid of `_binning`. If most classes are likely, it sends its scores instead.
    """
    num_classes, highest = _classes.count(last, class_axis_name), max(ranks)
    if class_axis_name is not None and not (
        2 * highest <= num_classes and _is_binned(highest, num_classes)
    ):
        last, class_axis_name = _classes.gather(last, class_axis_name), None
    rows = _numerics.finite_scores(last)
    rows = _numerics.nan_where_invalid_vectors(rows, last, class_axis_name)
    of_batch = functools.partial(_of_batch, ranks, num_nodes, class_axis_name)
    values = _sharding.map_examples(of_batch, last.ndim - 1, rows, shared=(epsilon,))
    too_few = _classes.sum_classes(last == -jnp.inf, class_axis_name) > num_classes - highest
    # Masked classes beside a NaN do not hide it.
    return jnp.where(too_few & ~jnp.isnan(values), -jnp.inf, values)


def _of_batch(
    ranks: tuple[int, ...],
    num_nodes: tuple[int, ...],
    class_axis_name: Hashable | None,
    scores: jax.Array,
    epsilon: jax.Array,
) -> jax.Array:
    """The means over the ranks of the expected scores, of scores [..., L], `[...]`."""
    num_classes = _classes.count(scores, class_axis_name)
    rows = scores.reshape(-1, scores.shape[-1])
    # One number per example, because the custom rule needs the result's type under shard_map.
    of_row = rows[:, 0] if class_axis_name is None else _classes.max_classes(rows, class_axis_name)
    epsilon_rows = epsilon + jnp.zeros_like(of_row)
    # Identity: the k-th largest score is minus the (L + 1 - k)-th largest of the negated scores.
    # The work grows with the rank, so use the smaller of the two. The scores are reversed, so that
    # without noise equal scores rank as in `top_k_value`.
    pairs = list(zip(ranks, num_nodes, strict=True))
    low = [pair for pair in pairs if 2 * pair[0] <= num_classes + 1]
    high = [(num_classes + 1 - k, nodes) for k, nodes in pairs if 2 * k > num_classes + 1]
    sums = []
    if low:
        sums.append(_expected(*_parts(low), class_axis_name, rows, epsilon_rows))
    if high:
        sums.append(-_expected(*_parts(high), None, -rows[:, ::-1], epsilon_rows))
    values = sum(sums[1:], start=sums[0]) / len(ranks)
    return values.reshape(scores.shape[:-1])


def _parts(pairs: list[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks and the numbers of nodes of pairs."""
    return tuple(k for k, _ in pairs), tuple(nodes for _, nodes in pairs)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _expected(
    ranks: tuple[int, ...],
    num_nodes: tuple[int, ...],
    class_axis_name: Hashable | None,
    scores: jax.Array,
    epsilon: jax.Array,
) -> jax.Array:
    """The expected scores of some ranks, added up, of scores [b, L] for epsilon [b].

    The custom rule reuses the computation of the value for the gradient. JAX can differentiate it
    again.
    """
    return _value_and_slopes(ranks, num_nodes, class_axis_name, scores, epsilon)[0]


@_expected.defjvp
def _expected_jvp(
    ranks: tuple[int, ...],
    num_nodes: tuple[int, ...],
    class_axis_name: Hashable | None,
    primals: tuple[jax.Array, jax.Array],
    tangents: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    value, gradient, slope = _value_and_slopes(ranks, num_nodes, class_axis_name, *primals)
    return value, _classes.sum_classes(gradient * tangents[0], class_axis_name) + slope * tangents[
        1
    ]


def _value_and_slopes(
    ranks: tuple[int, ...],
    num_nodes: tuple[int, ...],
    class_axis_name: Hashable | None,
    scores: jax.Array,
    epsilon: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The sum of the values [b], its gradient in the scores [b, L] and derivative in epsilon [b].

    On accelerators all ranks that do not use a contour are computed together.
    """
    pairs = list(zip(ranks, num_nodes, strict=True))
    together = [pair for pair in pairs if not _by_contour(pair[0])]

    def add(found: Sequence[tuple[jax.Array, ...]]) -> tuple[jax.Array, ...]:
        return functools.reduce(lambda one, other: jax.tree.map(jnp.add, one, other), found)

    def one_by_one(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return add([_of_rank(*pair, class_axis_name, *arrays) for pair in pairs])

    def at_once(nodes: int, unrolled: int | None, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        low, _ = _parts(together)
        found = [_expected_at_once.sums_of_ranks(low, nodes, class_axis_name, unrolled, *arrays)]
        found += [
            _of_rank(*pair, class_axis_name, *arrays) for pair in pairs if pair not in together
        ]
        return add(found)

    def on_accelerators(*arrays: jax.Array) -> Any:
        # Hazard: for a prime number of nodes XLA on TPUs compiles for twice as long.
        most = max(nodes for _, nodes in together)
        more = _NODES_TOGETHER * math.ceil(most / _NODES_TOGETHER)
        return _platforms.choose_accelerator(
            *arrays,
            cuda=functools.partial(at_once, most, None),
            default=functools.partial(at_once, more, _expected_at_once.MOST_UNROLLED),
        )

    # With an empty batch, `jnp.where` returns a constant, whose type differs under `shard_map`.
    has_some = bool(together) and 0 not in scores.shape
    value, gradient, slope = _platforms.choose(
        scores, epsilon, cpu=one_by_one, default=on_accelerators if has_some else one_by_one
    )
    return value, gradient, slope


def _is_binned(k: int, num_classes: int) -> bool:
    """Whether all but the most likely classes are binned."""
    return num_classes > 2 * _num_likely(k)


def _num_likely(k: int) -> int:
    """The number C of classes that are not binned, if others are."""
    return _contour.num_likely(k) if _by_contour(k) else _poisson_binomial.num_likely(k)


def _by_contour(k: int) -> bool:
    return k > _HIGHEST_MULTIPLIED_RANK


def _of_rank(
    k: int,
    num_nodes: int,
    class_axis_name: Hashable | None,
    scores: jax.Array,
    epsilon: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The value [b], its gradient in the scores [b, L] and its derivative in epsilon [b]."""
    num_classes = _classes.count(scores, class_axis_name)
    # Either the C most likely classes are multiplied out and the others binned, or all classes are
    # multiplied out.
    by_contour, use_binning = _by_contour(k), _is_binned(k, num_classes)
    num_likely = num_classes if by_contour and not use_binning else _num_likely(k)
    num_likely = min(num_likely, num_classes)
    # The result does not depend on the origin, nor on the interval, so both are constants.
    hidden = jax.lax.stop_gradient(scores)
    highest, likely = select_largest_of_split(hidden, num_likely, class_axis_name)
    origin = highest[:, k - 1]
    smooth = ~(epsilon < jnp.finfo(scores.dtype).tiny)
    gaps = _quadrature.in_units_of_noise(
        scores - origin[:, None], epsilon[:, None], smooth[:, None]
    )
    highest = _classes.take(gaps, likely, class_axis_name)
    # The most likely classes are moved far below, to the bin of classes without influence.
    others = _classes.put(gaps, likely, -_quadrature.FAR, class_axis_name)
    points = _binning.grid(k, num_classes)
    binned = _binning.bin_scores(others, points) if use_binning else None
    weights = None if binned is None else _classes.sum_devices(binned.weights, class_axis_name)
    bounds = _quadrature.bounds(k, num_classes, num_nodes, num_likely, highest.dtype)
    interval = _interval(k, bounds, highest, weights, points)
    if by_contour:
        value, probabilities, table = _integrate_by_contour(
            k, num_nodes, interval, highest, weights, points
        )
    else:
        likely_gaps = highest if use_binning else gaps
        thresholds = _binning.grid_around(-bounds.above[0], bounds.below[-1])
        value, probabilities, table = _integrate(
            k, num_nodes, interval, likely_gaps, weights, points, thresholds
        )
    if binned is not None or by_contour:
        if binned is None:
            of_others = jnp.zeros_like(gaps)
        else:
            # Rounding can make interpolated probabilities near zero negative.
            of_others = jnp.maximum(_binning.interpolate(table, binned.places), 0.0)
        probabilities = _classes.put(of_others, likely, probabilities, class_axis_name)
    # Exactly one class has rank k, so the probabilities add up to one. Their quadrature errors are
    # mostly proportional, so normalization removes most of the error.
    probabilities = probabilities / _classes.sum_classes(
        probabilities, class_axis_name, keepdims=True
    )
    # The value is homogeneous: tau(c s, c eps) = c tau(s, eps). So it equals sum s_l dtau/ds_l +
    # eps dtau/deps (Euler).
    slope = value - _classes.sum_classes(probabilities * gaps, class_axis_name)
    size = scores.shape[-1]
    kth = _classes.localize(likely[:, k - 1, None], size, class_axis_name)
    hard = jnp.arange(size, dtype=likely.dtype)[None] == kth
    gradient = jnp.where(smooth[:, None], probabilities, hard.astype(probabilities.dtype))
    return origin + epsilon * value, gradient, slope


class _Interval(NamedTuple):
    """An interval that contains the k-th largest with negligible error probability, `[b]` each."""

    low: jax.Array
    high: jax.Array


def _interval(
    k: int,
    bounds: _quadrature.Bounds,
    highest: jax.Array,
    weights: jax.Array | None,
    points: np.ndarray,
) -> _Interval:
    """The interval outside which P(N(t) >= k) is one or zero, from bounds on the count N(t).

    At least k scores exceed t if at least k of the j largest do. Fewer than k scores exceed t if
    fewer than k - j of the scores other than the j largest do. Each j gives a valid bound; which
    one is sharpest depends on the scores. The mean count of the binned classes gives one more.
    """
    highest = jax.lax.stop_gradient(highest)
    above, below = (jnp.asarray(side, highest.dtype)[None] for side in (bounds.above, bounds.below))
    low = (highest[:, k - 1 :] - above).max(axis=-1)
    high = (highest[:, :k] + below).min(axis=-1)
    if weights is not None:
        above_points = [
            [_poisson_binomial.normal_above(t - x) for t in _quadrature.COARSE] for x in points
        ]
        means = jax.lax.stop_gradient(weights) @ jnp.asarray(above_points, highest.dtype)
        coarse = jnp.asarray(_quadrature.COARSE, highest.dtype)[None]
        low = jnp.maximum(
            low, jnp.where(means >= bounds.mean, coarse, -_quadrature.FAR).max(axis=-1)
        )
    return _Interval(low, high)


def _integrate(
    k: int,
    num_nodes: int,
    interval: _Interval,
    gaps: jax.Array,
    weights: jax.Array | None,
    points: np.ndarray,
    thresholds: np.ndarray,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The value [b], and the probability of rank k of the likely classes [b, C] and at the points.

    Identity: tau = a + int_a^b P(N(t) >= k) dt if the k-th largest is between a and b. Choice:
    evenly spaced nodes, because the integrand is flat at both ends. The error then falls as fast as
    the Fourier transform of the integrand; Gauss quadrature needs over 1.5 times more nodes. The
    binned classes contribute by constant matrices, for the thresholds of a lattice. Cost: all nodes
    at once, or one after the other if that takes too much memory.
    """
    width, nodes = _nodes(interval, num_nodes)
    sums = None if weights is None else _lattice.sums(k, weights, points, thresholds)
    at_nodes = functools.partial(_sums_over_nodes, k, gaps, sums, thresholds)
    probabilities, total = _over_nodes(at_nodes, nodes, k * gaps.shape[-1])
    value = interval.low + width * (1 - total.sum(axis=0)).sum(axis=0)
    table = jnp.zeros_like(gaps[:, :0])
    if weights is not None:
        table = width[:, None] * _lattice.densities_without(total, nodes, points, thresholds)
    return value, width[:, None] * probabilities, table


def _nodes(interval: _Interval, num_nodes: int) -> tuple[jax.Array, jax.Array]:
    """The distance of the nodes, [b], and the nodes, [n, b]."""
    width = (interval.high - interval.low) / num_nodes
    steps = jnp.arange(num_nodes).astype(width.dtype)[:, None] + 0.5
    return width, interval.low[None] + steps * width[None]


class _OverNodes(NamedTuple):
    """The results at nodes.

    Attributes:
        sums: arrays that are added up over the nodes.
        each: arrays with the nodes along axis 1.
    """

    sums: tuple[jax.Array, ...]
    each: tuple[jax.Array, ...] = ()


def _over_nodes(
    at_nodes: Callable[[jax.Array], _OverNodes], nodes: jax.Array, size: int
) -> tuple[jax.Array, ...]:
    """The results of a function over the nodes [n, b]; `size` numbers per node are in memory."""
    # In a program of `jax.export` for any number of examples, the memory is not known.
    is_known = isinstance(nodes.size, int)
    if is_known and nodes.size * size * nodes.dtype.itemsize <= _BYTES_AT_ONCE:
        found = at_nodes(nodes)
        return *found.sums, *found.each
    found = jax.lax.map(at_nodes, nodes[:, None])
    sums = [part.sum(axis=0) for part in found.sums]
    return *sums, *(part[:, :, 0].swapaxes(0, 1) for part in found.each)


def _sums_over_nodes(
    k: int, gaps: jax.Array, sums: _lattice.Sums | None, thresholds: np.ndarray, nodes: jax.Array
) -> _OverNodes:
    """The sums [b, C] of the integrands of the gradient, and the polynomials [k, n, b].

    Arrays inside have the axes (classes or powers, nodes, examples), so that sums over the first
    axes add vectors.
    """
    probabilities, densities = _quadrature.normal(nodes[None] - gaps.T[:, None])
    if sums is None:
        rest = _poisson_binomial.no_events(k, nodes)
    else:
        rest = _lattice.polynomial(sums, nodes, thresholds)
    total, without = _poisson_binomial.product_and_leave_one_out(probabilities, rest)
    return _OverNodes(((densities * without).sum(axis=1).T,), (total,))


def _integrate_by_contour(
    k: int,
    num_nodes: int,
    interval: _Interval,
    gaps: jax.Array,
    weights: jax.Array | None,
    points: np.ndarray,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Like `_integrate`, in time that grows little with k; the gaps [b, C] are in descending order.

    Identity: the density of the k-th largest is the sum of the densities of all classes, each times
    the probability that k - 1 others exceed it, and tau is its mean. All terms are positive.
    """
    width, nodes = _nodes(interval, num_nodes)
    size = 4 * (gaps.shape[-1] + (0 if weights is None else len(points)))
    at_nodes = functools.partial(_contour_sums_over_nodes, k, gaps, weights, points)
    total, moment, probabilities, table = _over_nodes(at_nodes, nodes, size)
    return moment / total, width[:, None] * probabilities, width[:, None] * table


def _contour_sums_over_nodes(
    k: int, gaps: jax.Array, weights: jax.Array | None, points: np.ndarray, nodes: jax.Array
) -> _OverNodes:
    """Sums over the nodes [n, b] of the density of the k-th largest, and of its first moment, [b].

    It also returns the sums of the densities of the likely classes [b, C] and at the points [b, Q].
    """
    places = _padded(gaps.T, -_quadrature.FAR)
    single, densities = _events(nodes[None] - places)
    repeated = None
    if weights is not None:
        column = jnp.broadcast_to(jnp.asarray(points, gaps.dtype)[:, None], weights.T.shape)
        events, densities_at_points = _events(nodes[None] - _padded(column, -_quadrature.FAR))
        repeated = _contour.Repeated(events, _padded(weights.T, 0.0))
    without, without_at_points = _contour.leave_one_out(k, single, repeated)
    parts = jax.lax.optimization_barrier(densities * without)
    density = parts.sum(axis=0)
    table = jnp.zeros_like(gaps[:, :0])
    if repeated is not None and without_at_points is not None:
        parts_at_points = jax.lax.optimization_barrier(densities_at_points * without_at_points)
        density += (repeated.counts * parts_at_points).sum(axis=0)
        table = parts_at_points.sum(axis=1)[: len(points)].T
    probabilities = parts.sum(axis=1)[: gaps.shape[-1]].T
    moment = (nodes * density).sum(axis=0)
    return _OverNodes((density.sum(axis=0), moment, probabilities, table))


def _padded(places: jax.Array, value: float) -> jax.Array:
    """The places [E, b] of events as [E, 1, b], with more events that never occur."""
    missing = -len(places) % _contour.BLOCK
    return jnp.pad(places, ((0, missing), (0, 0)), constant_values=value)[:, None]


def _events(distances: jax.Array) -> tuple[_contour.Events, jax.Array]:
    """The events that a standard normal exceeds the distances, and its density there."""

    def events(distances: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        is_likely = distances < 0
        tail, density = _quadrature.normal(jnp.where(is_likely, -distances, distances))
        rest = 1 - tail
        return jnp.where(is_likely, rest, tail), jnp.where(is_likely, tail, rest), density

    above, below, density = _selection.store(events, distances)
    return _contour.Events(above, below), density
