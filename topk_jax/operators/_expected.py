"""The expected k-th largest score under Gaussian noise, computed without samples.

It is the integral over t of P(N(t) >= k), where N(t) counts the scores that exceed t: a sum over
nodes. The most likely classes are multiplied out, and the others are symmetric functions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _compilation, _sharding
from topk_jax._compilation import compiled
from topk_jax.operators import _contour, _poisson_binomial
from topk_jax.operators._poisson_binomial import FAR
from topk_jax.operators._top_k import move_classes_last, select_largest_of_split
from topk_jax.operators._unlikely import Binned, Unbinned

__all__ = ["expected_top_k_value"]

# All nodes are computed at once if their largest arrays fit in this many bytes, else one at a time.
_BYTES_AT_ONCE = 1 << 26
# Measured on two CPU cores: above it the computation on a circle is faster.
_HIGHEST_MULTIPLIED_RANK = 32
# On an accelerator a loop waits for the start of its kernels in each pass, so it has few passes.
_EVENTS_IN_A_PASS = 32
# Probabilities below exp(-_LOG_TAIL), 1e-7, are neglected at the default number of nodes.
_LOG_TAIL = 16.0
# Thresholds at which the mean count of the unlikely classes is computed, in units of the noise.
_COARSE = np.arange(-6.0, 6.5, 0.125)


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

    This is the expectation of `perturbed_top_k_value`. The errors of the value and of the gradient
    are at most 1e-4 epsilon and 1e-4 at the default number of nodes, for up to 100,000 classes.
    Forward mode and second derivatives are supported.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: static rank, from 1 (the largest) to L. Time and memory grow linearly in L and with the
            square of min(k, L + 1 - k).
        epsilon: scalar standard deviation of the noise, in the units of the scores, at least 0;
            0 gives `top_k_value`. It has a gradient.
        num_nodes: static number of nodes of the quadrature, at least 1; chosen from L and k if
            `None`. Doubling the number of nodes squares the error, down to about 2e-6.

    Returns:
        The scores' shape without `axis`. A score of -inf never has rank k. If fewer than k other
        scores are left, the value is -inf and its gradient 0.

    Example:
        >>> scores = jnp.array([2.4, 2.6, 2.3, 0.5])
        >>> print(f"{expected_top_k_value(scores, 2, epsilon=0.5):.3f}")
        2.432

    Source: Garcin et al. (2022); thesis, definitions 4.3.2 and 4.3.4 and equation 4.8. The thesis
    estimates them.
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    epsilon, num_nodes = check_expectation(k, last.shape[-1], epsilon, num_nodes, last.dtype)
    return compute_expected_mean(last, (k,), epsilon, (num_nodes,))


def check_expectation(
    k: int, num_classes: int, epsilon: ArrayLike, num_nodes: int | None, dtype: jnp.dtype
) -> tuple[jax.Array, int]:
    """The standard deviation of the noise and the number of nodes for a checked rank, or raises."""
    epsilon = _checks.scalar(epsilon, "epsilon", dtype, at_least=0)
    if num_nodes is None:
        return epsilon, _default_nodes(k, num_classes)
    return epsilon, _checks.static_integer(num_nodes, "num_nodes", minimum=1)


def _default_nodes(k: int, num_classes: int) -> int:
    """The number of nodes for an error of 1e-4 with any scores, checked up to L = 100,000."""
    rank = min(k, num_classes + 1 - k)
    return math.ceil(11 + 2.2 * math.log(num_classes) + 1.5 * math.log(rank))


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
    most likely classes, and few numbers for each node; its scores, if most are likely.
    """
    num_classes, highest = _classes.count(last, class_axis_name), max(ranks)
    has_others = num_classes > 2 * _num_likely(highest)
    if class_axis_name is not None and not (2 * highest <= num_classes and has_others):
        last, class_axis_name = _classes.gather(last, class_axis_name), None
    rows = _classes.finite_scores(last)
    rows = _classes.nan_where_invalid_scores(rows, last, class_axis_name)
    pairs = (*zip(ranks, num_nodes, strict=True),)

    def of_batch(scores: jax.Array, epsilon: jax.Array) -> jax.Array:
        flat = scores.reshape(-1, scores.shape[-1])
        # One per example, because the custom rule needs the type of the result under shard_map.
        zeros = (
            flat[:, 0] if class_axis_name is None else _classes.max_classes(flat, class_axis_name)
        )
        epsilons = epsilon + jnp.zeros_like(zeros)
        means = _expected(pairs, class_axis_name, flat, epsilons) / len(pairs)
        return means.reshape(scores.shape[:-1])

    values = _sharding.map_examples(of_batch, last.ndim - 1, rows, shared=(epsilon,))
    too_few = _classes.sum_classes(last == -jnp.inf, class_axis_name) > num_classes - highest
    # Masked classes beside a NaN do not hide it.
    return jnp.where(too_few & ~jnp.isnan(values), -jnp.inf, values)


# Ranks and their numbers of nodes.
_Pairs = tuple[tuple[int, int], ...]
# The value [b], its gradient in the scores [b, L] and its derivative in epsilon [b].
_Slopes = tuple[jax.Array, jax.Array, jax.Array]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _expected(
    pairs: _Pairs, class_axis_name: Hashable | None, scores: jax.Array, epsilon: jax.Array
) -> jax.Array:
    """The expected scores of some ranks, added up, of scores [b, L] for epsilon [b].

    The rule reuses the computation of the value for the gradient, and can be differentiated again.
    """
    return _value_and_slopes(pairs, class_axis_name, scores, epsilon)[0]


@_expected.defjvp
def _expected_jvp(
    pairs: _Pairs,
    class_axis_name: Hashable | None,
    primals: tuple[jax.Array, jax.Array],
    tangents: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    value, gradient, slope = _value_and_slopes(pairs, class_axis_name, *primals)
    along = _classes.sum_classes(gradient * tangents[0], class_axis_name)
    return value, along + slope * tangents[1]


def _value_and_slopes(
    pairs: _Pairs, class_axis_name: Hashable | None, scores: jax.Array, epsilon: jax.Array
) -> _Slopes:
    """The sums over the ranks."""

    def of_ranks(is_cpu: bool, *arrays: jax.Array) -> Any:
        unroll = 1 if is_cpu else max(1, _EVENTS_IN_A_PASS // len(pairs))
        found = [_of_rank(*pair, class_axis_name, is_cpu, unroll, *arrays) for pair in pairs]
        return jax.tree.map(lambda *parts: sum(parts[1:], start=parts[0]), *found)

    on_cpu, elsewhere = (functools.partial(of_ranks, is_cpu) for is_cpu in (True, False))
    # With an empty batch, `jnp.where` returns a constant, whose type differs under `shard_map`.
    default = on_cpu if 0 in scores.shape else elsewhere
    value, gradient, slope = _compilation.choose(scores, epsilon, cpu=on_cpu, default=default)
    return value, gradient, slope


def _num_likely(k: int) -> int:
    """The number C of most likely classes, which are multiplied out if there are twice as many."""
    if k > _HIGHEST_MULTIPLIED_RANK:
        return _contour.num_likely(k)
    return _poisson_binomial.num_likely(k)


def _of_rank(
    k: int,
    num_nodes: int,
    class_axis_name: Hashable | None,
    is_cpu: bool,
    unroll: int,
    scores: jax.Array,
    epsilon: jax.Array,
) -> _Slopes:
    num_classes = _classes.count(scores, class_axis_name)
    if 2 * k > num_classes + 1:
        # The k-th largest score is minus the (L + 1 - k)-th largest of the negated scores, whose
        # rank is lower. The scores are reversed, so that without noise equal scores rank as in
        # `top_k_value`.
        lower = num_classes + 1 - k
        value, gradient, slope = _of_rank(
            lower, num_nodes, None, is_cpu, unroll, -scores[:, ::-1], epsilon
        )
        return -value, gradient[:, ::-1], -slope
    has_others = num_classes > 2 * _num_likely(k)
    num_likely = _num_likely(k) if has_others else num_classes
    # The result does not depend on the origin, nor on the interval, so both are constants.
    hidden = jax.lax.stop_gradient(scores)
    highest, likely = select_largest_of_split(hidden, num_likely, class_axis_name)
    origin = highest[:, k - 1]
    smooth = ~(epsilon < jnp.finfo(scores.dtype).tiny)
    gaps = _in_units_of_noise(scores - origin[:, None], epsilon[:, None], smooth[:, None])
    of_likely = _classes.take(gaps, likely, class_axis_name)
    above, below, mean = _bounds(k, num_classes, num_nodes, num_likely, scores.dtype)
    by_contour = k > _HIGHEST_MULTIPLIED_RANK
    others: Binned | Unbinned | None = None
    if has_others:
        # The likely classes are moved far below all nodes.
        rest = _classes.put(gaps, likely, -FAR, class_axis_name)
        if is_cpu or by_contour:
            ends = (-above[0], below[-1])
            others = Binned.of(rest, k, num_classes, ends, class_axis_name)
        else:
            others = Unbinned(rest, class_axis_name)
    low, high = _interval(k, above, below, mean, of_likely, others)
    # The nodes are evenly spaced, because the integrand is flat at both ends: Gauss quadrature
    # needs over 1.5 times more.
    width = (high - low) / num_nodes
    steps = jnp.arange(num_nodes).astype(width.dtype)[:, None] + 0.5
    nodes = low[None] + steps * width[None]
    if by_contour and not isinstance(others, Unbinned):
        value, chances, of_others = _integrate_by_contour(k, of_likely, others, nodes)
    else:
        value, chances, of_others = _integrate(k, of_likely, others, nodes, unroll)
        value = low + width * value
    # Rounding can make probabilities near zero negative.
    every = jnp.zeros_like(gaps) if of_others is None else jnp.maximum(of_others, 0)
    every = _classes.put(every, likely, chances, class_axis_name)
    # Exactly one class has rank k, so the probabilities add up to one. Normalization removes most
    # of their quadrature errors, which are mostly proportional.
    every = every / _classes.sum_classes(every, class_axis_name, keepdims=True)
    # The value is homogeneous: tau(c s, c eps) = c tau(s, eps). So it equals sum s_l dtau/ds_l +
    # eps dtau/deps (Euler).
    slope = value - _classes.sum_classes(every * gaps, class_axis_name)
    size = scores.shape[-1]
    kth = _classes.localize(likely[:, k - 1, None], size, class_axis_name)
    hard = jnp.arange(size, dtype=likely.dtype)[None] == kth
    gradient = jnp.where(smooth[:, None], every, hard.astype(every.dtype))
    return origin + epsilon * value, gradient, slope


def _in_units_of_noise(gaps: jax.Array, epsilon: jax.Array, smooth: jax.Array) -> jax.Array:
    """The gaps [b, L] in units of epsilon [b, 1], clipped.

    Without noise the quotients, and their derivatives, would be infinite or NaN: the limit of a gap
    is zero or very large.
    """
    scaled = jnp.clip(gaps / jnp.where(smooth, epsilon, 1.0), -FAR, FAR)
    return jnp.where(smooth, scaled, FAR * jnp.sign(gaps))


def _bounds(
    k: int, num_classes: int, num_nodes: int, num_highest: int, dtype: jnp.dtype
) -> tuple[list[float], list[float], float]:
    """Distances that bound the k-th largest with negligible error probability.

    They are, for j = k .. C, how far it is at most below the j-th largest score; for j = 1 .. k,
    how far it is at most above; and the mean count of scores above a threshold at which the k-th
    largest is above it, too. The neglected tail is balanced with the quadrature error: for a normal
    both decrease exponentially with the number of nodes.
    """
    limit = math.log(float(jnp.finfo(dtype).eps) / 8)
    log_tail = max(-_LOG_TAIL * num_nodes / _default_nodes(k, num_classes), limit)
    surely_above = _poisson_binomial.surely_above
    above = [surely_above(k, size, log_tail) for size in range(k, num_highest + 1)]
    # Fewer than k - j of L - j exceed a threshold if L - k + 1 of them do not.
    fewer = num_classes - k + 1
    below = [surely_above(fewer, num_classes - j, log_tail) for j in range(k)]
    return above, below, _poisson_binomial.sure_mean(k, log_tail)


def _interval(
    k: int,
    above: list[float],
    below: list[float],
    mean: float,
    highest: jax.Array,
    others: Binned | Unbinned | None,
) -> tuple[jax.Array, jax.Array]:
    """The ends [b] of the interval outside which P(N(t) >= k) is one or zero.

    At least k scores exceed t if at least k of the j largest do. Fewer than k scores exceed t if
    fewer than k - j of the scores other than the j largest do. Each j gives a valid bound; which
    one is sharpest depends on the scores. The mean count of the other classes gives one more.
    """
    highest = jax.lax.stop_gradient(highest)
    low = (highest[:, k - 1 :] - jnp.asarray(above, highest.dtype)[None]).max(axis=-1)
    high = (highest[:, :k] + jnp.asarray(below, highest.dtype)[None]).min(axis=-1)
    if others is not None:
        is_sure = jax.lax.stop_gradient(others.means(_COARSE)) >= mean
        coarse = jnp.asarray(_COARSE, highest.dtype)[None]
        low = jnp.maximum(low, jnp.where(is_sure, coarse, -FAR).max(axis=-1))
    return low, high


def _integrate(
    k: int,
    gaps: jax.Array,
    others: Binned | Unbinned | None,
    nodes: jax.Array,
    unroll: int,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Sums over the nodes [n, b]: of P(N(t) >= k), [b], and of the densities of rank k.

    The latter are of the likely classes [b, C] and of the others [b, L]. Arrays inside have the
    axes (classes or powers, nodes, examples), so that sums over the first axes add vectors.
    """
    none = _poisson_binomial.no_events(k, nodes)
    rest = none if others is None else others.polynomial(k, nodes, unroll)

    def at_nodes(nodes: jax.Array, rest: jax.Array) -> tuple[jax.Array, jax.Array]:
        chances, densities = _poisson_binomial.normal(nodes[None] - gaps.T[:, None])
        total, without = _poisson_binomial.product_and_leave_one_out(
            chances, rest, min(unroll, gaps.shape[-1])
        )
        return (densities * without).sum(axis=1).T, total

    densities, total = _over_nodes(at_nodes, k * gaps.shape[-1], nodes, rest)
    fewer = total.sum(axis=0)
    of_others = None if others is None else others.densities(total, nodes)
    return (1 - fewer).sum(axis=0), densities, of_others


def _integrate_by_contour(
    k: int, gaps: jax.Array, others: Binned | None, nodes: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """The mean [b] of the density of the k-th largest, and what `_integrate` has."""
    size = 4 * (gaps.shape[-1] + (0 if others is None else len(others.points)))

    def at_nodes(nodes: jax.Array) -> tuple[Any, tuple[()]]:
        weights, points = (None, _COARSE[:0]) if others is None else (others.weights, others.points)
        return _contour.sums_over_nodes(k, gaps, weights, points, nodes), ()

    (total, moment, densities, table), _ = _over_nodes(at_nodes, size, nodes)
    return moment / total, densities, None if others is None else others.spread(table)


def _over_nodes(at_nodes: Callable[..., Any], size: int, *arrays: jax.Array) -> Any:
    """The sums over the nodes and what has them along axis 1, of `at_nodes(*arrays)`.

    The arrays have the nodes along the last axis but one; `size` numbers per node are in memory.
    """
    # In a program of `jax.export` for any number of examples, the memory is not known.
    numbers = arrays[0].size * size
    if isinstance(numbers, int) and numbers * arrays[0].dtype.itemsize <= _BYTES_AT_ONCE:
        return at_nodes(*arrays)
    each = tuple(jnp.moveaxis(array, -2, 0)[..., None, :] for array in arrays)
    sums, others = jax.lax.map(lambda node: at_nodes(*node), each)
    sums = jax.tree.map(lambda part: part.sum(axis=0), sums)
    return sums, jax.tree.map(lambda part: jnp.moveaxis(part[:, :, 0], 0, 1), others)
