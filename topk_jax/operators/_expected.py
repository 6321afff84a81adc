"""The expected k-th largest score under Gaussian noise, computed without samples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _numerics, _platforms, _sharding
from topk_jax._compilation import compiled
from topk_jax.operators import _contour, _expected_at_once, _lattice, _poisson_binomial
from topk_jax.operators._top_k import move_classes_last, select_largest_of_split

__all__ = ["expected_top_k_value"]

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

    This is the expectation of `perturbed_top_k_value`, a one-dimensional integral. At the default
    number of nodes, and for up to 100,000 classes, the errors of the value and of the gradient are
    at most 1e-4 epsilon and 1e-4. The gradient is positive and adds up to one. Forward mode and
    second derivatives are supported.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: static rank, from 1 (the largest) to L. Time and memory grow linearly in L and with the
            square of min(k, L + 1 - k).
        epsilon: scalar standard deviation of the noise, in the units of the scores, at least 0;
            0 gives `top_k_value`. It has a gradient.
        num_nodes: static number of nodes of the quadrature, at least 1; chosen from L and k if
            `None`. Doubling the number of nodes squares the error, down to about 2e-6.

    Returns:
        The scores' shape without `axis`, in float32 or float64; NaN where a score is NaN or +inf. A
        score of -inf never has rank k. If fewer than k other scores are left, the value is -inf and
        its gradient 0.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import operators
        >>> def smoothed(scores):
        ...     return operators.expected_top_k_value(scores, 2, epsilon=0.5)
        >>> value, gradient = jax.value_and_grad(smoothed)(jnp.array([2.4, 2.6, 2.3, 0.5]))
        >>> print(f"{value:.3f}", *(f"{chance:.3f}" for chance in gradient))
        2.432 0.356 0.314 0.329 0.001

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
        return epsilon, _poisson_binomial.default_nodes(k, num_classes)
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

    The classes of the checked scores [..., L] may be split over devices. Each device then sends its
    most likely classes, and one number for each point of the grid; its scores, if most are likely.
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
    # The k-th largest score is minus the (L + 1 - k)-th largest of the negated scores. The work
    # grows with the rank, so the smaller of the two is used. The scores are reversed, so that
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

    The rule reuses the computation of the value for the gradient, and can be differentiated again.
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
    along = _classes.sum_classes(gradient * tangents[0], class_axis_name)
    return value, along + slope * tangents[1]


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

    def at_once(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        low, nodes = _parts(together)
        found = [_expected_at_once.sums_of_ranks(low, max(nodes), class_axis_name, *arrays)]
        alone = [pair for pair in pairs if pair not in together]
        return add(found + [_of_rank(*pair, class_axis_name, *arrays) for pair in alone])

    # With an empty batch, `jnp.where` returns a constant, whose type differs under `shard_map`.
    elsewhere = at_once if together and 0 not in scores.shape else one_by_one
    value, gradient, slope = _platforms.choose(scores, epsilon, cpu=one_by_one, default=elsewhere)
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
    gaps = _poisson_binomial.in_units_of_noise(
        scores - origin[:, None], epsilon[:, None], smooth[:, None]
    )
    highest = _classes.take(gaps, likely, class_axis_name)
    # The most likely classes are moved far below, to the bin of classes without influence.
    others = _classes.put(gaps, likely, -_poisson_binomial.FAR, class_axis_name)
    points = _lattice.grid(k, num_classes)
    binned = _lattice.bin_scores(others, points) if use_binning else None
    weights = None if binned is None else _classes.sum_devices(binned.weights, class_axis_name)
    bounds = _poisson_binomial.bounds(k, num_classes, num_nodes, num_likely, highest.dtype)
    low, high = _interval(k, bounds, highest, weights, points)
    width = (high - low) / num_nodes
    steps = jnp.arange(num_nodes).astype(width.dtype)[:, None] + 0.5
    nodes = low[None] + steps * width[None]
    if by_contour:
        value, probabilities, table = _integrate_by_contour(k, nodes, highest, weights, points)
    else:
        likely_gaps = highest if use_binning else gaps
        thresholds = _lattice.grid_around(-bounds.above[0], bounds.below[-1])
        value, probabilities, table = _integrate(k, nodes, likely_gaps, weights, points, thresholds)
        value = low + width * value
    if binned is not None or by_contour:
        if binned is None:
            of_others = jnp.zeros_like(gaps)
        else:
            # Rounding can make interpolated probabilities near zero negative.
            of_others = jnp.maximum(_lattice.interpolate(table, binned.places), 0.0)
        probabilities = _classes.put(of_others, likely, probabilities, class_axis_name)
    # Exactly one class has rank k, so the probabilities add up to one. Normalization removes most
    # of their quadrature errors, which are mostly proportional.
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


def _interval(
    k: int,
    bounds: _poisson_binomial.Bounds,
    highest: jax.Array,
    weights: jax.Array | None,
    points: np.ndarray,
) -> tuple[jax.Array, jax.Array]:
    """The ends [b] of the interval outside which P(N(t) >= k) is one or zero.

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
            [_poisson_binomial.normal_above(t - x) for t in _poisson_binomial.COARSE]
            for x in points
        ]
        means = jax.lax.stop_gradient(weights) @ jnp.asarray(above_points, highest.dtype)
        coarse = jnp.asarray(_poisson_binomial.COARSE, highest.dtype)[None]
        is_sure = means >= bounds.mean
        low = jnp.maximum(low, jnp.where(is_sure, coarse, -_poisson_binomial.FAR).max(axis=-1))
    return low, high


def _integrate(
    k: int,
    nodes: jax.Array,
    gaps: jax.Array,
    weights: jax.Array | None,
    points: np.ndarray,
    thresholds: np.ndarray,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sums over the nodes [n, b]: of P(N(t) >= k), [b], and of the densities of rank k.

    The latter are of the likely classes [b, C] and at the points. The value is a + int_a^b
    P(N(t) >= k) dt if the k-th largest is between a and b. The nodes are evenly spaced, because the
    integrand is flat at both ends: Gauss quadrature needs over 1.5 times more.
    """
    sums = None if weights is None else _lattice.sums(k, weights, points, thresholds)
    at_nodes = functools.partial(_sums_over_nodes, k, gaps, sums, thresholds)
    densities, total = _over_nodes(at_nodes, nodes, k * gaps.shape[-1])
    table = jnp.zeros_like(gaps[:, :0])
    if weights is not None:
        table = _lattice.densities_without(total, nodes, points, thresholds)
    return (1 - total.sum(axis=0)).sum(axis=0), densities, table


def _integrate_by_contour(
    k: int, nodes: jax.Array, gaps: jax.Array, weights: jax.Array | None, points: np.ndarray
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The mean [b] of the density of the k-th largest, and what `_integrate` has."""
    size = 4 * (gaps.shape[-1] + (0 if weights is None else len(points)))

    def at_nodes(nodes: jax.Array) -> _OverNodes:
        return _OverNodes(_contour.sums_over_nodes(k, gaps, weights, points, nodes))

    total, moment, densities, table = _over_nodes(at_nodes, nodes, size)
    return moment / total, densities, table


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
    """The sums [b, C] of the densities of rank k, and the polynomials [k, n, b].

    Arrays inside have the axes (classes or powers, nodes, examples), so that sums over the first
    axes add vectors.
    """
    probabilities, densities = _poisson_binomial.normal(nodes[None] - gaps.T[:, None])
    if sums is None:
        rest = _poisson_binomial.no_events(k, nodes)
    else:
        rest = _lattice.polynomial(sums, nodes, thresholds)
    total, without = _poisson_binomial.product_and_leave_one_out(probabilities, rest)
    return _OverNodes(((densities * without).sum(axis=1).T,), (total,))
