"""Entries of rows at given indices, and orders of indices, in forms that suit an accelerator."""

from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp

from topk_jax import _platforms

# The most indices of a row that are compared with its entries. For more, a scatter costs less.
_MOST_COMPARED = 16
# The most indices of a row that are compared with each other. For more, a sort costs less.
_MOST_COUNTED = 66
# The most parts in which numbers are added up.
_NUM_PARTS = 256


def as_if_some(function: Callable[..., Any], *operands: Any) -> Any:
    """`function(*operands)` of examples, in a program of `jax.export` for any number of them, too.

    Hazard: JAX refuses gathers along an axis whose size in such a program may be 0, like that of
    n - 1. Choice: these sizes become max(n - 1, 1), and the results are cut. So an example must not
    depend on others. Cost: none, because the sizes are the same once XLA knows that n is not 1.

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

    Identity: the gradient of an entry is the comparison of its index with the indices of the row.
    Hazard: the transpose of a gather is a scatter, which needs a row of zeros, and on an
    accelerator XLA fuses neither with what follows. Choice: on accelerators, comparisons for few
    entries. Cost: one comparison of each entry of the row with each index.
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


@jax.custom_jvp
def take_entry(rows: jax.Array, index: jax.Array) -> jax.Array:
    """The entry [...] of rows [..., L] at an index [...] of each, for rows that are computed.

    Identity: the sum of the row, with zeros at the other indices. Hazard: on a TPU a gather is
    several kernels, and stores the rows for them; on a GPU it is fused. Choice: except on the CPU
    and NVIDIA's GPUs, the sum, which XLA fuses with the code of the rows. Cost: a pass over the
    rows; an entry of -0 becomes 0.
    """

    def elsewhere(rows: jax.Array, index: jax.Array) -> Any:
        return _platforms.choose_accelerator(
            rows, index, cuda=_entry_by_gather, default=_entry_by_comparison
        )

    entry: jax.Array = _platforms.choose(rows, index, cpu=_entry_by_gather, default=elsewhere)
    return entry


@take_entry.defjvp
def _take_entry_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    rows, index = primals
    # As in `take_entries`: the transpose of a gather is a scatter.
    tangent = _platforms.choose(
        tangents[0], index, cpu=_entry_by_gather, default=_entry_by_comparison
    )
    return take_entry(rows, index), tangent


def _entry_by_gather(rows: jax.Array, index: jax.Array) -> jax.Array:
    return take_along(rows, index[..., None])[..., 0]


def _entry_by_comparison(rows: jax.Array, index: jax.Array) -> jax.Array:
    is_taken = compare_with(index[..., None], rows.shape[-1])[..., 0, :]
    return jnp.where(is_taken, rows, 0).sum(axis=-1)


def compare_with(indices: jax.Array, length: int) -> jax.Array:
    """Whether each index [..., S] is each of 0 to `length` - 1: booleans [..., S, L]."""
    entries = jnp.arange(length, dtype=indices.dtype)
    return indices[..., None] == entries.reshape((1,) * indices.ndim + (length,))


def in_ascending_order(indices: jax.Array) -> jax.Array:
    """The indices [..., S] of each row in ascending order, without a gradient.

    Identity: the place of an index is the number of those before it. Hazard: a sort on an
    accelerator is a kernel of its own, and it is slow for few entries. Choice: on accelerators,
    comparisons of all pairs for few indices. Cost: 2 S comparisons for each index.
    """
    size = indices.shape[-1]

    def by_counts(indices: jax.Array) -> jax.Array:
        # Those compared with are along the last axis.
        one, others = indices[..., :, None], indices[..., None, :]
        entries = jax.lax.broadcasted_iota(jnp.int32, (*indices.shape, size), indices.ndim)
        own = jax.lax.broadcasted_iota(jnp.int32, entries.shape, indices.ndim - 1)
        is_before = (others < one) | ((others == one) & (entries < own))
        places = is_before.sum(axis=-1, dtype=jnp.int32)
        is_at = places[..., None, :] == own
        return jnp.where(is_at, others, 0).sum(axis=-1, dtype=indices.dtype)

    def by_sort(indices: jax.Array) -> jax.Array:
        return jnp.sort(indices, axis=-1)

    few = by_counts if size <= _MOST_COUNTED else by_sort
    return _platforms.choose(indices, cpu=by_sort, default=few)


def add_by_group(num_groups: int, index: jax.Array, numbers: jax.Array | int) -> jax.Array:
    """The sums of numbers [n] by their groups, [G]. An index of G or more counts nowhere.

    Hazard: for one group and n vmapped rows, XLA on the CPU (JAX 0.10) shares one buffer between
    the sums and indices that are constants. Choice: no scatter for one group. Hazard: a million
    weights of 0.1 that are added one by one in float32 are too large by a hundredth. Choice: the
    sums of parts first, if the groups are few. Cost: memory for at most one number for each
    example, or for 256 sums of each group in a program for any number of examples.
    """
    dtype = jnp.result_type(numbers)
    if num_groups == 1:
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
