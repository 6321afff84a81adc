"""P(N = k - 1) without each of many independent events, as a sum over few points of a circle.

For ranks above 32 this takes a time that grows little with k: at k = 100 a tenth of the time of
products (64 rows of 1,081 classes on a CPU).

N is the number of events that occur. Arrays have the axes (events, nodes, examples), or (points of
the circle, events, nodes, examples), so that loops over events add vectors.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import _selection
from topk_jax.operators import _poisson_binomial

# The number of single events is a multiple of this. One pass multiplies this many factors.
_BLOCK = 16
# Steps of the search for the tilt, which need not be exact.
_STEPS = 10
# The logarithm of the largest factor of the odds.
_HIGHEST_TILT = 40.0


class _Events(NamedTuple):
    """Independent events, `[E, n, b]`: their probabilities, and 1 - p without cancellation."""

    probabilities: jax.Array
    complements: jax.Array


class _Repeated(NamedTuple):
    """Events with the numbers of their repetitions `[E, 1, b]`, which need not be integers."""

    events: _Events
    counts: jax.Array


class _Tilted(NamedTuple):
    """Events with other odds: p r / s with s = 1 - p + p r, one minus these, and s, `[E, n, b]`."""

    probabilities: jax.Array
    complements: jax.Array
    scales: jax.Array


class _Circle(NamedTuple):
    """Points at angles t on the upper half of a circle, `[S, n, b]`: sin t and 1 - cos t."""

    sines: jax.Array
    versines: jax.Array
    step: jax.Array


def num_likely(k: int) -> int:
    """The number of most likely events that are not binned.

    The logarithm of a factor is smooth in the score of an event unless the event occurs with a
    probability of about 1/2 after tilting, and a point is near the opposite side of the circle. 32
    single events besides k - 1 that are as likely make the variance large enough to avoid this.
    """
    return k + 32


def sums_over_nodes(
    k: int, gaps: jax.Array, weights: jax.Array | None, points: np.ndarray, nodes: jax.Array
) -> tuple[jax.Array, ...]:
    """Sums over the nodes [n, b] of the density of the k-th largest, and of its first moment, [b].

    Then the sums of the densities of the likely classes, with gaps [b, C] in descending order, and
    at the points of classes that are binned with weights [b, Q]. A density is that of a class times
    the probability that k - 1 others exceed it. All terms are positive.
    """
    places = _padded(gaps.T, -_poisson_binomial.FAR)
    single, densities = _events(nodes[None] - places)
    repeated = None
    if weights is not None:
        column = jnp.broadcast_to(jnp.asarray(points, gaps.dtype)[:, None], weights.T.shape)
        events, densities_at_points = _events(nodes[None] - _padded(column, -_poisson_binomial.FAR))
        repeated = _Repeated(events, _padded(weights.T, 0.0))
    without, without_at_points = _leave_one_out(k, single, repeated)
    parts = jax.lax.optimization_barrier(densities * without)
    density = parts.sum(axis=0)
    table = jnp.zeros_like(gaps[:, :0])
    if repeated is not None and without_at_points is not None:
        parts_at_points = jax.lax.optimization_barrier(densities_at_points * without_at_points)
        density += (repeated.counts * parts_at_points).sum(axis=0)
        table = parts_at_points.sum(axis=1)[: len(points)].T
    probabilities = parts.sum(axis=1)[: gaps.shape[-1]].T
    return density.sum(axis=0), (nodes * density).sum(axis=0), probabilities, table


def _padded(places: jax.Array, value: float) -> jax.Array:
    """The places [E, b] of events as [E, 1, b], with more events that never occur."""
    missing = -len(places) % _BLOCK
    return jnp.pad(places, ((0, missing), (0, 0)), constant_values=value)[:, None]


def _events(distances: jax.Array) -> tuple[_Events, jax.Array]:
    """The events that a standard normal exceeds the distances, and its density there."""

    def events(distances: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        is_likely = distances < 0
        tail, density = _poisson_binomial.normal(jnp.where(is_likely, -distances, distances))
        rest = 1 - tail
        return jnp.where(is_likely, rest, tail), jnp.where(is_likely, tail, rest), density

    above, below, density = _selection.store(events, distances)
    return _Events(above, below), density


def _leave_one_out(
    k: int, single: _Events, repeated: _Repeated | None
) -> tuple[jax.Array, jax.Array | None]:
    """P(N = k - 1) without each event, `[E, n, b]`, for single and for repeated events.

    The first k - 1 single events are the most likely.

    A coefficient of a polynomial is a mean over a circle around 0, and the polynomial of N is the
    product of 1 - p + p z. The summands cancel unless the circle passes near the saddle point: its
    radius is the r for which N has the mean k - 1/2 after tilting. They then decrease at least like
    exp(-V (1 - cos t)) for a variance V, so the number of points does not depend on k. Among the
    first k - 1 events those that do not occur are counted, which leaves small phases. Division by a
    factor is stable, because all numbers have a small relative error.
    """
    tilt = jax.lax.stop_gradient(_tilt(k - 0.5, single, repeated))
    ratio = jnp.exp(tilt)
    tilted = _tilted(single, ratio)
    # The first events are counted if they do not occur.
    logs = _log_scales(k, single, tilted, ratio)
    log_scale = logs.sum(axis=0)
    amplitudes = jnp.concatenate([-tilted.complements[: k - 1], tilted.probabilities[k - 1 :]])
    variance = (tilted.probabilities * tilted.complements).sum(axis=0)
    tilted_repeated = None
    if repeated is not None:
        events, counts = repeated
        tilted_repeated = _tilted(events, ratio)
        variances = tilted_repeated.probabilities * tilted_repeated.complements
        variance += (counts * variances).sum(axis=0)
        logs = _log_scale(events.probabilities, tilted_repeated.scales, ratio)
        log_scale += (counts * logs).sum(axis=0)
    circle = _circle(jax.lax.stop_gradient(variance))
    summands = _product(amplitudes, circle)
    if repeated is not None and tilted_repeated is not None:
        summands = _times(summands, _power(tilted_repeated, repeated.counts, circle))
    # The first point is its own mirror image.
    half = jnp.where(jnp.arange(len(circle.sines)) == 0, 0.5, 1.0).astype(tilt.dtype)
    weights = half[:, None, None] * (jnp.exp(log_scale) * circle.step / math.pi)[None]
    summands = _selection.store(
        lambda real, imaginary, weights: (weights * real, weights * imaginary), *summands, weights
    )
    without = _without_each(summands, circle, tilted)
    if tilted_repeated is None:
        return without, None
    return without, _without_each(summands, circle, tilted_repeated)


def _tilt(target: float, single: _Events, repeated: _Repeated | None) -> jax.Array:
    """The logarithm of the ratio by which all odds change so that N has about the target as mean.

    Newton's method for the logarithm of the mean, which is flat if all events are certain, with
    bisection if it leaves the bracket.
    """

    def step(_: Any, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        tilt, low, high = state
        ratio = _selection.store(jnp.exp, tilt)[None]

        def moments(p: jax.Array, complement: jax.Array) -> tuple[jax.Array, jax.Array]:
            q = ratio * p / (complement + ratio * p)
            return q, q * (1 - q)

        def counted(p: jax.Array, complement: jax.Array, count: jax.Array) -> Any:
            mean, slope = moments(p, complement)
            return count * mean, count * slope

        mean, slope = _total(moments, *single)
        if repeated is not None:
            more = _total(counted, *repeated.events, repeated.counts)
            mean, slope = mean + more[0], slope + more[1]
        low = jnp.where(mean < target, tilt, low)
        high = jnp.where(mean < target, high, tilt)
        mean = jnp.maximum(mean, 1e-30)
        newton = tilt + mean / (slope + 1e-30) * jnp.log(target / mean)
        is_inside = (newton >= low) & (newton <= high)
        return jnp.where(is_inside, newton, 0.5 * (low + high)), low, high

    zero = jnp.zeros_like(single.probabilities[0])
    start = (zero, zero - _HIGHEST_TILT, zero + _HIGHEST_TILT)
    return jax.lax.fori_loop(0, _STEPS, step, start)[0]


def _total(
    terms: Callable[..., tuple[jax.Array, jax.Array]], *events: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The sums over the events of two terms, functions of entries of arrays `[E, ...]`.

    XLA on the CPU sums over an axis outside of its vectorized loops; entry by entry, in two stages,
    it does not.
    """

    def total(terms: list[tuple[jax.Array, jax.Array]]) -> tuple[jax.Array, jax.Array]:
        return functools.reduce(lambda one, other: (one[0] + other[0], one[1] + other[1]), terms)

    def of_blocks(*blocks: jax.Array) -> tuple[jax.Array, jax.Array]:
        return total([terms(*entries) for entries in zip(*blocks, strict=True)])

    blocks = (array.reshape(_BLOCK, len(array) // _BLOCK, *array.shape[1:]) for array in events)
    one, other = _selection.store(of_blocks, *blocks)
    return total(list(zip(one, other, strict=True)))


def _tilted(events: _Events, ratio: jax.Array) -> _Tilted:
    scaled = ratio[None] * events.probabilities
    scales = events.complements + scaled
    return _Tilted(scaled / scales, events.complements / scales, scales)


def _log_scales(k: int, events: _Events, tilted: _Tilted, ratio: jax.Array) -> jax.Array:
    """The logarithms of the scales, divided by r for the first k - 1 events."""
    first = _log_scale(events.complements[: k - 1], tilted.scales[: k - 1] / ratio[None], 1 / ratio)
    others = _log_scale(events.probabilities[k - 1 :], tilted.scales[k - 1 :], ratio)
    return jnp.concatenate([first, others])


def _log_scale(probability: jax.Array, scale: jax.Array, ratio: jax.Array) -> jax.Array:
    """The logarithm of the scale 1 + p (r - 1), without loss for many events with a small p."""
    is_small = probability < 0.5
    of_small = jnp.log1p(jnp.where(is_small, probability * (ratio[None] - 1), 0.0))
    return jnp.where(is_small, of_small, jnp.log(scale))


def _circle(variance: jax.Array) -> _Circle:
    """Evenly spaced points up to the angle from which all summands are negligible."""
    accuracy = -math.log(float(jnp.finfo(variance.dtype).eps))
    num_points = _num_points(accuracy)
    # 1 - cos t = accuracy / V at the farthest angle t, if there is one.
    share = 0.5 * accuracy / jnp.maximum(variance, 0.5 * accuracy)
    step = 2 * jnp.arcsin(jnp.sqrt(share)) / (num_points - 0.5)
    angles = jnp.arange(num_points).astype(step.dtype)[:, None, None] * step[None]
    arrays = (jnp.sin(angles), 2 * jnp.square(jnp.sin(0.5 * angles)), step)
    return _Circle(*jax.lax.optimization_barrier(arrays))


@functools.lru_cache
def _num_points(accuracy: float) -> int:
    """The number of points, for an error of exp(-accuracy) for any events.

    The error is P(N >= k - 1 + m) if 2 pi / m is the step. This is hardest for unlikely events and
    the largest variance V that needs the complete circle. There it is at most exp(-V h(m / V)), by
    Bennett's inequality.
    """
    variance = accuracy / 2
    points = 2
    while True:
        excess = (2 * points - 1) / variance
        if variance * ((1 + excess) * math.log1p(excess) - excess) >= accuracy:
            return points
        points += 1


def _times(
    one: tuple[jax.Array, jax.Array], other: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """The product of complex numbers, as real and imaginary parts."""
    return one[0] * other[0] - one[1] * other[1], one[0] * other[1] + one[1] * other[0]


def _product(amplitudes: jax.Array, circle: _Circle) -> tuple[jax.Array, jax.Array]:
    """The product of the factors 1 - |v| (1 - cos t) + i v sin t, `[S, n, b]`.

    XLA on the CPU does not vectorize a product of complex numbers over an axis.
    """
    blocks = amplitudes.reshape(_BLOCK, len(amplitudes) // _BLOCK, *amplitudes.shape[1:])

    def multiply_blocks(
        blocks: jax.Array, sines: jax.Array, versines: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        factors = (
            (1 - jnp.abs(v)[None] * versines[:, None], v[None] * sines[:, None]) for v in blocks
        )
        return functools.reduce(_times, factors)

    def product(real: jax.Array, imaginary: jax.Array) -> tuple[jax.Array, jax.Array]:
        factors = ((real[:, i], imaginary[:, i]) for i in range(real.shape[1]))
        return functools.reduce(_times, factors)

    parts = _selection.store(multiply_blocks, blocks, circle.sines, circle.versines)
    return _selection.store(product, *parts)


def _power(tilted: _Tilted, counts: jax.Array, circle: _Circle) -> tuple[jax.Array, jax.Array]:
    """The product of the factors of repeated events, to the power of their counts: `[S, n, b]`."""
    sines, versines = circle.sines[None], circle.versines[None]

    def logarithms(q: jax.Array, complement: jax.Array, count: jax.Array) -> Any:
        square = -2 * (q * complement)[:, None] * versines
        size, angle = 0.5 * jnp.log1p(square), _angles(q[:, None], sines, versines)
        return count[:, None] * size, count[:, None] * angle

    size, angle = _total(logarithms, tilted.probabilities, tilted.complements, counts)
    return jnp.exp(size) * jnp.cos(angle), jnp.exp(size) * jnp.sin(angle)


def _angles(q: jax.Array, sine: jax.Array, versine: jax.Array) -> jax.Array:
    """The angles of 1 - q (1 - cos t) + i q sin t, for t from 0 to below pi and q up to some 1/2.

    XLA on the CPU calls a function for each arc tangent. So the angle is halved three times, by
    tan(a / 2) = sin a / (1 + cos a) = tan a / (1 + sqrt(1 + tan(a)^2)), for Taylor's series.
    """
    real, imaginary = 1 - q * versine, q * sine
    tangent = imaginary / (jnp.sqrt(real * real + imaginary * imaginary) + real)
    for _ in range(2):
        tangent = tangent / (1 + jnp.sqrt(1 + tangent * tangent))
    series = jnp.zeros_like(tangent)
    for degree in reversed(range(1, 24, 2) if q.dtype == jnp.float64 else range(1, 12, 2)):
        series = (-1) ** (degree // 2) / degree + series * tangent * tangent
    return 8 * tangent * series


def _without_each(
    summands: tuple[jax.Array, jax.Array], circle: _Circle, tilted: _Tilted
) -> jax.Array:
    """The sum over the points of the real part of the summands divided by each factor."""
    q, complements, scales = tilted
    twice_variances = 2 * q * complements
    quotients = [
        (real * (1 - q * versine) + imaginary * (q * sine)) / (1 - twice_variances * versine)
        for real, imaginary, sine, versine in zip(
            *(array[:, None] for array in (*summands, circle.sines, circle.versines)), strict=True
        )
    ]
    return sum(quotients[1:], quotients[0]) / scales
