"""The threshold at which soft memberships in the k largest scores sum to k."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from topk_jax import _numerics
from topk_jax.operators._top_k import select_kth


def from_kth_largest(scores: jax.Array, k: int | jax.Array, scale: jax.Array) -> jax.Array:
    """The distances of the scores [..., L] from the k-th largest, in steps of the scale.

    A real k, a scalar, is rounded up. It may be traced; the scores are then sorted.

    Hazard: scores of 1e4 over a scale of 1e-6 are 1e10, and their differences do not have a correct
    digit. Choice: subtract the k-th largest score first. In steps of the scale the threshold is
    within log L of it, or in the gap below it, so that the digits that count are kept. Cost: a
    selection.
    """
    if isinstance(k, int):
        kth = select_kth(scores, k)[0]
    else:
        place = scores.shape[-1] - jnp.ceil(k).astype(jnp.int32)
        ascending = jnp.sort(jax.lax.stop_gradient(scores), axis=-1)
        kth = jax.lax.dynamic_slice_in_dim(ascending, place, 1, axis=-1)
    distances = (scores - kth) / scale
    return jnp.clip(distances, _numerics.FLOOR, -_numerics.FLOOR)


def find_threshold(
    distances: jax.Array,
    k: int | jax.Array,
    tail: Callable[[jax.Array], jax.Array],
    density: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """The threshold u with sum F(z - u) = k for distances z from the k-th largest score, [..., 1].

    F is the CDF of a symmetric distribution with a density f and |f'| <= f.

    Identity: let m be the number of distances above u minus k, a the sum of 1 - F over these, and b
    the sum of F over the others. When u grows by d, a grows at most by e^d, b shrinks at most by
    e^-d and so does the slope. So neither the root of m - a e^d + b e^-d nor log(1 + error / slope)
    is beyond the threshold. Hazard: Newton's method diverges to infinity if the sum has a plateau,
    and a sort takes as long as 30 passes. Choice: take the longer of these two steps. The first one
    is exact if the tail is exponential and no distance is passed. While more than 1 of the log L is
    left, a step is at least 0.49; later it leaves at most the square of what was left. So
    2.1 log L + 10 steps are enough, also for float64. A limit ends the search for a scale that is
    traced and negative. Cost: one pass for each step: 1 to 3 for Laplace, 3 to 6 otherwise.

    Args:
        distances: the result of `from_kth_largest`, `[..., L]`.
        k: the sum, greater than 0 and at most L.
        tail: takes magnitudes of z - u, and returns 1 - F there.
        density: takes tails, and returns f there. None for an exponential tail, which is its own
            density.
    """
    limits = jnp.finfo(distances.dtype)
    max_steps = 10 + int(2.1 * math.log(distances.shape[-1]))

    def is_searching(state: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        _, is_found, num_steps = state
        return ~is_found.all() & (num_steps < max_steps)

    def step(
        state: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        threshold, _, num_steps = state
        is_above = distances >= threshold
        tails = tail(jnp.abs(distances - threshold))
        above = jnp.where(is_above, tails, 0).sum(axis=-1, keepdims=True)
        below = jnp.where(is_above, 0, tails).sum(axis=-1, keepdims=True)
        num_above = is_above.sum(axis=-1, keepdims=True, dtype=jnp.int32)
        excess = num_above.astype(distances.dtype) - k
        change = balance(excess, jnp.maximum(above, limits.tiny), jnp.maximum(below, limits.tiny))
        if density is None:
            nearest_above, nearest_below = nearest(distances, is_above)
            moved = threshold + change
            is_exact = (moved <= nearest_above) & (moved >= nearest_below)
            # The sum changes by the square of the step times the slope.
            is_found = is_exact | ~(jnp.abs(change) > 0.3 * limits.eps**0.5)
            return moved, is_found, num_steps + 1
        slope = density(tails).sum(axis=-1, keepdims=True)
        error = excess - above + below
        newton = jnp.sign(error) * jnp.log1p(jnp.abs(error) / jnp.maximum(slope, limits.tiny))
        change = jnp.where(jnp.abs(newton) > jnp.abs(change), newton, change)
        left = change * change * jnp.minimum(slope, 1)
        return threshold + change, ~(left > limits.eps / 8), num_steps + 1

    start = jnp.zeros_like(distances[..., :1])
    return jax.lax.while_loop(is_searching, step, (start, start > 0, jnp.int32(0)))[0]


def nearest(distances: jax.Array, is_above: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The smallest distance of those above and the largest of the others, [..., 1] both.

    Without such a distance they are beyond all others, and finite.
    """
    above = jnp.where(is_above, distances, -_numerics.FLOOR).min(axis=-1, keepdims=True)
    below = jnp.where(is_above, _numerics.FLOOR, distances).max(axis=-1, keepdims=True)
    return above, below


def balance(excess: jax.Array, above: jax.Array, below: jax.Array) -> jax.Array:
    """The root d of m - a e^d + b e^-d, for positive a and b.

    Hazard: one form of the root cancels, and a b underflows. Choice: the form for the sign of m,
    and logarithms for m = 0, where only a b counts.
    """
    log_larger = log_larger_root(jnp.abs(excess), above * below)
    log_above, log_below = jnp.log(above), jnp.log(below)
    return jnp.where(
        excess == 0,
        (log_below - log_above) / 2,
        jnp.where(excess > 0, log_larger - log_above, log_below - log_larger),
    )


def log_larger_root(excess: jax.Array, product: jax.Array) -> jax.Array:
    """The logarithm of the larger root x of x^2 - m x - c, finite for m = c = 0."""
    larger = (excess + jnp.sqrt(excess * excess + 4 * product)) / 2
    return jnp.log(jnp.maximum(larger, jnp.finfo(larger.dtype).tiny))
