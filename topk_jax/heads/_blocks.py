"""Scores of a batch in blocks of classes, and gradients without the scores of all classes `[n, L]`.

All blocks have one size. If the size does not divide L, the last block starts earlier and repeats
classes of the block before it, with scores of -inf. The score of a masked class is
`_numerics.FLOOR`, which is above -inf.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from topk_jax import _numerics

Carry = TypeVar("Carry")


class Layer(NamedTuple):
    """The parameters of a head.

    Attributes:
        weights: in any floating-point type, `[d, L]`.
        bias: in the type of the scores, `[L]`, or `None`.
    """

    weights: jax.Array
    bias: jax.Array | None


class Block(NamedTuple):
    """Scores of consecutive classes.

    Attributes:
        scores: `[n, B]`; -inf for classes of the block before.
        classes: the indices of the classes, `[B]`.
    """

    scores: jax.Array
    classes: jax.Array


def scan_blocks(
    step: Callable[[Carry, Block], Carry],
    unit: bool,
    block_size: int,
    rows: jax.Array,
    layer: Layer,
    initial: Carry,
) -> tuple[Carry, jax.Array]:
    """`step` over all blocks, and marks `[n]` that are NaN where a score is NaN, and else 0."""
    num_classes = layer.weights.shape[1]

    def body(index: jax.Array, state: tuple[Carry, jax.Array]) -> tuple[Carry, jax.Array]:
        carry, marks = state
        start, is_new = _place(index, block_size, num_classes)
        vectors = _vectors(unit, _slice(layer.weights, start, block_size).astype(rows.dtype))
        scores = _scores(rows, vectors, layer.bias, start)
        # The maximum that masks may lose a NaN.
        marks = jnp.where(_numerics.are_scores(scores), marks, jnp.nan)
        scores = jnp.where(is_new[None], _numerics.finite_scores(scores), -jnp.inf)
        return step(carry, Block(scores, _classes(start, block_size))), marks

    marks = jnp.zeros_like(rows[:, 0])
    return jax.lax.fori_loop(0, _count(block_size, num_classes), body, (initial, marks))


def pull_back(
    cotangent: Callable[[Block], jax.Array],
    unit: bool,
    block_size: int,
    rows: jax.Array,
    layer: Layer,
) -> tuple[jax.Array, Layer]:
    """The cotangents of the rows and of the layer, from the cotangents `[n, B]` of each block.

    Cost: the scores once more, and the two products that every gradient of a layer needs. Memory:
    the result and one block.
    """
    num_classes = layer.weights.shape[1]

    def body(index: jax.Array, state: tuple[jax.Array, Layer]) -> tuple[jax.Array, Layer]:
        rows_cotangent, sums = state
        start, is_new = _place(index, block_size, num_classes)
        block = _slice(layer.weights, start, block_size).astype(rows.dtype)
        vectors, pull = jax.vjp(functools.partial(_vectors, unit), block)
        scores = _scores(rows, vectors, layer.bias, start)
        has_slope = is_new[None] & ~jnp.isneginf(scores)
        finite = jnp.where(is_new[None], _numerics.finite_scores(scores), -jnp.inf)
        of_scores = cotangent(Block(finite, _classes(start, block_size)))
        of_scores = jnp.where(has_slope, of_scores, 0.0)
        rows_cotangent = rows_cotangent + jnp.einsum("nb,db->nd", of_scores, vectors)
        (of_block,) = pull(jnp.einsum("nd,nb->db", rows, of_scores))
        # Classes of the block before get another 0.
        weights = _added(sums.weights, start, of_block)
        bias = None if sums.bias is None else _added(sums.bias, start, of_scores.sum(axis=0))
        return rows_cotangent, Layer(weights, bias)

    # In place, block by block: stacked blocks would be copied into one array at the end.
    # Hazard: XLA merges the zeros of two heads, and then copies them for each. Choice: a zero that
    # XLA does not know to be one, of these weights. Cost: none.
    unknown = jnp.minimum(jnp.isnan(layer.weights[0, 0]).astype(jnp.int32), 0)
    zeros = jax.tree.map(
        lambda array: jnp.zeros_like(array) + unknown.astype(array.dtype), (rows, layer)
    )
    return jax.lax.fori_loop(0, _count(block_size, num_classes), body, zeros)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def scores_of_classes(unit: bool, rows: jax.Array, layer: Layer, classes: jax.Array) -> jax.Array:
    """The scores of some classes of each example, `[n, S]`, by `classes` [n, S] in [0, L).

    The rule is custom. Reverse mode would add gradients of half precision in half precision if
    examples share a class.
    """
    return _scores_of_classes_forward(unit, rows, layer, classes)[0]


def _scores_of_classes_forward(
    unit: bool, rows: jax.Array, layer: Layer, classes: jax.Array
) -> tuple[jax.Array, Any]:
    vectors = _vectors(unit, _columns(layer.weights, classes, rows.dtype))
    scores = jnp.einsum("nd,dns->ns", rows, vectors.reshape(len(vectors), *classes.shape))
    if layer.bias is not None:
        scores = scores + _entries(layer.bias, classes)
    return scores, (rows, layer, classes)


def _scores_of_classes_backward(
    unit: bool, residuals: Any, cotangent: jax.Array
) -> tuple[jax.Array, Layer, None]:
    rows, layer, classes = residuals
    columns = _columns(layer.weights, classes, rows.dtype)
    vectors, pull = jax.vjp(functools.partial(_vectors, unit), columns)
    rows_cotangent = jnp.einsum(
        "ns,dns->nd", cotangent, vectors.reshape(len(vectors), *classes.shape)
    )
    (of_columns,) = pull(jnp.einsum("ns,nd->dns", cotangent, rows).reshape(columns.shape))
    # A class that several examples have selected is added up first, at the first place that it has,
    # and then written once.
    flat = classes.reshape(-1)
    num_classes = layer.weights.shape[1]
    places = jnp.zeros_like(flat) + jnp.arange(flat.size, dtype=flat.dtype)
    # Only the shape of the sum is used, so XLA does not compute it.
    none = jnp.full_like(layer.weights.sum(axis=0), jnp.iinfo(flat.dtype).max, flat.dtype)
    first = none.at[flat].min(places)[flat]
    sums = jnp.zeros_like(of_columns.T).at[first].add(of_columns.T)
    # Elsewhere nothing is written, because there is no class with that number.
    written = jnp.where(first == places, flat, num_classes + places)
    weights = jnp.zeros_like(layer.weights)
    weights = weights.at[:, written].set(
        sums.T.astype(weights.dtype), mode="drop", unique_indices=True
    )
    bias = None
    if layer.bias is not None:
        bias = jnp.zeros_like(layer.bias).at[flat].add(cotangent.reshape(-1))
    return rows_cotangent, Layer(weights, bias), None


scores_of_classes.defvjp(_scores_of_classes_forward, _scores_of_classes_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def with_slopes_of_scores(
    unit: bool, values: jax.Array, rows: jax.Array, layer: Layer, classes: jax.Array
) -> jax.Array:
    """The values [n, S], with the derivative of `scores_of_classes`, which are not computed."""
    return _with_slopes_forward(unit, values, rows, layer, classes)[0]


def _with_slopes_forward(
    _unit: bool, values: jax.Array, rows: jax.Array, layer: Layer, classes: jax.Array
) -> tuple[jax.Array, Any]:
    return values, (rows, layer, classes)


def _with_slopes_backward(
    unit: bool, residuals: Any, cotangent: jax.Array
) -> tuple[None, jax.Array, Layer, None]:
    return None, *_scores_of_classes_backward(unit, residuals, cotangent)


with_slopes_of_scores.defvjp(_with_slopes_forward, _with_slopes_backward)


def unit_vectors(vectors: jax.Array, *, axis: int) -> jax.Array:
    """Vectors divided by their length; 0 where the length is below 1e-12.

    Hazard: the gradient grows as 1 / length. It is NaN at 0 or, with a floor under the length, so
    large that one example with features 0 ruins the step. Choice: no gradient there.

    Hazard: the squares of long vectors overflow, and the third power of their inverse length, which
    the gradient has, underflows before. Choice: those are scaled by a power of two, which rounds
    nothing. Cost: another sum in the same pass.
    """
    squares = (vectors * vectors).sum(axis=axis, keepdims=True)
    scaled = vectors * 2.0 ** -(jnp.finfo(vectors.dtype).maxexp // 2 + 10)
    scaled_squares = (scaled * scaled).sum(axis=axis, keepdims=True)
    long = squares > 2.0 ** (5 * jnp.finfo(vectors.dtype).maxexp // 8)
    # Written so that a NaN is kept.
    tiny = squares <= 1e-24
    inverse_length = jax.lax.rsqrt(jnp.where(tiny, 1.0, jnp.where(long, scaled_squares, squares)))
    return jnp.where(tiny, 0.0, jnp.where(long, scaled, vectors) * inverse_length)


def _vectors(unit: bool, columns: jax.Array) -> jax.Array:
    return unit_vectors(columns, axis=0) if unit else columns


def _scores(
    rows: jax.Array, vectors: jax.Array, bias: jax.Array | None, start: jax.Array
) -> jax.Array:
    scores = rows @ vectors
    return scores if bias is None else scores + _slice(bias, start, vectors.shape[1])[None]


def _columns(weights: jax.Array, classes: jax.Array, dtype: jnp.dtype) -> jax.Array:
    return _entries(weights, classes.reshape(-1)).astype(dtype)


def _entries(array: jax.Array, classes: jax.Array) -> jax.Array:
    # A rule gets the user's argument of `jax.grad`: outside jit it may be a NumPy array.
    return jnp.asarray(array).at[..., classes].get(mode="promise_in_bounds")


def _count(block_size: int, num_classes: int) -> int:
    return math.ceil(num_classes / block_size)


def _place(index: jax.Array, block_size: int, num_classes: int) -> tuple[jax.Array, jax.Array]:
    """The first class of a block, and which of its classes no earlier block has, `[B]`."""
    begin = index.astype(jnp.int32) * block_size
    start = jnp.minimum(begin, num_classes - block_size)
    return start, _classes(start, block_size) >= begin


def _classes(start: jax.Array, block_size: int) -> jax.Array:
    return start + jnp.arange(block_size, dtype=jnp.int32)


def _slice(array: jax.Array, start: jax.Array, size: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(array, start, size, axis=-1)


def _added(sums: jax.Array, start: jax.Array, terms: jax.Array) -> jax.Array:
    added = _slice(sums, start, terms.shape[-1]) + terms.astype(sums.dtype)
    return jax.lax.dynamic_update_slice_in_dim(sums, added, start, axis=-1)
