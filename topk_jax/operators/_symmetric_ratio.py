"""The ratio of two consecutive symmetric polynomials and its derivatives, without logarithms."""

from collections.abc import Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from topk_jax import _classes, _platforms, _sharding
from topk_jax._compilation import compiled
from topk_jax.operators import _polynomials

# Up to this degree a sum gives a good enough tilt; above it bisection is used.
_HIGHEST_SUMMED_DEGREE = 32
_BISECTIONS = 12
# Up to this number there is no loop on an accelerator, because a loop starts kernels in each pass.
# The number of terms grows with the square.
_MOST_UNROLLED_COEFFICIENTS = 16


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
    any entry of `factors`. The derivatives are nonnegative and add up to 1.

    Identity: a common factor of the sigmas does not change the ratio, and a factor e^(-t) on every
    value (the tilt) divides it by e^t. So each class has the factor 1 - p + z p with p = sigmoid(x
    - t), and the sigmas become the probabilities that k and k-1 of independent classes are drawn.
    The tilt t is chosen so that about k are drawn on average. Hazard: the sigmas overflow,
    logarithms need one exponential per term, and division of polynomials cancels. Choice: a tree of
    products of polynomials in z. Their coefficients are probabilities, so they do not overflow. The
    two that are needed are at least about (2 e)^-k (a fraction of 1/sqrt(k) if the tilt is
    bisected), so terms that underflow are negligible. For `rest` see `_polynomial_of_rest`. The
    derivatives use the same tree. Cost: O(C k + R k) multiplications and additions, one exponential
    per entry. If the classes are split over devices, so is the rest, and the devices exchange k
    sums of it.
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
    root, levels = _polynomials.product(leaves, num_factors, max(ranks))
    shape_of_root = root.shape
    root = root.reshape(len(root), -1)
    highest, next_highest = (_coefficient(root, of_rest, rank) for rank in ranks)
    value = jnp.log(highest / next_highest) + tilt
    by_root = _slopes_of_ratio(of_rest, root.shape[0], ranks, highest, next_highest)
    by_leaf = _polynomials.back_to_leaves(by_root.reshape(shape_of_root), levels)
    change = by_leaf[1:] - by_leaf[:1]
    slopes = drawn * left * (-change if counts_left else change)
    slopes = slopes.reshape(num_factors, -1).T.reshape(*batch_shape, num_factors)
    value = value.reshape(batch_shape)
    if rest is None or values is None:
        return value, slopes, None
    by_rest = _slopes_of_ratio(root, k + 1, ranks, highest, next_highest)
    slopes_of_rest = _slopes_of_rest(values, by_rest, of_rest, tilt)
    return value, slopes, slopes_of_rest.reshape(rest.shape)


def _tilt(factors: jax.Array, power_sums: list[jax.Array], k: int) -> jax.Array:
    """A tilt t, [examples], at which about k classes are drawn; a constant for the derivative.

    Let u be the values of all classes except the k-1 largest; they are at most 1. With
    t = log(max(1, sum u / k)) at most k of these classes are drawn on average. If t is not 0, the
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

    Identity: Newton's, m e_m = sum_i (-1)^(i-1) e_{m-i} P_i, with P_i the sum of v^i. Hazard: the
    terms have both signs; their absolute values add up to h_m, the sum over multisets. Choice: use
    it only for the rest, after C >= k-1 values that are at least as large are multiplied out.
    Replacing the repeated values of a multiset by some of these C values gives a set. This shows
    that the errors are at most (1 + (k-1)/C)^k times the errors of a sum of positive terms: e^2 for
    C = k^2 / 2. Cost: one multiplication and one addition per power and value; a product needs k.
    """
    k = len(power_sums)
    signs = jnp.array([(-1) ** index for index in range(k)], tilt.dtype)
    signed = signs[:, None] * jnp.stack(power_sums) * _scales(tilt, k)

    one = jnp.ones_like(tilt)[None]

    # A loop, because XLA on the CPU would compute the terms of unrolled coefficients again for each
    # later one.
    def in_a_loop(signed: jax.Array, one: jax.Array) -> jax.Array:
        def next_coefficient(
            newest_first: jax.Array, degree: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            coefficient = (signed * newest_first).sum(axis=0, keepdims=True) / degree
            return jnp.concatenate([coefficient, newest_first[:-1]]), coefficient[0]

        start = jnp.concatenate([one, jnp.zeros_like(signed[1:])])
        degrees = jnp.arange(1, k + 1, dtype=signed.dtype)
        return jnp.concatenate([one, jax.lax.scan(next_coefficient, start, degrees)[1]])

    def unrolled(signed: jax.Array, one: jax.Array) -> jax.Array:
        found = [one]
        for degree in range(1, k + 1):
            terms = [signed[i : i + 1] * found[-1 - i] for i in range(degree)]
            found.append(sum(terms[1:], start=terms[0]) / degree)
        return jnp.concatenate(found)

    elsewhere = unrolled if k <= _MOST_UNROLLED_COEFFICIENTS else in_a_loop
    return _platforms.choose(signed, one, cpu=in_a_loop, default=elsewhere)


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


def _slopes_of_ratio(
    other: jax.Array,
    num_coefficients: int,
    ranks: tuple[int, int],
    highest: jax.Array,
    next_highest: jax.Array,
) -> jax.Array:
    """The derivatives of log(a / b) in the coefficients of one of two polynomials.

    a and b are the coefficients of the two ranks in the product with the polynomial `other`.
    """
    return _reversed(other, num_coefficients, ranks[0]) / highest[None] - (
        _reversed(other, num_coefficients, ranks[1]) / next_highest[None]
    )


def _reversed(polynomial: jax.Array, num_coefficients: int, rank: int) -> jax.Array:
    """The coefficients of z^rank, z^(rank-1), ..., with zeros for those that do not exist."""
    after = rank + 1 - polynomial.shape[0]
    before = num_coefficients - 1 - rank
    return jax.lax.pad(
        polynomial[::-1], jnp.zeros((), polynomial.dtype), [(after, before, 0), (0, 0, 0)]
    )
