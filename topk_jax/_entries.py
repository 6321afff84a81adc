"""Entries of rows at given indices, and orders of indices, in forms that suit an accelerator."""

from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp

from topk_jax import _platforms

# The most indices of a row that are compared with its entries. For more, a scatter costs less.
_MOST_COMPARED = 16
# The most parts in which numbers are added up.
_NUM_PARTS = 256


def as_if_some(function: Callable[..., Any], *operands: Any) -> Any:
    """`function(*operands)` of examples, in a program of `jax.export` for any number of them, too.

    JAX refuses gathers along an axis whose size in such a program may be 0, like that of n - 1. So
    these sizes become max(n - 1, 1), and the results are cut; an example must not depend on others.

    Args:
        function: takes the operands and returns a tree of arrays, with the same sizes of the axes
            of examples.
        operands: trees of arrays.
    """
    given = {size for array in jax.tree.leaves(operands) for size in array.shape}
    symbols = {size for size in given if not isinstance(size, int)}
    # A size that is known to be at least 1 stays the same.
    enlarged = {size: jax.core.max_dim(size, 1) for size in symbols}
    enlarged = {size: larger for size, larger in enlarged.items() if larger != size}
    if not enlarged:
        return function(*operands)
    sizes = {larger: size for size, larger in enlarged.items()}

    def pad(array: jax.Array) -> jax.Array:
        config = [(0, enlarged.get(size, size) - size, 0) for size in array.shape]
        return jax.lax.pad(array, jnp.zeros((), array.dtype), config)

    def cut(array: jax.Array) -> jax.Array:
        limits = [sizes.get(size, size) for size in array.shape]
        return jax.lax.slice(array, [0] * array.ndim, limits)

    return jax.tree.map(cut, function(*jax.tree.map(pad, operands)))


def map_rows(function: Callable[..., Any], *operands: Any) -> Any:
    """`jax.vmap(function)(*operands)`, for a number of examples that may be 0: `as_if_some`."""
    return as_if_some(jax.vmap(function), *operands)


def take_along(
    values: jax.Array, indices: jax.Array, axis: int = -1, mode: str = "promise_in_bounds"
) -> jax.Array:
    """`jnp.take_along_axis`, for a number of examples that may be 0: see `as_if_some`."""

    def take(values: jax.Array, indices: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, indices, axis=axis, mode=mode)

    found: jax.Array = as_if_some(take, values, indices)
    return found


@jax.custom_jvp
def take_entries(rows: jax.Array, indices: jax.Array) -> jax.Array:
    """The entries [..., S] of rows [..., L] at indices [..., S], which are in [0, L).

    The transpose of a gather is a scatter, which an accelerator does not fuse with what follows. So
    there the derivative of few entries compares indices.
    """
    return take_along(rows, indices)


@take_entries.defjvp
def _take_entries_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    rows, indices = primals

    def by_gather(tangent: jax.Array, indices: jax.Array) -> jax.Array:
        return take_along(tangent, indices)

    def by_comparison(tangent: jax.Array, indices: jax.Array) -> jax.Array:
        is_taken = compare_with(indices, rows.shape[-1])
        return jnp.where(is_taken, tangent[..., None, :], 0).sum(axis=-1)

    few = by_comparison if indices.shape[-1] <= _MOST_COMPARED else by_gather
    tangent = _platforms.choose(tangents[0], indices, cpu=by_gather, default=few)
    return take_entries(rows, indices), tangent


def compare_with(indices: jax.Array, length: int) -> jax.Array:
    """Whether each index [..., S] is each of 0 to `length` - 1: booleans [..., S, L]."""
    entries = jnp.arange(length, dtype=indices.dtype)
    return indices[..., None] == entries.reshape((1,) * indices.ndim + (length,))


def add_by_group(num_groups: int, index: jax.Array, numbers: jax.Array | int) -> jax.Array:
    """The sums of numbers [n] by their groups, [G]. An index of G or more counts nowhere.

    A million weights of 0.1 that are added one by one in float32 are too large by a hundredth, so
    sums of parts come first, if the groups are few.
    """
    dtype = jnp.result_type(numbers)
    if num_groups == 1:
        # For vmapped rows, XLA on the CPU (JAX 0.10) shares a buffer between a scatter's sums and
        # constant indices.
        return jnp.where(index == 0, numbers, 0).sum(dtype=dtype, keepdims=True)
    num_parts = 1
    if jnp.issubdtype(dtype, jnp.floating):
        is_known = isinstance(index.size, int)
        num_parts = min(_NUM_PARTS, index.size // num_groups) if is_known else _NUM_PARTS
    if num_parts <= 1:
        return jnp.zeros(num_groups, dtype).at[index].add(numbers, mode="drop")
    part = jax.lax.iota(jnp.int32, index.size) % num_parts
    parts = jnp.zeros((num_parts, num_groups), dtype).at[part, index].add(numbers, mode="drop")
    return parts.sum(axis=0)
