"""Operations on the scores of examples: masks and NaN, entries, and classes that may be split.

If `name` is `None`, a function of classes is the plain operation on the last axis. Otherwise `name`
is a mapped axis of `jax.shard_map`, or several. Each device then has consecutive classes in the
order of the devices, and results are the same on all devices, which exchange one number per
example.
"""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

# Replaces -inf, because the difference of two infinities is NaN. It is far below any score of a
# network, and its sum over 1e7 classes is still finite in float32.
FLOOR = -1e30
# The most parts in which numbers are added up.
_NUM_PARTS = 256


def finite_scores(logits: jax.Array) -> jax.Array:
    """The scores with `FLOOR`, whose gradient is 0, in place of -inf.

    XLA on the CPU may lose a NaN in a maximum: results are marked by the given scores.
    """
    return jnp.maximum(logits, FLOOR)


def flush(values: jax.Array) -> jax.Array:
    """The values with denormal numbers, and -0, replaced by 0."""
    return jnp.where(jnp.abs(values) < jnp.finfo(values.dtype).tiny, 0.0, values)


def rounding_to_spare(dtype: jnp.dtype) -> float:
    """How far, relatively, a sum may be from what is required of it: 16 roundings."""
    return 16.0 * float(jnp.finfo(dtype).eps)


def nan_unless(valid: jax.Array, values: jax.Array) -> jax.Array:
    """The values, with NaN where they are not valid, for them and for their gradient."""
    factor = jnp.where(valid, 1.0, jnp.nan).astype(values.dtype)
    return values * jnp.broadcast_to(factor, values.shape)


def are_scores(scores: jax.Array, name: Hashable | None = None) -> jax.Array:
    """Whether no score is NaN or +inf, `[...]`: what overflows is as broken as a NaN."""
    # A NaN fails the comparison. Whether any does takes half of the time of their number.
    return ~any_class(~(scores < jnp.inf), name)


def valid_examples(scores: jax.Array, labels: jax.Array, name: Hashable | None = None) -> jax.Array:
    """Whether no score is NaN or +inf and the label is in [0, L), `[...]`."""
    return (labels >= 0) & (labels < count(scores, name)) & are_scores(scores, name)


def nan_where_invalid_scores(
    values: jax.Array, scores: jax.Array, name: Hashable | None = None
) -> jax.Array:
    """The values [...] or [..., m] of scores [..., L], with NaN where one is NaN or +inf."""
    valid = are_scores(scores, name)
    return nan_unless(valid[..., None] if values.ndim == scores.ndim else valid, values)


@jax.custom_jvp
def with_slope_of(values: jax.Array, others: jax.Array) -> jax.Array:
    """The values, with the derivative of other values that equal them up to rounding."""
    # If vmap adds an axis only to the others, JAX gives it to the slopes: the values have it, too.
    return jnp.where(jnp.isnan(others), values, values)


@with_slope_of.defjvp
def _with_slope_of_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    # The same function again, so that the value has the derivative in its second derivatives too.
    return with_slope_of(*primals), tangents[1]


def as_if_some(function: Callable[..., Any], *operands: Any) -> Any:
    """`function(*operands)` of trees of arrays, in a program for any number of examples, too.

    JAX refuses gathers along an axis whose size in a program of `jax.export` may be 0, like n - 1.
    So it becomes max(n - 1, 1), and the results, of the same sizes, are cut. An example must not
    depend on others.
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


def map_rows(function: Callable[..., Any], *operands: Any, block: int | None = None) -> Any:
    """`jax.vmap(function)(*operands)`, for a number of examples that may be 0: `as_if_some`.

    So many examples are computed at a time, if their number is known.
    """
    if block is not None and all(isinstance(one, int) for one in operands[0].shape):
        return jax.lax.map(lambda row: function(*row), operands, batch_size=max(1, block))
    return as_if_some(jax.vmap(function), *operands)


def take_along(
    values: jax.Array, indices: jax.Array, axis: int = -1, mode: str = "promise_in_bounds"
) -> jax.Array:
    """`jnp.take_along_axis`, for a number of examples that may be 0: see `as_if_some`."""

    def take(values: jax.Array, indices: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, indices, axis=axis, mode=mode)

    found: jax.Array = as_if_some(take, values, indices)
    return found


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


def count(scores: jax.Array, name: Hashable | None) -> int:
    """The number of classes L of scores [..., L]."""
    own = scores.shape[-1]
    return own if name is None else own * jax.lax.axis_size(name)


def localize(classes: jax.Array, size: int, name: Hashable | None) -> jax.Array:
    """The places of classes among the `size` classes of this device; outside it for others."""
    if name is None:
        return classes
    if jnp.issubdtype(classes.dtype, jnp.unsignedinteger):
        classes = classes.astype(f"int{8 * classes.dtype.itemsize}")
    return classes - (size * jax.lax.axis_index(name)).astype(classes.dtype)


def own_places(classes: jax.Array, size: int, name: Hashable) -> tuple[jax.Array, jax.Array]:
    """The places of classes on this device, or 0, and whether the device has them."""
    places = localize(classes, size, name)
    is_own = (places >= 0) & (places < size)
    return jnp.where(is_own, places, 0), is_own


def sum_classes(
    values: jax.Array,
    name: Hashable | None,
    *,
    keepdims: bool = False,
    dtype: jnp.dtype | None = None,
) -> jax.Array:
    """The sum over the classes, in `dtype` if it is given."""
    return sum_devices(values.sum(axis=-1, keepdims=keepdims, dtype=dtype), name)


def sum_devices(sums: jax.Array, name: Hashable | None) -> jax.Array:
    """The sums over all classes, from the sums over the classes of each device."""
    return sums if name is None else jax.lax.psum(sums, name)


def any_class(values: jax.Array, name: Hashable | None, *, keepdims: bool = False) -> jax.Array:
    """Whether one of the booleans is true."""
    found = values.any(axis=-1, keepdims=keepdims)
    return found if name is None else jax.lax.pmax(found.astype(jnp.int8), name) > 0


def max_classes(values: jax.Array, name: Hashable | None, *, keepdims: bool = False) -> jax.Array:
    """The maximum over the classes; without a gradient if they are split."""
    found = values.max(axis=-1, keepdims=keepdims)
    return found if name is None else jax.lax.pmax(jax.lax.stop_gradient(found), name)


def min_values(values: jax.Array, name: Hashable | None) -> jax.Array:
    """The minimum over examples and classes; without a gradient if the classes are split."""
    found = values.min()
    return found if name is None else jax.lax.pmin(jax.lax.stop_gradient(found), name)


def log_sum_exp(values: jax.Array, name: Hashable | None) -> jax.Array:
    """The logarithm of the sum of the exponentials; one of the values is finite."""
    if name is None:
        return jax.nn.logsumexp(values, axis=-1)
    top = max_classes(values, name, keepdims=True)
    logs = top + jnp.log(sum_classes(jnp.exp(values - top), name, keepdims=True))
    return logs[..., 0]


def is_label(scores: jax.Array, labels: jax.Array, name: Hashable | None = None) -> jax.Array:
    """A mask of the true class, `[..., L]`. It is all false for a label out of range."""
    labels = localize(labels, scores.shape[-1], name)
    classes = jax.lax.broadcasted_iota(labels.dtype, scores.shape, scores.ndim - 1)
    return labels[..., None] == classes


def score_of_label(scores: jax.Array, labels: jax.Array, name: Hashable | None = None) -> jax.Array:
    """The score of the true class, `[...]`. A label out of range gives some number."""
    # JAX refuses gathers in a program for any number of examples, as it may be 0.
    is_known = all(isinstance(size, int) for size in scores.shape)
    if is_known and name is None and jax.typeof(scores).sharding.mesh.empty:
        places = jnp.clip(labels, 0, scores.shape[-1] - 1)
        return jnp.take_along_axis(scores, places[..., None], axis=-1)[..., 0]
    # Devices add up what they have. The compiler would gather what a gather reads.
    return sum_classes(jnp.where(is_label(scores, labels, name), scores, 0), name)


def value_of_class(values: jax.Array, labels: jax.Array) -> jax.Array:
    """The value, or row, of each label, from a scalar or from one value or row per class."""
    if values.ndim == 0:
        return values
    split = jax.typeof(labels).sharding
    spec = PartitionSpec(*split.spec, *(None,) * (values.ndim - 1))
    like_labels = None if split.mesh.empty else NamedSharding(split.mesh, spec)
    return values.at[labels].get(mode="clip", out_sharding=like_labels)


def take(values: jax.Array, classes: jax.Array, name: Hashable | None) -> jax.Array:
    """The values of some classes [..., S] of each example, from those of all classes [..., L].

    If the classes are split, a class outside [0, L) gives 0.
    """
    if name is None:
        return take_along(values, classes)
    places, is_own = own_places(classes, values.shape[-1], name)
    return jax.lax.psum(jnp.where(is_own, take_along(values, places), 0), name)


def put(
    values: jax.Array, classes: jax.Array, others: jax.Array | float, name: Hashable | None
) -> jax.Array:
    """The values [b, L] with `others` at some classes [b, S] of each row, which are in [0, L)."""
    places, mode = classes, "promise_in_bounds"
    if name is not None:
        own, is_own = own_places(classes, values.shape[-1], name)
        places, mode = jnp.where(is_own, own, values.shape[-1]), "drop"
    others = jnp.broadcast_to(jnp.asarray(others, values.dtype), places.shape)
    # With row numbers among the indices, the compiler would gather a batch that it splits.
    return jax.vmap(lambda row, of, new: row.at[of].set(new, mode=mode))(values, places, others)


def gather(arrays: Any, name: Hashable) -> Any:
    """A tree of arrays [..., S] of D devices, concatenated along the last axis, [..., D S]."""
    first = jax.tree.leaves(arrays)[0]
    # In `custom_partitioning`, and in `shard_map` without `check_vma`, types do not show which
    # arrays are the same on all devices.
    to = "invarying" if jax.typeof(first).mat.varying else "varying"
    return jax.lax.all_gather(arrays, name, axis=first.ndim - 1, tiled=True, to=to)
