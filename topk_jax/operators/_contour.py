"""P(N = k - 1) without each of many independent events, as a sum over few points of a circle.

For ranks above 32 this takes a time that grows little with k: at k = 100 a tenth of the time of
products (64 rows of 1,081 classes on a CPU).

N is the number of events that occur. Arrays have the axes (events, nodes, examples), or (points of
the circle, events, nodes, examples), so that loops over events add vectors.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import _compilation
from topk_jax.operators import _poisson_binomial

# The number of events is a multiple of this. One pass adds up this many terms.
_BLOCK = 16
# Steps of the search for the tilt, which need not be exact.
_STEPS = 10
# The logarithm of the largest factor of the odds.
_HIGHEST_TILT = 40.0
_Complex = tuple[jax.Array, jax.Array]


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
    # More events that never occur.
    missing = ((0, -gaps.shape[-1] % _BLOCK), (0, 0))
    places = jnp.pad(gaps.T, missing, constant_values=-_poisson_binomial.FAR)
    counts, num_single = jnp.ones_like(places), len(places)
    if weights is not None:
        missing = ((0, -len(points) % _BLOCK), (0, 0))
        column = jnp.broadcast_to(jnp.asarray(points, gaps.dtype)[:, None], weights.T.shape)
        places = jnp.concatenate([places, jnp.pad(column, missing, mode="edge")])
        counts = jnp.concatenate([counts, jnp.pad(weights.T, missing)])
    places, counts = places[:, None], counts[:, None]

    def events(distances: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        is_likely = distances < 0
        tail, density = _poisson_binomial.normal(jnp.where(is_likely, -distances, distances))
        rest = 1 - tail
        return jnp.where(is_likely, rest, tail), jnp.where(is_likely, tail, rest), density

    chances, complements, densities = _compilation.store(events, nodes[None] - places)
    without = _leave_one_out(k, num_single, chances, complements, counts)
    parts = jax.lax.optimization_barrier(densities * without)
    density = (counts * parts).sum(axis=0)
    of_events = parts.sum(axis=1).T
    num_points = 0 if weights is None else len(points)
    return (
        density.sum(axis=0),
        (nodes * density).sum(axis=0),
        of_events[:, : gaps.shape[-1]],
        of_events[:, num_single : num_single + num_points],
    )


def _leave_one_out(
    k: int, num_single: int, chances: jax.Array, complements: jax.Array, counts: jax.Array
) -> jax.Array:
    """P(N = k - 1) without each event, from p and 1 - p of the events, `[E, n, b]`.

    The counts [E, 1, b] are the numbers of repetitions, which need not be integers; the first
    events are not repeated.

    A coefficient of a polynomial is a mean over a circle around 0, and the polynomial of N is the
    product of 1 - p + p z. The summands cancel unless the circle passes near the saddle point: its
    radius is the r for which N has the mean k - 1/2 after tilting. They then decrease at least like
    exp(-V (1 - cos t)) for a variance V, so the number of points does not depend on k. Of events
    that are likely after tilting those that do not occur are counted, which leaves small phases.
    Division by a factor is stable, because all numbers have a small relative error.
    """
    tilt = jax.lax.stop_gradient(_tilt(k - 0.5, chances, complements, counts))
    ratio = jnp.exp(tilt)[None]
    scales = complements + ratio * chances
    tilted, left = ratio * chances / scales, complements / scales
    is_likely = tilted > 0.5
    rarer = jnp.where(is_likely, left, tilted)
    shift = jnp.where(is_likely, counts, 0).sum(axis=0) - (k - 1)

    def log_scale(chance: jax.Array, ratio: jax.Array, scale: jax.Array) -> jax.Array:
        """The logarithm of the scale 1 + p (r - 1), without loss for many events with a small p."""
        is_small = chance < 0.5
        of_small = jnp.log1p(jnp.where(is_small, chance * (ratio - 1), 0.0))
        return jnp.where(is_small, of_small, jnp.log(scale))

    logs = jnp.where(
        is_likely,
        log_scale(complements, 1 / ratio, scales / ratio),
        log_scale(chances, ratio, scales),
    )
    log_scales = (counts * logs).sum(axis=0) + shift * tilt
    variance = (counts * tilted * left).sum(axis=0)
    sines, versines, step = _circle(jax.lax.stop_gradient(variance))
    signed = jnp.where(is_likely, -rarer, rarer)[:num_single]
    real, imaginary = _product(signed, sines, versines)
    size, angle = _logarithm_of_powers(rarer[num_single:], counts[num_single:], sines, versines)
    places = jnp.arange(len(sines)).astype(tilt.dtype)[:, None, None]
    angle += shift[None] * places * step[None]
    # The first point is its own mirror image.
    half = jnp.where(places == 0, 0.5, 1.0).astype(tilt.dtype)
    size = half * jnp.exp(log_scales[None] + size) * (step / math.pi)[None]
    summands = _times((real, imaginary), (size * jnp.cos(angle), size * jnp.sin(angle)))
    summands = jax.lax.optimization_barrier(summands)
    return _without_each(summands, sines, versines, tilted, left) / scales


def _tilt(
    target: float, chances: jax.Array, complements: jax.Array, counts: jax.Array
) -> jax.Array:
    """The logarithm of the ratio by which all odds change so that N has about the target as mean.

    Newton's method for the logarithm of the mean, which is flat if all events are certain, with
    bisection if it leaves the bracket.
    """

    def step(_: Any, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        tilt, low, high = state
        ratio = _compilation.store(jnp.exp, tilt)[None]

        def moments(p: jax.Array, complement: jax.Array, count: jax.Array) -> _Complex:
            q = ratio * p / (complement + ratio * p)
            return count * q, count * q * (1 - q)

        mean, slope = _total(moments, chances, complements, counts)
        low = jnp.where(mean < target, tilt, low)
        high = jnp.where(mean < target, high, tilt)
        mean = jnp.maximum(mean, 1e-30)
        newton = tilt + mean / (slope + 1e-30) * jnp.log(target / mean)
        is_inside = (newton >= low) & (newton <= high)
        return jnp.where(is_inside, newton, 0.5 * (low + high)), low, high

    zero = jnp.zeros_like(chances[0])
    start = (zero, zero - _HIGHEST_TILT, zero + _HIGHEST_TILT)
    return jax.lax.fori_loop(0, _STEPS, step, start)[0]


def _total(terms: Callable[..., _Complex], *events: jax.Array) -> _Complex:
    """The sums over the events of two terms, functions of entries of arrays `[E, ...]`.

    XLA on the CPU sums over an axis outside of its vectorized loops; entry by entry, in two stages,
    it does not.
    """

    def total(terms: list[_Complex]) -> _Complex:
        return functools.reduce(lambda one, other: (one[0] + other[0], one[1] + other[1]), terms)

    def of_blocks(*blocks: jax.Array) -> _Complex:
        return total([terms(*entries) for entries in zip(*blocks, strict=True)])

    blocks = (array.reshape(_BLOCK, len(array) // _BLOCK, *array.shape[1:]) for array in events)
    one, other = _compilation.store(of_blocks, *blocks)
    return total(list(zip(one, other, strict=True)))


def _circle(variance: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Evenly spaced points t up to the angle from which all summands are negligible.

    They are sin t and 1 - cos t, `[S, n, b]`, and the distance of two points, `[n, b]`.
    """
    accuracy = -math.log(float(jnp.finfo(variance.dtype).eps))
    num_points = _num_points(accuracy)
    # 1 - cos t = accuracy / V at the farthest angle t, if there is one.
    share = 0.5 * accuracy / jnp.maximum(variance, 0.5 * accuracy)
    step = 2 * jnp.arcsin(jnp.sqrt(share)) / (num_points - 0.5)
    angles = jnp.arange(num_points).astype(step.dtype)[:, None, None] * step[None]
    arrays = (jnp.sin(angles), 2 * jnp.square(jnp.sin(0.5 * angles)), step)
    sines, versines, step = jax.lax.optimization_barrier(arrays)
    return sines, versines, step


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


def _times(one: _Complex, other: _Complex) -> _Complex:
    return one[0] * other[0] - one[1] * other[1], one[0] * other[1] + one[1] * other[0]


def _product(amplitudes: jax.Array, sines: jax.Array, versines: jax.Array) -> _Complex:
    """The product of the factors 1 - |v| (1 - cos t) + i v sin t, `[S, n, b]`.

    XLA on the CPU does not vectorize a product of complex numbers over an axis.
    """
    blocks = amplitudes.reshape(_BLOCK, len(amplitudes) // _BLOCK, *amplitudes.shape[1:])

    def multiply_blocks(blocks: jax.Array, sines: jax.Array, versines: jax.Array) -> _Complex:
        factors = (
            (1 - jnp.abs(v)[None] * versines[:, None], v[None] * sines[:, None]) for v in blocks
        )
        return functools.reduce(_times, factors)

    def product(real: jax.Array, imaginary: jax.Array) -> _Complex:
        factors = ((real[:, i], imaginary[:, i]) for i in range(real.shape[1]))
        return functools.reduce(_times, factors)

    return _compilation.store(
        product, *_compilation.store(multiply_blocks, blocks, sines, versines)
    )


def _logarithm_of_powers(
    chances: jax.Array, counts: jax.Array, sines: jax.Array, versines: jax.Array
) -> _Complex:
    """The logarithm of the product of the factors of repeated events, its two parts `[S, n, b]`."""
    if len(chances) == 0:
        return jnp.zeros_like(sines), jnp.zeros_like(sines)

    def logarithms(q: jax.Array, count: jax.Array) -> _Complex:
        q, count, sine, versine = q[:, None], count[:, None], sines[None], versines[None]
        size = 0.5 * jnp.log1p(-2 * q * (1 - q) * versine)
        return count * size, count * _angles(q, sine, versine)

    return _total(logarithms, chances, counts)


def _angles(q: jax.Array, sine: jax.Array, versine: jax.Array) -> jax.Array:
    """The angles of 1 - q (1 - cos t) + i q sin t, for t from 0 to below pi and q up to 1/2.

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
    summands: _Complex, sines: jax.Array, versines: jax.Array, tilted: jax.Array, left: jax.Array
) -> jax.Array:
    """The sum over the points of the real part of the summands divided by each factor."""
    twice_variances = 2 * tilted * left
    quotients = [
        (real * (1 - tilted * versine) + imaginary * (tilted * sine))
        / (1 - twice_variances * versine)
        for real, imaginary, sine, versine in zip(
            *(array[:, None] for array in (*summands, sines, versines)), strict=True
        )
    ]
    return sum(quotients[1:], quotients[0])
