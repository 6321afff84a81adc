"""The number N of independent events that occur, for all events and without each of them.

A polynomial here is sum_j P(N = j) x^j modulo x^k, stored as its first k coefficients along axis 0.
Events are along axis 0 too. All other axes are batch axes.
"""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

# Probabilities below this are neglected: a hundredth of the documented error.
NEGLIGIBLE = 1e-6
# The coefficients of `polynomial_of_few_power_sums`: their terms grow with the square.
_MOST_UNROLLED = 16


def product_and_leave_one_out(
    probabilities: jax.Array, rest: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The polynomial of all events, `[k, ...]`, and P(N = k - 1) without each one, `[C, ...]`.

    `probabilities` [C, ...] are the probabilities of the events, `rest` [k, ...] is the polynomial
    of further events.

    Identity: without event l, N is the number before l plus the number after l. Hazard: division by
    the factor of l is unstable if its probability is near one. Choice: products from both ends,
    which multiply and add only positive numbers. Cost: 5 k operations and k stored numbers per
    event and batch entry.
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

    _, events = jax.lax.scan(from_the_left, no_events(len(rest), rest[0]), probabilities)
    return jax.lax.scan(from_the_right, rest, events, reverse=True)


def no_events(k: int, like: jax.Array) -> jax.Array:
    """The polynomial 1, without any event, for the shape and dtype of `like` [...]: `[k, ...]`."""
    return jnp.concatenate([jnp.ones_like(like)[None], jnp.zeros((k - 1, *like.shape), like.dtype)])


def _with_event(polynomial: jax.Array, probability: jax.Array) -> jax.Array:
    shifted = jnp.concatenate([jnp.zeros_like(polynomial[:1]), polynomial[:-1]])
    return polynomial + probability[None] * (shifted - polynomial)


def polynomial_of_power_sums(log_none: jax.Array, power_sums: jax.Array) -> jax.Array:
    """The polynomial of events given by symmetric functions of their odds r = p / (1 - p).

    Args:
        log_none: the sum of log(1 - p), the log-probability that no event occurs, `[...]`.
        power_sums: the sums of r^m for m = 1 .. k - 1, `[k - 1, ...]`.

    Identity: Newton's, n e_n = sum_m (-1)^(m+1) S_m e_(n-m). Only sums up to m = k - 1 are needed,
    so nothing is truncated. Hazard: if 100 events are expected, the first coefficients underflow
    but later ones do not. Choice: coefficients relative to the first, scaled down as they grow, and
    the logarithm of the scale. Cost: k^2 products and k exponentials per batch entry.
    """
    sums = len(power_sums)
    first = jnp.exp(log_none)[None]
    if sums == 0:
        return first
    signs = jnp.where(jnp.arange(sums) % 2 == 0, 1.0, -1.0).astype(power_sums.dtype)
    signed = power_sums * signs.reshape(-1, *[1] * log_none.ndim)

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

    degrees = jnp.arange(1, sums + 1).astype(power_sums.dtype)
    start = (no_events(sums, log_none), log_none)
    _, others = jax.lax.scan(next_coefficient, start, degrees)
    return jnp.concatenate([first, others])


def polynomial_of_few_power_sums(
    log_none: jax.Array, power_sums: Sequence[jax.Array]
) -> list[jax.Array]:
    """The coefficients of `polynomial_of_power_sums`, without a loop if they are few.

    Hazard: the first coefficient underflows in float32 if 50 events are expected or more. Choice:
    no scale, because with so many expected events fewer than `_MOST_UNROLLED` never occur.
    """
    if len(power_sums) >= _MOST_UNROLLED:
        return [*polynomial_of_power_sums(log_none, jnp.stack(power_sums))]
    found = [jnp.exp(log_none)]
    for degree in range(1, len(power_sums) + 1):
        total = power_sums[0] * found[-1]
        for m in range(1, degree):
            term = power_sums[m] * found[-1 - m]
            total = total - term if m % 2 else total + term
        found.append(total / degree)
    return found


def highest_odds(k: int) -> float:
    """The odds at which the unlikely events are clipped.

    Rounding errors of `polynomial_of_power_sums`, and of divisions by the factors of the events,
    grow like r^k. The clip limits the growth to 1000.
    If an event has higher odds, P(N < k) is negligible anyway: see `num_likely`.
    """
    return float(min(7 / 3, 1000 ** (1 / k)))


@functools.lru_cache
def num_likely(k: int) -> int:
    """The number C of most likely events to multiply out, so that the others can be clipped.

    If one of the others has a probability above the clip c, so have the C most likely ones. Then
    the probability of fewer than k events is below P(Bin(C, c) < k), with or without clipping. This
    C makes it negligible.
    """
    odds = highest_odds(k)
    size = 2 * k
    while math.exp(_log_probability_of_fewer(k, size, odds / (1 + odds))) > NEGLIGIBLE:
        size += 1
    return size


def _log_probability_of_fewer(k: int, size: int, p: float) -> float:
    """The logarithm of P(Bin(size, p) < k)."""
    logs = [
        math.lgamma(size + 1)
        - math.lgamma(j + 1)
        - math.lgamma(size - j + 1)
        + j * math.log(p)
        + (size - j) * math.log1p(-p)
        for j in range(k)
    ]
    largest = max(logs)
    return largest + math.log(sum(math.exp(log - largest) for log in logs))


def _divergence(share: float, p: float, q: float) -> float:
    """KL(share || p) with q = 1 - p; infinite if the share is impossible under p."""
    terms = [(share, p), (1 - share, q)]
    if any(part > 0 and probability == 0 for part, probability in terms):
        return math.inf
    return sum(part * math.log(part / probability) for part, probability in terms if part > 0)


@functools.lru_cache
def surely_above(k: int, size: int, log_tail: float) -> float:
    """The x such that k of `size` scores with unit noise exceed t if they are at least t + x.

    This fails with a probability of at most exp(log_tail), by Chernoff's bound: P(Bin(m, p) < k) is
    at most exp(-m KL((k - 1) / m || p)) for p above (k - 1) / m.
    """
    share = (k - 1) / size

    def sure(x: float) -> bool:
        p = _normal(x)
        return p > share and size * _divergence(share, p, _normal(-x)) >= -log_tail

    return _smallest(sure)


@functools.lru_cache
def surely_below(k: int, size: int, log_tail: float) -> float:
    """The x such that fewer than k of `size` scores exceed t if they are at most t - x.

    This fails with a probability of at most exp(log_tail), by Chernoff's bound: P(Bin(m, p) >= k)
    is at most exp(-m KL(k / m || p)) for p below k / m.
    """
    share = k / size

    def sure(x: float) -> bool:
        p = _normal(-x)
        return p < share and size * _divergence(share, p, _normal(x)) >= -log_tail

    return _smallest(sure)


@functools.lru_cache
def sure_mean(k: int, log_tail: float) -> float:
    """The mean above which a count is at least k.

    This fails with a probability of at most exp(log_tail), by Chernoff's bound for sums of
    independent events: P(N < k) is at most exp(-mu + k - 1 - (k - 1) log((k - 1) / mu)) for a mean
    mu above k - 1.
    """
    below = k - 1

    def sure(mean: float) -> bool:
        excess = below * math.log(below / mean) if below else 0.0
        return mean > below and mean - below + excess >= -log_tail

    return _smallest(sure, 1e-3, 1e3 + 2 * k)


def normal_above(x: float) -> float:
    """P(Z > x) for a standard normal Z."""
    return 0.5 * math.erfc(x * math.sqrt(0.5))


def _normal(x: float) -> float:
    return normal_above(-x)


def _smallest(holds: Callable[[float], bool], low: float = -40.0, high: float = 40.0) -> float:
    """The smallest number for which a monotone condition holds, by bisection."""
    for _ in range(60):
        middle = 0.5 * (low + high)
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
