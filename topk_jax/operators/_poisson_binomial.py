"""The number N of independent events that occur: its distribution, and bounds of it.

A polynomial here is sum_j P(N = j) x^j modulo x^k, stored as its first k coefficients along axis 0.
Events are along axis 0 too. All other axes are batch axes.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

# Probabilities below this are neglected: a hundredth of the documented error.
NEGLIGIBLE = 1e-6
# Scores farther from the k-th than this many times the noise count as infinitely far.
FAR = 60.0
# Of the highest power first; a minimax fit of the relative error.
_TAIL = (
    *(-3.86586034e-05, 1.56323513e-04, 1.61694363e-04, -1.31284841e-03, -1.99362403e-03),
    *(9.86879505e-03, 5.12988381e-02, 1.24570772e-01, 2.00566098e-01, 1.16722621e-01),
)


def product_and_leave_one_out(
    probabilities: jax.Array, rest: jax.Array, unroll: int
) -> tuple[jax.Array, jax.Array]:
    """The polynomial of all events, `[k, ...]`, and P(N = k - 1) without each one, `[C, ...]`.

    `probabilities` [C, ...] are the probabilities of the events, `rest` [k, ...] is the polynomial
    of further events. Without event l, N is the number before l plus the number after l. Division
    by its factor would be unstable; products from both ends add only positive numbers.
    """

    def from_the_left(
        before: jax.Array, probability: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        return _with_event(before, probability), (before, probability)

    def from_the_right(
        after: jax.Array, event: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        before, probability = event
        return _with_event(after, probability), (before * after[::-1]).sum(axis=0)

    none = no_events(len(rest), rest[0])
    _, events = jax.lax.scan(from_the_left, none, probabilities, unroll=unroll)
    return jax.lax.scan(from_the_right, rest, events, reverse=True, unroll=unroll)


def no_events(k: int, like: jax.Array) -> jax.Array:
    """The polynomial 1, without any event, for the shape and dtype of `like` [...]: `[k, ...]`."""
    return jnp.concatenate([jnp.ones_like(like)[None], jnp.zeros((k - 1, *like.shape), like.dtype)])


def _with_event(polynomial: jax.Array, probability: jax.Array) -> jax.Array:
    shifted = jnp.concatenate([jnp.zeros_like(polynomial[:1]), polynomial[:-1]])
    return polynomial + probability[None] * (shifted - polynomial)


def polynomial_of_sums(sums: jax.Array, unroll: int) -> jax.Array:
    """The polynomial of events with these sums over them `[k, ...]`.

    The first is that of log(1 - p), the log-probability that no event occurs. Those for m = 1 ..
    k - 1 are of the powers r^m of the odds r = p / (1 - p).

    Newton's identity is n e_n = sum_m (-1)^(m+1) S_m e_(n-m). If 100 events are expected, the first
    coefficients underflow but later ones do not. So they are relative to the first, scaled down as
    they grow, and the logarithm of the scale is kept.
    """
    log_none, powers = sums[0], sums[1:]
    first = jnp.exp(log_none)[None]
    if len(powers) == 0:
        return first
    signs = jnp.where(jnp.arange(len(powers)) % 2 == 0, 1.0, -1.0).astype(powers.dtype)
    signed = powers * signs.reshape(-1, *[1] * log_none.ndim)

    def next_coefficient(
        state: tuple[jax.Array, jax.Array], degree: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        latest, log_scale = state
        coefficient = (signed * latest).sum(axis=0) / degree
        factor = jnp.where(jnp.abs(coefficient) > 1e15, 1e-15, 1.0).astype(coefficient.dtype)
        log_scale = log_scale - jnp.log(factor)
        coefficient = factor * coefficient
        latest = jnp.concatenate([coefficient[None], factor[None] * latest[:-1]])
        return (latest, log_scale), coefficient * jnp.exp(log_scale)

    degrees = jnp.arange(1, len(sums)).astype(powers.dtype)
    start = (no_events(len(powers), log_none), log_none)
    _, others = jax.lax.scan(next_coefficient, start, degrees, unroll=unroll)
    return jnp.concatenate([first, others])


def highest_chance(k: int) -> float:
    """The probability at which the unlikely events are clipped.

    Rounding errors grow like the k-th power of the odds; the clip limits this to 1000. If an event
    is more likely, P(N < k) is negligible anyway: see `num_likely`.
    """
    odds = min(7 / 3, 1000 ** (1 / k))
    return odds / (1 + odds)


@functools.lru_cache
def num_likely(k: int) -> int:
    """The number C of most likely events to multiply out, so that the others can be clipped.

    If one of the others has a probability above the clip c, so have the C most likely ones. Then
    the probability of fewer than k events is below P(Bin(C, c) < k), with or without clipping. This
    C makes it negligible.
    """
    chance, size = highest_chance(k), 2 * k
    while (
        sum(math.comb(size, j) * chance**j * (1 - chance) ** (size - j) for j in range(k))
        > NEGLIGIBLE
    ):
        size += 1
    return size


@functools.lru_cache
def surely_above(k: int, size: int, log_tail: float) -> float:
    """The x such that k of `size` scores with unit noise exceed t if they are at least t + x.

    This fails with a probability of at most exp(log_tail), by Chernoff's bound: P(Bin(m, p) < k) is
    at most exp(-m KL((k - 1) / m || p)) for p above (k - 1) / m.
    """
    share = (k - 1) / size

    def is_sure(x: float) -> bool:
        p, q = normal_above(-x), normal_above(x)
        if q == 0 or p <= share:
            return q == 0
        parts = [(part, chance) for part, chance in ((share, p), (1 - share, q)) if part > 0]
        divergence = sum(part * math.log(part / chance) for part, chance in parts)
        return size * divergence >= -log_tail

    return _smallest(is_sure, -40.0, 40.0)


@functools.lru_cache
def sure_mean(k: int, log_tail: float) -> float:
    """The mean above which a count is at least k.

    This fails with a probability of at most exp(log_tail), by Chernoff's bound for sums of
    independent events: P(N < k) is at most exp(-mu + k - 1 - (k - 1) log((k - 1) / mu)) for a mean
    mu above k - 1.
    """
    below = k - 1

    def is_sure(mean: float) -> bool:
        excess = below * math.log(below / mean) if below else 0.0
        return mean > below and mean - below + excess >= -log_tail

    return _smallest(is_sure, 1e-3, 1e3 + 2 * k)


def _smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest number for which a monotone condition holds, by bisection."""
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def normal_above(x: float) -> float:
    """P(Z > x) for a standard normal Z."""
    return 0.5 * math.erfc(x * math.sqrt(0.5))


def normal(gaps: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(Z > gap) and the density at the gap, for a standard normal Z."""
    return _above(gaps), _density(gaps)


@jax.custom_jvp
def _above(gaps: jax.Array) -> jax.Array:
    """P(Z > gap).

    For x >= 0, P(Z > x) / exp(-x^2 / 2) is a smooth function of 2 / (1 + 0.318 x) - 1: one
    polynomial of degree 9, with a relative error of 6e-8 up to 8, in place of `erfc`'s three.
    """
    if gaps.dtype == jnp.float64:
        return 0.5 * jax.scipy.special.erfc(gaps * math.sqrt(0.5))
    place = 2 / (1 + 0.318 * jnp.abs(gaps)) - 1
    ratio = jnp.full_like(gaps, _TAIL[0])
    for coefficient in _TAIL[1:]:
        ratio = ratio * place + coefficient
    tail = jnp.exp(-0.5 * gaps * gaps) * ratio
    return jnp.where(gaps < 0, 1 - tail, tail)


@_above.defjvp
def _above_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return _above(*primals), -_density(*primals) * tangents[0]


def _density(gaps: jax.Array) -> jax.Array:
    return jnp.exp(-0.5 * gaps * gaps) / math.sqrt(2 * math.pi)
