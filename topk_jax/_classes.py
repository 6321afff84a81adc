"""Operations on the classes, which may be split over devices in `jax.shard_map`.

If `name` is `None`, each function is the plain operation on the last axis. Otherwise `name` is a
mapped axis, or several. Each device then has consecutive classes in the order of the devices, and
results are the same on all devices. The devices exchange one number per example.
"""

from collections.abc import Hashable

import jax
import jax.numpy as jnp

from topk_jax._entries import take_entries


def count(scores: jax.Array, name: Hashable | None) -> int:
    """The number of classes L of scores [..., L]."""
    own = scores.shape[-1]
    return own if name is None else own * jax.lax.axis_size(name)


def localize(classes: jax.Array, size: int, name: Hashable | None) -> jax.Array:
    """The positions of classes among the `size` classes of this device.

    A position outside [0, size) belongs to another device. It may be negative, so the type is
    signed if the classes are split.
    """
    if name is None:
        return classes
    if jnp.issubdtype(classes.dtype, jnp.unsignedinteger):
        classes = classes.astype(f"int{8 * classes.dtype.itemsize}")
    return classes - (size * jax.lax.axis_index(name)).astype(classes.dtype)


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


def log_sum_exp(values: jax.Array, name: Hashable | None, *, keepdims: bool = False) -> jax.Array:
    """The logarithm of the sum of the exponentials; one of the values is finite."""
    if name is None:
        return jax.nn.logsumexp(values, axis=-1, keepdims=keepdims)
    top = max_classes(values, name, keepdims=True)
    logs = top + jnp.log(sum_classes(jnp.exp(values - top), name, keepdims=True))
    return logs if keepdims else logs[..., 0]


def take(values: jax.Array, classes: jax.Array, name: Hashable | None) -> jax.Array:
    """The values of some classes [..., S] of each example, from the values of all classes [..., L].

    If the classes are split, a class outside [0, L) gives 0.
    """
    if name is None:
        return take_entries(values, classes)
    places, is_own = own_places(classes, values.shape[-1], name)
    taken = take_entries(values, places)
    return jax.lax.psum(jnp.where(is_own, taken, 0), name)


def take_shared(values: jax.Array, classes: jax.Array, name: Hashable) -> jax.Array:
    """The values of some classes [...], from values [L] that all examples share."""
    places, is_own = own_places(classes, values.shape[-1], name)
    return jax.lax.psum(jnp.where(is_own, values[places], 0), name)


def put(
    values: jax.Array, classes: jax.Array, others: jax.Array | float, name: Hashable | None
) -> jax.Array:
    """The values [b, L] with `others` at some classes [b, S] of each row, which are in [0, L).

    Like `jnp.put_along_axis`, which does not accept a symbolic b of `jax.export`.
    """
    rows = jnp.arange(values.shape[0])[:, None]
    if name is None:
        return values.at[rows, classes].set(others, mode="promise_in_bounds")
    places, is_own = own_places(classes, values.shape[-1], name)
    return values.at[rows, jnp.where(is_own, places, values.shape[-1])].set(others, mode="drop")


def gather(values: jax.Array, name: Hashable) -> jax.Array:
    """The values of all classes, [..., L], on each device. Use it for few classes."""
    num_classes = count(values, name)
    classes = jnp.broadcast_to(jnp.arange(num_classes), (*values.shape[:-1], num_classes))
    return take(values, classes, name)


def concatenate(arrays: tuple[jax.Array, ...], name: Hashable) -> tuple[jax.Array, ...]:
    """Arrays [..., S] of D devices, concatenated along the last axis, [..., D S].

    No gradient may flow through it. In `custom_partitioning`, and in `shard_map` without
    `check_vma`, types do not show which arrays are the same on all devices.
    """
    is_typed = bool(jax.typeof(arrays[0]).mat.varying)
    found: tuple[jax.Array, ...] = jax.lax.all_gather(
        arrays,
        name,
        axis=arrays[0].ndim - 1,
        tiled=True,
        to="invarying" if is_typed else "varying",
    )
    return found


def own_places(classes: jax.Array, size: int, name: Hashable) -> tuple[jax.Array, jax.Array]:
    """The positions of classes on this device, or 0, and whether the device has them."""
    places = localize(classes, size, name)
    is_own = (places >= 0) & (places < size)
    return jnp.where(is_own, places, 0), is_own
