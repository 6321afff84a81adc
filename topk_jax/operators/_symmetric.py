"""The ratio of two consecutive symmetric polynomials, and products of many polynomials in a tree.

A polynomial has its coefficients along axis 0, from the lowest degree on.
"""

from collections.abc import Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from topk_jax import _classes, _compilation, _sharding
from topk_jax._compilation import compiled
from topk_jax.operators._poisson_binomial import polynomial_of_sums

# Up to this degree a sum gives a good enough tilt; above it bisection is used.
_HIGHEST_SUMMED_DEGREE = 32
_BISECTIONS = 12
# Coefficients in a pass on an accelerator, where a loop starts kernels in each pass.
_MOST_UNROLLED = 16
_MOST_UNROLLED_TERMS = 129


@partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def log_ratio_of_sigmas(
    factors: jax.Array,
    rest: jax.Array | None,
    k: int,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """log(sigma_k / sigma_{k-1}) of the exponentials of all entries, `[...]`.

    In `factors`, [..., C], k-1 entries are at least 0 and one is 0. All other entries, including
    the entries of `rest`, [..., R], are at most 0; -inf masks a class. No entry of `rest` is above
    any entry of `factors`. Only the rest may be split over devices.

    A factor e^(-t) on every value (the tilt) divides the ratio by e^t. So each class has the factor
    1 - p + z p with p = sigmoid(x - t), and the sigmas become the probabilities that k and k-1 of
    independent classes are drawn: nothing overflows. The tilt draws about k on average, so that the
    two are at least about (2 e)^-k, and terms that underflow are negligible.
    """
    return _ratio_on_each_device(factors, rest, k, class_axis_name)[0]


@log_ratio_of_sigmas.defjvp
def _log_ratio_of_sigmas_jvp(
    k: int,
    class_axis_name: Hashable | None,
    primals: tuple[jax.Array, Any],
    tangents: tuple[jax.Array, Any],
) -> tuple[jax.Array, jax.Array]:
    value, slopes, slopes_of_rest = _ratio_on_each_device(*primals, k, class_axis_name)
    tangent = (slopes * tangents[0]).sum(axis=-1)
    if slopes_of_rest is not None:
        tangent += _classes.sum_classes(slopes_of_rest * tangents[1], class_axis_name)
    return value, tangent


@compiled
def _ratio_on_each_device(
    factors: jax.Array, rest: jax.Array | None, k: int, class_axis_name: Hashable | None
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    of_batch = partial(_log_ratio_and_slopes, k, class_axis_name)
    return _sharding.map_examples(of_batch, factors.ndim - 1, factors, rest)


def _log_ratio_and_slopes(
    k: int, class_axis_name: Hashable | None, factors: jax.Array, rest: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """The logarithm of the ratio, and its derivatives in the factors and in the rest."""
    batch_shape, num_factors = factors.shape[:-1], factors.shape[-1]
    factors = factors.reshape(-1, num_factors)
    values = None if rest is None else jnp.exp(rest.reshape(-1, rest.shape[-1]))
    power_sums = [] if values is None else _power_sums(values, k, class_axis_name)
    tilt = _tilt(factors, power_sums, k)
    of_rest = _polynomial_of_rest(power_sums, tilt) if power_sums else jnp.ones_like(tilt)[None]
    # The axes are (coefficients, classes and examples), which fills vector registers for any k. The
    # last two stay apart if the compiler splits the examples over devices.
    tilted = (factors - tilt[:, None]).T[None]
    if not _sharding.is_split_later(tilted):
        tilted = tilted.reshape(1, -1)
    drawn, left = jax.nn.sigmoid(tilted), jax.nn.sigmoid(-tilted)
    # If most classes are drawn, count those that are not drawn.
    counts_left = rest is None and 2 * k > num_factors + 1
    ranks = (num_factors - k, num_factors - k + 1) if counts_left else (k, k - 1)
    leaves = jnp.concatenate([drawn, left] if counts_left else [left, drawn])
    root, levels = _product(leaves, num_factors, max(ranks))

    def log_ratio(root: jax.Array, of_rest: jax.Array) -> jax.Array:
        root = root.reshape(len(root), -1)
        highest, next_highest = (_coefficient(root, of_rest, rank) for rank in ranks)
        return jnp.log(highest / next_highest)

    value, pull_back = jax.vjp(log_ratio, root, of_rest)
    by_root, by_rest = pull_back(jnp.ones_like(value))
    # JAX's own slopes of the product take several times as long.
    by_leaf = _back_to_leaves(by_root, levels)
    change = by_leaf[1:] - by_leaf[:1]
    slopes = drawn * left * (-change if counts_left else change)
    slopes = slopes.reshape(num_factors, -1).T.reshape(*batch_shape, num_factors)
    value = (value + tilt).reshape(batch_shape)
    if rest is None or values is None:
        return value, slopes, None
    slopes_of_rest = _slopes_of_rest(values, by_rest, of_rest, tilt)
    return value, slopes, slopes_of_rest.reshape(rest.shape)


def _tilt(factors: jax.Array, power_sums: list[jax.Array], k: int) -> jax.Array:
    """A tilt t, [examples], at which about k classes are drawn; a constant for the derivative.

    Let u be the values of all classes except the k-1 largest, at most 1 each. With
    t = log(max(1, sum u / k)) at most k of these are drawn on average, and if t is not 0, the
    coefficients of their polynomial up to k are at least about 1. The bracket of the bisection is
    valid because k values are at least 1, and all but k-1 are at most 1.
    """
    factors = jax.lax.stop_gradient(factors)
    if k <= _HIGHEST_SUMMED_DEGREE:
        others = jnp.exp(jnp.minimum(factors, 0)).sum(axis=-1) - (k - 1)
        others += jax.lax.stop_gradient(power_sums[0]) if power_sums else 0
        return jnp.log(jnp.maximum(others / k, 1))

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high) / 2
        too_many = jax.nn.sigmoid(factors - middle).sum(axis=-1, keepdims=True) > k - 0.5
        return jnp.where(too_many, middle, low), jnp.where(too_many, high, middle)

    zero = jnp.zeros_like(factors[:, :1])
    bounds = (zero - jnp.log(2.0 * k), zero + jnp.log(2.0 * factors.shape[-1]))
    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, bounds)
    return ((low + high) / 2)[:, 0]


def _power_sums(values: jax.Array, k: int, class_axis_name: Hashable | None) -> list[jax.Array]:
    """The sums of the values' powers 1 to k over the classes."""
    power, sums = values, [values.sum(axis=-1)]
    for _ in range(k - 1):
        power = power * values
        sums.append(power.sum(axis=-1))
    return sums if class_axis_name is None else jax.lax.psum(sums, class_axis_name)


def _polynomial_of_rest(power_sums: list[jax.Array], tilt: jax.Array) -> jax.Array:
    """The coefficients [k+1, examples] of the product of 1 + z v over the rest.

    Newton's identity is m e_m = sum_i (-1)^(i-1) e_{m-i} P_i, with P_i the sum of v^i. Its terms
    have both signs. After C >= k-1 values that are at least as large are multiplied out, the errors
    are at most (1 + (k-1)/C)^k times those of positive terms: e^2 for C = k^2 / 2.
    """
    scaled = jnp.stack(power_sums) * _scales(tilt, len(power_sums))
    sums = jnp.concatenate([jnp.zeros_like(tilt)[None], scaled])
    # A loop on the CPU, because XLA would compute the terms of unrolled coefficients again for each
    # later one.
    on_cpu, elsewhere = (
        partial(polynomial_of_sums, unroll=unroll)
        for unroll in (1, min(len(power_sums), _MOST_UNROLLED))
    )
    return _compilation.choose(sums, cpu=on_cpu, default=elsewhere)


def _scales(tilt: jax.Array, k: int) -> jax.Array:
    """The factors that tilt the powers 1 to k of values, [k, examples]."""
    powers = jnp.arange(1, k + 1, dtype=tilt.dtype)
    return jnp.exp(-powers[:, None] * tilt[None])


def _slopes_of_rest(
    values: jax.Array, by_rest: jax.Array, of_rest: jax.Array, tilt: jax.Array
) -> jax.Array:
    """The derivatives [examples, R] in the logarithms of the rest's values.

    By the same identity, the product without one value is a polynomial in that value. Its
    coefficients are the same for all classes.
    """
    k = of_rest.shape[0] - 1
    scales = _scales(tilt, k)
    coefficients = [
        (-1) ** index * scales[index] * (by_rest[index + 1 :] * of_rest[: k - index]).sum(axis=0)
        for index in range(k)
    ]
    slopes = coefficients.pop()[:, None]
    while coefficients:
        slopes = coefficients.pop()[:, None] + values * slopes
    return values * slopes


def _coefficient(first: jax.Array, second: jax.Array, rank: int) -> jax.Array:
    """The coefficient of z^rank in the product of two polynomials [coefficients, examples]."""
    lowest = max(0, rank - (second.shape[0] - 1))
    highest = min(rank, first.shape[0] - 1)
    opposite = second[rank - highest : rank - lowest + 1][::-1]
    return (first[lowest : highest + 1] * opposite).sum(axis=0)


def _product(
    leaves: jax.Array, num_nodes: int, degree: int
) -> tuple[jax.Array, list[tuple[jax.Array, int]]]:
    """The product modulo z^(degree+1) of polynomials [2, nodes * examples], and the levels below.

    Nodes and examples may also be two axes. The first half of a level's nodes is multiplied with
    the second half. The last node of an odd level moves up unchanged.
    """
    level, levels = leaves, []
    size = leaves.shape[1] // num_nodes
    while num_nodes > 1:
        half = num_nodes // 2
        levels.append((level, half))
        first, second, single = _halves_and_rest(level, half * size)
        width = min(2 * len(level) - 1, degree + 1)
        # The product of two polynomials. The rows have zeros before and after their coefficients.
        products = _sum_of_windows(first[::-1], _pad(second, len(first) - 1, width), width)
        level = jnp.concatenate([products, _pad(single, 0, width)], axis=1)
        num_nodes -= half
    return level, levels


def _back_to_leaves(slopes: jax.Array, levels: list[tuple[jax.Array, int]]) -> jax.Array:
    """The derivatives in the leaves' coefficients, given those in the root's."""
    size = slopes.shape[1]
    for level, half in reversed(levels):
        first, second, _ = _halves_and_rest(level, half * size)
        width = len(level)
        padded = _pad(slopes[:, : half * size], 0, 2 * width - 1)
        of_factors = (_sum_of_windows(factor, padded, width) for factor in (second, first))
        slopes = jnp.concatenate([*of_factors, slopes[:width, half * size :]], axis=1)
    return slopes


def _halves_and_rest(level: jax.Array, length: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The first half of a level's nodes, the second half, and the node left over."""
    return level[:, :length], level[:, length : 2 * length], level[:, 2 * length :]


def _pad(polynomials: jax.Array, before: int, width: int) -> jax.Array:
    """The polynomials [coefficients, ...] with zeros before and, for at least a width, after."""
    after = max(0, width - len(polynomials))
    return jnp.pad(polynomials, [(before, after), *[(0, 0)] * (polynomials.ndim - 1)])


def _sum_of_windows(weights: jax.Array, rows: jax.Array, width: int) -> jax.Array:
    """The sum over i of weights[i] times rows i to i + width.

    Unrolled code is a single pass, but its compile time grows with the number of terms.
    """
    num_terms = weights.shape[0]
    if num_terms <= _MOST_UNROLLED_TERMS:
        terms = [weights[i : i + 1] * rows[i : i + width] for i in range(num_terms)]
        return sum(terms[1:], start=terms[0])

    def add(total: jax.Array, index: jax.Array) -> tuple[jax.Array, None]:
        weight = jax.lax.dynamic_slice_in_dim(weights, index, 1)
        return total + weight * jax.lax.dynamic_slice_in_dim(rows, index, width), None

    return jax.lax.scan(add, jnp.zeros_like(rows[:width]), jnp.arange(num_terms))[0]
