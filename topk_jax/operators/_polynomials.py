"""Products of many polynomials, in a tree.

A polynomial has its coefficients along axis 0, from the lowest degree on.
"""

import jax
import jax.numpy as jnp

_MOST_UNROLLED_TERMS = 129


def product(
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
        width = min(2 * level.shape[0] - 1, degree + 1)
        products = multiply(first, second, width)
        if num_nodes % 2:
            single = _pad_coefficients(single, 0, width - single.shape[0])
            products = jnp.concatenate([products, single], axis=1)
        level, num_nodes = products, num_nodes - half
    return level, levels


def back_to_leaves(slopes: jax.Array, levels: list[tuple[jax.Array, int]]) -> jax.Array:
    """The derivatives in the leaves' coefficients, given those in the root's."""
    size = slopes.shape[1]
    for level, half in reversed(levels):
        first, second, _ = _halves_and_rest(level, half * size)
        width = level.shape[0]
        of_products = slopes[:, : half * size]
        of_single = slopes[:width, half * size :]
        slopes = jnp.concatenate(
            [
                _correlate(of_products, second, width),
                _correlate(of_products, first, width),
                of_single,
            ],
            axis=1,
        )
    return slopes


def _halves_and_rest(level: jax.Array, length: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The first half of a level's nodes, the second half, and the node left over."""
    return level[:, :length], level[:, length : 2 * length], level[:, 2 * length :]


def _pad_coefficients(polynomials: jax.Array, before: int, after: int) -> jax.Array:
    """The polynomials [coefficients, ...] with zero coefficients before and after."""
    return jnp.pad(polynomials, [(before, max(0, after)), *[(0, 0)] * (polynomials.ndim - 1)])


def multiply(first: jax.Array, second: jax.Array, width: int) -> jax.Array:
    """The first `width` coefficients of products of polynomials [coefficients, ...]."""
    degree = first.shape[0] - 1
    padded = _pad_coefficients(second, degree, width - second.shape[0])
    return _sum_of_windows(first[::-1], padded, width)


def _correlate(slopes: jax.Array, factor: jax.Array, width: int) -> jax.Array:
    """The derivatives in one factor's coefficients, from those in the product's coefficients."""
    missing = width + factor.shape[0] - 1 - slopes.shape[0]
    return _sum_of_windows(factor, _pad_coefficients(slopes, 0, missing), width)


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
