"""The expected k-th largest scores for accelerators: all classes and all nodes in a few passes.

On an accelerator a program waits longer for the start of a few kernels than for a million tails of
the normal distribution. So nothing is binned: each sum over the classes is one pass over the scores
for all nodes of all ranks. Arrays with all classes at all nodes are not stored.

The j-th largest is the k-th largest if k - j further classes are certain to be above all others.
They multiply the polynomial of the other classes by x^(k-j). So all ranks need polynomials modulo
x^k only for the largest rank k. A polynomial is a list of its coefficients here, [N, b] for N nodes
and b examples. The nodes of a rank stand together.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import _classes
from topk_jax._entries import compare_with
from topk_jax.operators import _poisson_binomial, _symmetric
from topk_jax.operators._top_k import select_largest_of_split

# The polynomials of all nodes are computed at once if they fit in this many bytes.
_BYTES_AT_ONCE = 1 << 26
# Every tenth threshold of `_poisson_binomial.COARSE` is tried, then those after one of these.
_PART = 10
_Polynomial = list[jax.Array]


class _Noise(NamedTuple):
    """The standard deviations [b] of the noise, and whether there is noise."""

    epsilon: jax.Array
    smooth: jax.Array

    def gaps(self, scores: jax.Array, origins: jax.Array) -> jax.Array:
        """From the origins [..., b] to the scores [b, S] in units of the noise, [..., b, S]."""
        epsilon, smooth = (
            part.reshape(*[1] * (origins.ndim - 1), -1, 1) for part in (self.epsilon, self.smooth)
        )
        every = scores.reshape(*[1] * (origins.ndim - 1), *scores.shape)
        return _poisson_binomial.in_units_of_noise(every - origins[..., None], epsilon, smooth)


class _Others(NamedTuple):
    """The classes that are not among the most likely ones.

    Attributes:
        scores: the scores of all classes, [b, L], and low ones in place of the most likely ones.
        noise: the noise of the scores.
        highest_chance: the number at which their probabilities are clipped.
        class_axis_name: the axis that the classes are split along, or `None`.
    """

    scores: jax.Array
    noise: _Noise
    highest_chance: float
    class_axis_name: Hashable | None

    def chances(self, nodes: jax.Array, origins: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The probabilities that the classes exceed nodes [..., b], and the densities there."""
        gaps = self.noise.gaps(self.scores, origins)
        above, density = _poisson_binomial.normal(nodes[..., None] - gaps)
        return jnp.minimum(above, self.highest_chance), density


def sums_of_ranks(
    ranks: tuple[int, ...],
    num_nodes: int,
    class_axis_name: Hashable | None,
    scores: jax.Array,
    epsilon: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The expected scores [b] of R ranks added up, and the derivatives, as `_expected` has them.

    The C most likely classes are multiplied out. The others are symmetric functions, as if they
    were binned. Each device sends its C most likely classes, and k sums for each node.
    """
    k = max(ranks)
    num_classes = _classes.count(scores, class_axis_name)
    num_likely = min(_poisson_binomial.num_likely(k), num_classes)
    # The results depend neither on the origins nor on the intervals, so these are constants.
    hidden = jax.lax.stop_gradient(scores)
    highest, likely = select_largest_of_split(hidden, num_likely, class_axis_name)
    own = _classes.localize(likely, scores.shape[-1], class_axis_name)
    is_likely = compare_with(own, scores.shape[-1])
    noise = _Noise(epsilon, ~(epsilon < jnp.finfo(scores.dtype).tiny))
    odds = _poisson_binomial.highest_odds(k)
    others = None
    if num_likely < num_classes:
        # Low ones are far below all origins in units of the noise, but not so far that derivatives
        # are infinite. Without a barrier every pass would compare each class with all likely ones.
        last = highest[:, k - 1]
        far = 2 * _poisson_binomial.FAR * jnp.maximum(jax.lax.stop_gradient(epsilon), 1)
        low_ones = (last - jnp.abs(last) - far)[:, None]
        of_others = jax.lax.optimization_barrier(
            jnp.where(is_likely.any(axis=-2), low_ones, scores)
        )
        others = _Others(of_others, noise, odds / (1 + odds), class_axis_name)
    origins = jnp.stack([highest[:, rank - 1] for rank in ranks])
    low, high = _interval(
        ranks, num_nodes, num_classes, noise.gaps(highest, origins), others, origins
    )
    width = (high - low) / num_nodes
    steps = jnp.arange(num_nodes).astype(width.dtype)[None, :, None] + 0.5
    nodes = (low[:, None] + steps * width[:, None]).reshape(len(ranks) * num_nodes, *low.shape[1:])
    origins_of_nodes = jnp.repeat(origins, num_nodes, axis=0)
    rest = _shifted(ranks, num_nodes, _polynomial(k, others, nodes, origins_of_nodes))
    scores_of_likely = _classes.take(scores, likely, class_axis_name)
    gaps = noise.gaps(scores_of_likely, origins_of_nodes)
    total, found = _over_nodes(jnp.moveaxis(gaps, -1, 0), rest, nodes)

    def over_nodes(parts: jax.Array) -> jax.Array:
        """The sums over the nodes of each rank, of parts [N, b, ...]."""
        return parts.reshape(len(ranks), num_nodes, *parts.shape[1:]).sum(axis=1)

    # Rounding can make probabilities near zero negative.
    chances = jnp.maximum(over_nodes(jnp.moveaxis(found, 0, -1)), 0)
    sums = chances.sum(axis=-1)
    means = (chances * noise.gaps(scores_of_likely, origins)).sum(axis=-1)
    if others is not None:
        densities = over_nodes(_densities_of_others(others, total, nodes, origins_of_nodes))
        densities = jax.lax.optimization_barrier(jnp.maximum(densities, 0))
        sums += _classes.sum_classes(densities, class_axis_name)
        means += _classes.sum_classes(densities * noise.gaps(scores, origins), class_axis_name)
    # Exactly one class has a rank, so the probabilities add up to one. Their quadrature errors are
    # mostly proportional, so normalization removes most of the error.
    hard = jnp.asarray(np.eye(num_likely)[[rank - 1 for rank in ranks]], chances.dtype)
    of_likely = jnp.where(noise.smooth[:, None], chances / sums[..., None], hard[:, None])
    gradient = jnp.where(is_likely, of_likely.sum(axis=0)[..., None], 0).sum(axis=-2)
    if others is not None:
        gradient += jnp.where(noise.smooth[:, None], densities / sums[..., None], 0).sum(axis=0)
    values = low + width * over_nodes(1 - sum(total[1:], start=total[0]))
    # As the value of one rank, the sum is homogeneous in the scores and epsilon.
    slope = values - means / sums
    return (origins + epsilon[None] * values).sum(axis=0), gradient, slope.sum(axis=0)


def _interval(
    ranks: tuple[int, ...],
    num_nodes: int,
    num_classes: int,
    highest: jax.Array,
    others: _Others | None,
    origins: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The intervals outside which P(N(t) >= j) is one or zero, as in `_expected`, `[R, b]` each.

    The means of the others fall with the threshold. So the last threshold at which they are large
    enough is found in two passes.
    """
    num_likely, dtype = highest.shape[-1], highest.dtype
    bounds = [
        _poisson_binomial.bounds(rank, num_classes, num_nodes, num_likely, dtype) for rank in ranks
    ]
    none = [np.inf] * num_likely
    above = [none[: rank - 1] + one.above for rank, one in zip(ranks, bounds, strict=True)]
    below = [one.below + none[rank:] for rank, one in zip(ranks, bounds, strict=True)]
    highest = jax.lax.stop_gradient(highest)
    low = (highest - jnp.asarray(above, dtype)[:, None]).max(axis=-1)
    high = (highest + jnp.asarray(below, dtype)[:, None]).min(axis=-1)
    if others is None:
        return low, high
    hidden = others._replace(scores=jax.lax.stop_gradient(others.scores))
    sure = jnp.asarray([one.mean for one in bounds], dtype)[None, :, None]

    def num_reached(thresholds: jax.Array) -> jax.Array:
        """How many of the thresholds [T, R, b] have means that are large enough."""
        means = hidden.chances(thresholds, origins[None])[0].sum(axis=-1)
        return (_classes.sum_devices(means, others.class_axis_name) >= sure).sum(axis=0)

    thresholds = _poisson_binomial.COARSE
    step = float(thresholds[1] - thresholds[0])
    nothing = jnp.zeros_like(low)[None]
    first = num_reached(nothing + jnp.asarray(thresholds[::_PART], dtype)[:, None, None])
    passed = jnp.maximum(first - 1, 0).astype(dtype)
    start = float(thresholds[0]) + _PART * step * passed
    more = num_reached(start[None] + step * jnp.arange(_PART).astype(dtype)[:, None, None])
    last = start + step * (more - 1).astype(dtype)
    return jnp.where(more > 0, jnp.maximum(low, last), low), high


def _polynomial(
    k: int, others: _Others | None, nodes: jax.Array, origins: jax.Array
) -> _Polynomial:
    """The polynomial of the other classes at the nodes.

    XLA stores what several sums have in common, for all classes at all nodes. So the power sums are
    one sum of an array with one more axis, two of them as one complex number.
    """
    if others is None:
        return [*_poisson_binomial.no_events(k, nodes)]
    num_pairs = (k + 1) // 2
    shape = (num_pairs, *nodes.shape)
    above, _ = others.chances(
        jnp.broadcast_to(nodes[None], shape), jnp.broadcast_to(origins[None], shape)
    )
    odds = above / (1 - above)
    pair = jnp.arange(num_pairs)[:, None, None, None]
    power = even = jnp.ones_like(odds)
    for place in range(1, num_pairs):
        power = power * odds * odds
        even = jnp.where(pair == place, power, even)
    first = jnp.where(pair == 0, jnp.log1p(-above), even)
    sums = jax.lax.complex(first, even * odds).sum(axis=-1)
    both = jnp.stack([sums.real, sums.imag], axis=1).reshape(2 * num_pairs, *nodes.shape)[:k]
    log_none, *powers = _classes.sum_devices(both, others.class_axis_name)
    return _poisson_binomial.polynomial_of_few_power_sums(log_none, powers)


def _shifted(ranks: tuple[int, ...], num_nodes: int, polynomial: _Polynomial) -> _Polynomial:
    """The polynomial times x^(k - j) at the nodes of each rank j, modulo x^k."""
    k = len(polynomial)
    if ranks == (k,):
        return polynomial

    def of_rank(place: int, degree: int) -> jax.Array:
        nodes = slice(place * num_nodes, (place + 1) * num_nodes)
        lower = degree - (k - ranks[place])
        return polynomial[lower][nodes] if lower >= 0 else jnp.zeros_like(polynomial[0][nodes])

    return [
        jnp.concatenate([of_rank(place, degree) for place in range(len(ranks))])
        for degree in range(k)
    ]


def _densities_of_others(
    others: _Others, total: _Polynomial, nodes: jax.Array, origins: jax.Array
) -> jax.Array:
    """The density of each class at the nodes times P(N = k - 1), `[N, b, L]`.

    N counts all classes but this one: see `_lattice.densities_without`.
    """
    # Without a barrier XLA would store the chances of `_polynomial`.
    nodes, origins, *total = jax.lax.optimization_barrier((nodes, origins, *total))
    above, density = others.chances(nodes, origins)
    odds = above / (1 - above)
    without = total[0][..., None]
    for coefficient in total[1:]:
        without = coefficient[..., None] - odds * without
    return density / (1 - above) * without


def _over_nodes(
    gaps: jax.Array, rest: _Polynomial, nodes: jax.Array
) -> tuple[_Polynomial, jax.Array]:
    """The polynomials of all classes, and the densities times P(N = k - 1) of the likely ones.

    The gaps are [C, N, b], and so are the densities.
    """
    # In a program of `jax.export` for any number of examples, the memory is not known.
    size = 4 * len(gaps) * nodes.dtype.itemsize
    if isinstance(nodes.size, int) and nodes.size * size <= _BYTES_AT_ONCE:
        return _at_nodes(gaps, rest, nodes)

    def at_node(arrays: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        node, gaps, *rest = (array[None] for array in arrays)
        total, found = _at_nodes(gaps.swapaxes(0, 1), rest, node)
        return jnp.concatenate(total), found[:, 0]

    total, found = jax.lax.map(at_node, (nodes, gaps.swapaxes(0, 1), *rest))
    return [*total.swapaxes(0, 1)], found.swapaxes(0, 1)


def _at_nodes(
    gaps: jax.Array, rest: _Polynomial, nodes: jax.Array
) -> tuple[_Polynomial, jax.Array]:
    """As `_over_nodes`, at all nodes at once.

    The polynomial of C classes without one is the quotient by a linear factor. Division from the
    lowest coefficient multiplies errors by p / (1 - p), from the highest by the inverse: each class
    takes the one that does not increase them.
    """
    k, num_likely = len(rest), len(gaps)
    above, density = _poisson_binomial.normal(nodes[None] - gaps)
    leaves = jnp.stack([1 - above, above])
    root = [*_symmetric.product(leaves, num_likely, num_likely)[0][:, 0]]
    total = [_sum([rest[i] * root[degree - i] for i in range(degree + 1)]) for degree in range(k)]
    small, large = jnp.minimum(above, 0.5), jnp.maximum(above, 0.5)
    upward: list[jax.Array] = []
    downward: list[jax.Array] = []
    for coefficient in root[:k]:
        lower = small * upward[-1] if upward else 0
        upward.append((coefficient[None] - lower) / (1 - small))
    for coefficient in root[:0:-1]:
        higher = (1 - large) * downward[-1] if downward else 0
        downward.append((coefficient[None] - higher) / large)
    quotients = zip(upward, reversed(downward), reversed(rest), strict=False)
    without = _sum([jnp.where(above < 0.5, up, down) * one[None] for up, down, one in quotients])
    return total, density * without


def _sum(terms: Sequence[jax.Array]) -> jax.Array:
    return sum(terms[1:], start=terms[0])
