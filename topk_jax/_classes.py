"""Reductions over the classes, which may be split over devices in `jax.shard_map`.

Where `name` is `None`, each is the plain operation on the last axis. Else `name` is a mapped axis
(or several), each device has consecutive classes in the order of the devices, and results are the
same on all of them. Per example, the devices exchange one number.
"""

from collections.abc import Hashable

import jax
import jax.numpy as jnp


def count(scores: jax.Array, name: Hashable | None) -> int:
    """The number of classes L of scores [..., L]."""
    own = scores.shape[-1]
    return own if name is None else own * jax.lax.axis_size(name)


def own(classes: jax.Array, size: int, name: Hashable | None) -> jax.Array:
    """The classes as places among those of this device, which has `size` of them.

    A place outside [0, size) is of another device. It may be negative, so the type has a sign where
    the classes are split.
    """
    if name is None:
        return classes
    if jnp.issubdtype(classes.dtype, jnp.unsignedinteger):
        classes = classes.astype(f"int{8 * classes.dtype.itemsize}")
    return classes - (size * jax.lax.axis_index(name)).astype(classes.dtype)


def total(
    values: jax.Array,
    name: Hashable | None,
    *,
    keepdims: bool = False,
    dtype: jnp.dtype | None = None,
) -> jax.Array:
    """The sum over the classes, in the dtype if one is given."""
    return added(values.sum(axis=-1, keepdims=keepdims, dtype=dtype), name)


def added(sums: jax.Array, name: Hashable | None) -> jax.Array:
    """The sums over all classes, from those of the classes of each device."""
    return sums if name is None else jax.lax.psum(sums, name)


def any_of(values: jax.Array, name: Hashable | None, *, keepdims: bool = False) -> jax.Array:
    """Whether one of the booleans is true."""
    found = values.any(axis=-1, keepdims=keepdims)
    return found if name is None else jax.lax.pmax(found.astype(jnp.int8), name) > 0


def highest(values: jax.Array, name: Hashable | None, *, keepdims: bool = False) -> jax.Array:
    """The maximum over the classes; without a gradient where they are split."""
    found = values.max(axis=-1, keepdims=keepdims)
    return found if name is None else jax.lax.pmax(jax.lax.stop_gradient(found), name)


def lowest(values: jax.Array, name: Hashable | None) -> jax.Array:
    """The minimum over examples and classes; without a gradient where they are split."""
    found = values.min()
    return found if name is None else jax.lax.pmin(jax.lax.stop_gradient(found), name)


def log_sum_exp(values: jax.Array, name: Hashable | None, *, keepdims: bool = False) -> jax.Array:
    """The logarithm of the sum of the exponentials of the values, one of which is finite."""
    if name is None:
        return jax.nn.logsumexp(values, axis=-1, keepdims=keepdims)
    top = highest(values, name, keepdims=True)
    logs = top + jnp.log(total(jnp.exp(values - top), name, keepdims=True))
    return logs if keepdims else logs[..., 0]


def entries(values: jax.Array, classes: jax.Array, name: Hashable | None) -> jax.Array:
    """The values of some classes [..., S] of each example, from those of all, [..., L].

    A class outside [0, L) gives 0 where the classes are split.
    """
    if name is None:
        return jnp.take_along_axis(values, classes, axis=-1, mode="promise_in_bounds")
    places, is_own = _places(classes, values.shape[-1], name)
    taken = jnp.take_along_axis(values, places, axis=-1, mode="promise_in_bounds")
    return jax.lax.psum(jnp.where(is_own, taken, 0), name)


def entries_of_all(values: jax.Array, classes: jax.Array, name: Hashable) -> jax.Array:
    """The values of some classes [...], from those of all examples alike, [L]."""
    places, is_own = _places(classes, values.shape[-1], name)
    return jax.lax.psum(jnp.where(is_own, values[places], 0), name)


def replaced(
    values: jax.Array, classes: jax.Array, others: jax.Array | float, name: Hashable | None
) -> jax.Array:
    """The values [b, L] with others at some classes [b, S] of each row, which are in [0, L).

    As `jnp.put_along_axis`, which takes no symbolic b of `jax.export`.
    """
    rows = jnp.arange(values.shape[0])[:, None]
    if name is None:
        return values.at[rows, classes].set(others, mode="promise_in_bounds")
    places, is_own = _places(classes, values.shape[-1], name)
    return values.at[rows, jnp.where(is_own, places, values.shape[-1])].set(others, mode="drop")


def whole(values: jax.Array, name: Hashable) -> jax.Array:
    """The values of all classes, [..., L], on each device: for few classes."""
    num_classes = count(values, name)
    classes = jnp.broadcast_to(jnp.arange(num_classes), (*values.shape[:-1], num_classes))
    return entries(values, classes, name)


def gathered(arrays: tuple[jax.Array, ...], name: Hashable) -> tuple[jax.Array, ...]:
    """The last axes of arrays [..., S] of all devices, one after the other, [..., D S].

    No gradient may flow through it. In the code of `custom_partitioning`, and of `shard_map`
    without `check_vma`, types do not tell which arrays are the same on all devices.
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


def _places(classes: jax.Array, size: int, name: Hashable) -> tuple[jax.Array, jax.Array]:
    """The places of classes on this device, within it, and which of them are its own."""
    places = own(classes, size, name)
    is_own = (places >= 0) & (places < size)
    return jnp.where(is_own, places, 0), is_own
