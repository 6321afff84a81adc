"""The cross-entropy and the best classes of a head, over blocks of classes.

All blocks have one size. If the size does not divide L, the last block starts earlier and repeats
classes of the block before it, with scores of -inf. The score of a masked class is `FLOOR`, which
is above -inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from topk_jax import _checks
from topk_jax._checks import axis_size, integer_array
from topk_jax._classes import FLOOR, nan_unless, own_places, with_slope_of
from topk_jax._compilation import compiled
from topk_jax._example import check_classes, zero_elsewhere, zero_left_out
from topk_jax._sharding import mesh_axes, unify
from topk_jax.heads._head import LinearHead, check_head
from topk_jax.operators._top_k import merge_devices, select_largest

__all__ = ["cross_entropy", "top_k"]

Carry = TypeVar("Carry")
# Features, the head, the places of the labels and the scores of these.
Given = tuple[jax.Array, LinearHead, jax.Array, jax.Array]
Sums = tuple[jax.Array, jax.Array, jax.Array]

# The number of scores in a block on the CPU, whose cache they fit in, and elsewhere; and the number
# of examples of a program of `jax.export` for any number.
_BLOCK, _BLOCK_OF_OTHERS = 2**20, 2**24
_USUAL_BATCH = 256


def cross_entropy(
    features: ArrayLike,
    head: LinearHead,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    block_size: int | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The cross-entropy of the softmax of a head's scores, without the scores of all classes.

    .. math:: \ell(x, y) = \log \sum_j e^{s_j(x)} - s_y(x)

    Only reverse mode is supported. The backward pass computes the scores again.

    Args:
        features, head, labels, where, block_size, class_axis_name: see `topk_jax.heads`.

    Returns:
        One loss per example, `[...]`, in float32 or float64.

    Example:
        >>> head = LinearHead(jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
        >>> print(cross_entropy(jnp.array([1.0, 2.0]), head, jnp.array(1)).round(4))
        0.4076

    Source: Wijmans et al. (2024), "Cut your losses in large-vocabulary language models".
    """
    given, head = check_head(features, head)
    known = integer_array(labels, "labels", given.shape[:-1], of=("features", given.shape))
    given, known = zero_elsewhere(where, given, known)
    compute = partial(_cross_entropy, block_size=_checked_size(block_size))
    losses: jax.Array = _on_each_device(compute, class_axis_name, given, head, known)
    return zero_left_out(losses, where)


def top_k(
    features: ArrayLike,
    head: LinearHead,
    *,
    k: int,
    block_size: int | None = None,
    class_axis_name: Hashable | None = None,
) -> tuple[jax.Array, jax.Array]:
    r"""The k classes with the largest scores, best first, without the scores of all classes.

    .. math:: s_{c_1}(x) \ge s_{c_2}(x) \ge \dots \ge s_{c_k}(x) \ge s_j(x)
        \quad \text{for all other classes } j

    Args:
        features, head, block_size, class_axis_name: see `topk_jax.heads`.
        k: static number of classes, from 1 to L. A block has at least k of the classes.

    Returns:
        The scores in descending order, in float32 or float64, and their classes, int32, both
        `[..., k]`. Among equal scores, lower classes come first. A masked class has a score of
        -inf. If a score is NaN or +inf, all scores of the example are NaN and its classes -1.

    Example:
        >>> head = LinearHead(jnp.eye(3))
        >>> print(*top_k(jnp.array([1.0, 3.0, 2.5]), head, k=2))
        [3.  2.5] [1 2]

    Source: Garcin (2023), thesis, equation 2.13; blocks of classes here.
    """
    given, head = check_head(features, head)
    num_classes = jnp.shape(head.weights)[1] * axis_size(class_axis_name, "class_axis_name")
    compute = partial(_top_k, k=_checks.rank(k, num_classes), block_size=_checked_size(block_size))
    found: tuple[jax.Array, jax.Array] = _on_each_device(compute, class_axis_name, given, head)
    return found


def _checked_size(given: Any) -> int | None:
    return None if given is None else _checks.static_integer(given, "block_size", minimum=1)


def _on_each_device(
    function: Callable[..., Any],
    class_axis_name: Hashable | None,
    features: jax.Array,
    head: LinearHead,
    *labels: jax.Array,
) -> Any:
    """`function(features [n, d], head, *labels [n], name=name)` of a batch of any shape.

    Along Explicit mesh axes, each device calls it for its examples and classes.
    """

    def of_device(
        name: Hashable | None, features: jax.Array, head: LinearHead, *labels: jax.Array
    ) -> Any:
        same = (features, *labels) if name is not None else labels or (features,)
        for array in same:
            check_classes("head.weights", head.weights, array, name)
        batch = features.shape[:-1]
        rows = features.reshape(-1, features.shape[-1])
        found = function(rows, head, *(one.reshape(-1) for one in labels), name=name)
        return jax.tree.map(lambda one: one.reshape(*batch, *one.shape[1:]), found)

    sharding = jax.typeof(features).sharding, jax.typeof(head.weights).sharding
    of_batch = PartitionSpec(*sharding[0].spec[:-1])
    of_classes = PartitionSpec(*sharding[1].spec[-1:])
    names = {*mesh_axes(of_batch), *mesh_axes(of_classes)}
    if not names:
        return of_device(class_axis_name, features, head, *labels)
    mesh = next(one.mesh for one in sharding if not one.mesh.empty)
    if mesh_axes(of_classes):
        class_axis_name = of_classes[0]
    of_head: Any = (PartitionSpec(None, *of_classes), None if head.bias is None else of_classes)
    specs = (of_batch, LinearHead(*of_head), *(of_batch for _ in labels))
    given, shardings = (features, head, *labels), jax.tree.map(partial(NamedSharding, mesh), specs)
    placed = jax.tree.map(jax.sharding.reshard, given, shardings)
    on_each = partial(of_device, class_axis_name)
    mapped = jax.shard_map(on_each, mesh=mesh, in_specs=specs, out_specs=of_batch, axis_names=names)
    # Outside jit, shard_map needs the concrete mesh, and an array only carries the abstract one.
    return jax.jit(mapped)(*placed)


class _Block(NamedTuple):
    """Consecutive classes, `[B]`, with their weights `[d, B]` and scores `[n, B]`."""

    # -inf for classes of the block before.
    scores: jax.Array
    classes: jax.Array
    vectors: jax.Array
    # Whether the score is new, and not that of a masked class, `[n, B]`.
    has_slope: jax.Array
    # Whether each example has no score of NaN or +inf, `[n]`.
    is_valid: jax.Array


def _scan(
    step: Callable[[Carry, _Block], Carry],
    size: int,
    rows: jax.Array,
    head: LinearHead,
    initial: Carry,
) -> Carry:
    """`step` over all blocks of classes."""
    weights, bias = jnp.asarray(head.weights), head.bias
    num_classes = weights.shape[1]

    def body(index: jax.Array, carry: Carry) -> Carry:
        begin = index.astype(jnp.int32) * size
        start = jnp.minimum(begin, num_classes - size)
        classes = start + jnp.arange(size, dtype=jnp.int32)
        vectors = jax.lax.dynamic_slice_in_dim(weights, start, size, axis=1).astype(rows.dtype)
        scores = rows @ vectors
        if bias is not None:
            scores = scores + jax.lax.dynamic_slice_in_dim(jnp.asarray(bias), start, size)[None]
        is_new = (classes >= begin)[None]
        block = _Block(
            jnp.where(is_new, jnp.maximum(scores, FLOOR), -jnp.inf),
            classes,
            vectors,
            is_new & ~jnp.isneginf(scores),
            # A NaN fails the comparison. The maximum that masks may lose it.
            (scores < jnp.inf).all(axis=1),
        )
        return step(carry, block)

    return jax.lax.fori_loop(0, math.ceil(num_classes / size), body, initial)


def _block_size(given: int | None, rows: jax.Array, num_classes: int, at_least: int = 1) -> int:
    """The number of classes in a block: the user's number, or one that suits the device."""
    if given is None:
        entries = _BLOCK if jax.default_backend() == "cpu" else _BLOCK_OF_OTHERS
        num_rows = max(1, rows.shape[0]) if isinstance(rows.shape[0], int) else _USUAL_BATCH
        # A multiple of a vector register on any device.
        given = max(128, entries // num_rows // 128 * 128)
    return min(max(given, at_least), num_classes)


def _scores_of(
    rows: jax.Array, head: LinearHead, classes: jax.Array, name: Hashable | None
) -> jax.Array:
    """The scores of some classes of each example, `[n, S]`."""
    places, is_own = own_places(classes, jnp.shape(head.weights)[1], name)
    # The cast comes first: gradients of half precision are then added up in single precision.
    vectors = jnp.asarray(head.weights).astype(rows.dtype)[:, places]
    found = jnp.einsum("nd,dns->ns", rows, vectors)
    if head.bias is not None:
        found = found + jnp.asarray(head.bias)[places]
    found = jnp.maximum(found, FLOOR)
    return found if name is None else jax.lax.psum(jnp.where(is_own, found, 0), name)


@compiled
def _cross_entropy(
    rows: jax.Array,
    head: LinearHead,
    labels: jax.Array,
    block_size: int | None,
    name: Hashable | None,
) -> jax.Array:
    """The cross-entropy `[n]` of checked arguments."""
    num_classes = jnp.shape(head.weights)[1]
    size = _block_size(block_size, rows, num_classes)
    is_class = (labels >= 0) & (labels < num_classes * axis_size(name))
    labels = jnp.where(is_class, labels, -1).astype(jnp.int32)
    places, is_own = own_places(labels, num_classes, name)
    places = jnp.where(is_own, places, -1)
    hidden = jax.lax.stop_gradient((rows, head))
    score = _scores_of(*hidden, labels[:, None], name)[:, 0]
    rival = _rival(size, name, unify(rows, head, places, score))
    if name is not None:
        top = jax.lax.pmax(jax.lax.stop_gradient(rival), name)
        rival = top + jnp.log(jax.lax.psum(jnp.exp(rival - top), name))
    return nan_unless(is_class, jax.nn.softplus(rival))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _rival(size: int, name: Hashable | None, given: Given) -> jax.Array:
    """The logarithm of sum_{j != y} e^(s_j - s_y) over the classes on this device, `[n]`.

    Its gradient is that of all scores, also of s_y.
    """
    return _rival_forward(size, name, given)[0]


def _rival_forward(size: int, _name: Hashable | None, given: Given) -> tuple[jax.Array, Any]:
    rows, head, places, score = given

    def step(sums: Sums, block: _Block) -> Sums:
        highest, total, is_valid = sums
        gaps = _gaps(block, places, score)
        higher = jnp.maximum(highest, gaps.max(axis=1))
        terms = jnp.exp(gaps - higher[:, None]).sum(axis=1)
        return higher, total * jnp.exp(highest - higher) + terms, is_valid & block.is_valid

    # As in `losses.cross_entropy`, the label has a finite score below all others here.
    initial = (jnp.full_like(score, FLOOR), jnp.ones_like(score), jnp.isfinite(score))
    highest, total, is_valid = _scan(step, size, rows, head, initial)
    # Not their sum: beside a score of -1e30 of the label, rounding would lose the logarithm.
    return nan_unless(is_valid, highest + jnp.log(total)), (given, highest, total)


def _rival_backward(
    size: int, name: Hashable | None, residuals: Any, cotangent: jax.Array
) -> tuple[tuple[jax.Array, LinearHead, None, None]]:
    """Cost: the scores once more, and the two products that every gradient of a layer needs."""
    (rows, head, places, score), highest, total = residuals
    # The label's score is in the gaps of the classes of all devices.
    of_label = cotangent if name is None else jax.lax.psum(cotangent, name)

    def added(sums: jax.Array, block: _Block, terms: jax.Array) -> jax.Array:
        # In place: stacked blocks would be copied into one array at the end. Classes of the block
        # before get another 0.
        start, width = block.classes[0], terms.shape[-1]
        own = jax.lax.dynamic_slice_in_dim(sums, start, width, axis=-1) + terms.astype(sums.dtype)
        return jax.lax.dynamic_update_slice_in_dim(sums, own, start, axis=-1)

    def step(sums: Any, block: _Block) -> Any:
        of_rows, of_weights, of_bias = sums
        shares = jnp.exp(_gaps(block, places, score) - highest[:, None]) / total[:, None]
        is_label = block.classes[None] == places[:, None]
        of_scores = jnp.where(is_label, -of_label[:, None], cotangent[:, None] * shares)
        of_scores = jnp.where(block.has_slope, of_scores, 0.0)
        return (
            of_rows + jnp.einsum("nb,db->nd", of_scores, block.vectors),
            added(of_weights, block, jnp.einsum("nd,nb->db", rows, of_scores)),
            None if of_bias is None else added(of_bias, block, of_scores.sum(axis=0)),
        )

    zeros = jax.tree.map(jnp.zeros_like, (rows, head.weights, head.bias))
    of_rows, *of_head = _scan(step, size, rows, head, zeros)
    return ((of_rows, LinearHead(*of_head), None, None),)


def _gaps(block: _Block, places: jax.Array, score: jax.Array) -> jax.Array:
    """The scores of a block minus the label's score, `[n, B]`; -inf at the label."""
    is_label = block.classes[None] == places[:, None]
    return jnp.where(is_label, -jnp.inf, block.scores - score[:, None])


_rival.defvjp(_rival_forward, _rival_backward)


@compiled
def _top_k(
    rows: jax.Array, head: LinearHead, k: int, block_size: int | None, name: Hashable | None
) -> tuple[jax.Array, jax.Array]:
    """The largest scores of checked arguments and their classes, `[n, k]` both."""
    rows, head = unify(rows, head)
    num_classes = jnp.shape(head.weights)[1]
    size, kept = _block_size(block_size, rows, num_classes, at_least=k), min(k, num_classes)

    def step(found: Sums, block: _Block) -> Sums:
        values, classes, is_valid = found
        # Whether a product is 0 or -0 depends on the device. As for a set, both are equal.
        new, places = select_largest(jnp.where(block.scores == 0, 0, block.scores), kept)
        # Equal scores stay in the order of their classes, as the blocks are.
        both = jnp.concatenate([values, new], axis=1)
        classes = jnp.concatenate([classes, block.classes[0] + places.astype(jnp.int32)], axis=1)
        values, order = select_largest(both, kept)
        chosen = jnp.take_along_axis(classes, order, axis=1)
        return values, chosen, is_valid & block.is_valid

    hidden = jax.lax.stop_gradient((rows, head))
    none = jnp.broadcast_to(jnp.zeros_like(rows[:, :1]), (rows.shape[0], kept))
    initial = jnp.full_like(none, -jnp.inf), jnp.zeros_like(none, jnp.int32), none[:, 0] == 0
    values, classes, is_valid = _scan(step, size, *hidden, initial)
    if name is not None:
        values, classes = merge_devices(values, classes, k, num_classes, name)
        is_valid = jax.lax.pmin(is_valid.astype(jnp.int8), name) > 0
    values = with_slope_of(values, _scores_of(rows, head, classes, name))
    # The slopes of a NaN example are NaN, whatever was selected.
    values = jnp.where(is_valid[:, None] & (values <= FLOOR), -jnp.inf, values)
    return nan_unless(is_valid[:, None], values), jnp.where(is_valid[:, None], classes, -1)
