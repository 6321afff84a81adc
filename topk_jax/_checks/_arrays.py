"""Arrays of a dtype and a shape."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax._checks._given import as_array, known_values
from topk_jax._checks._static import axis_index

__all__ = [
    "boolean_array",
    "counting_array",
    "counting_or_real_array",
    "floating_array",
    "floating_numbers",
    "integer_array",
    "real_array",
    "real_numbers",
]


def floating_array(array: ArrayLike, name: str, axis: int = -1) -> jax.Array:
    """Returns `array` in float32 or float64, or raises if its dtype or its shape is wrong."""
    converted = floating_numbers(array, name)
    if converted.ndim == 0 or converted.shape[axis_index(axis, converted.ndim)] == 0:
        along = "the last" if axis == -1 else f"axis {axis}"
        raise ValueError(
            f"{name} must have at least one axis and not be empty along {along}, "
            f"got shape {converted.shape}."
        )
    return converted


def floating_numbers(array: ArrayLike, name: str) -> jax.Array:
    """Returns a scalar or an array in float32 or float64, or raises if its dtype is wrong."""
    converted = as_array(array, name, "floating-point array")
    if not jnp.issubdtype(converted.dtype, jnp.floating):
        raise TypeError(f"{name} must be a floating-point array, got dtype {converted.dtype}.")
    # Not `promote_types`: under strict promotion it refuses half precision.
    return converted.astype(jnp.float32) if converted.dtype.itemsize < 4 else converted


def integer_array(
    array: ArrayLike,
    name: str,
    shape: tuple[int, ...] | None = None,
    *,
    of: tuple[str, tuple[int, ...]] | None = None,
) -> jax.Array:
    """Returns `array` with at least 32 bits, or raises if it is not an integer array of this shape.

    Args:
        array: the user's argument.
        name: the argument's name.
        shape: the required shape; None for any.
        of: name and shape of the argument that determines this shape, for the message.
    """
    converted = as_array(array, name, "integer array")
    if not jnp.issubdtype(converted.dtype, jnp.integer):
        raise TypeError(f"{name} must be an integer array, got dtype {converted.dtype}.")
    if shape is not None and converted.shape != shape:
        follows = "" if of is None else f" for {of[0]} of shape {of[1]}"
        raise ValueError(f"{name} must have shape {shape}{follows}, got shape {converted.shape}.")
    # Eight bits hold at most 256 classes; comparisons with larger indices would wrap around.
    return converted.astype(jnp.int32) if converted.dtype.itemsize < 4 else converted


def boolean_array(array: ArrayLike, name: str, shape: tuple[int, ...] | None = None) -> jax.Array:
    """Returns `array`, or raises if it is not a boolean array (of the given shape, if any)."""
    converted = as_array(array, name, "boolean array")
    if converted.dtype != jnp.bool_:
        # Libraries whose accuracies take scores and labels are common.
        hint = "; metrics.top_k_hits makes them of scores and labels" if name == "hits" else ""
        raise TypeError(f"{name} must be a boolean array, got dtype {converted.dtype}{hint}.")
    if shape is not None and converted.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {converted.shape}.")
    return converted


def counting_array(array: ArrayLike, name: str) -> jax.Array:
    """Returns booleans or integers as the default integer type, or raises for other arrays."""
    converted = as_array(array, name, "boolean or integer array")
    concrete = known_values(array)
    if concrete is not None and concrete.dtype.kind in "iu":
        limits = jnp.iinfo(jax.dtypes.canonicalize_dtype(jnp.int64))
        if ((concrete < limits.min) | (concrete > limits.max)).any():
            raise ValueError(f"{name} must fit in {limits.bits} bits with a sign.")
    if converted.dtype != jnp.bool_ and not jnp.issubdtype(converted.dtype, jnp.integer):
        raise TypeError(f"{name} must be a boolean or integer array, got dtype {converted.dtype}.")
    return converted.astype(int)


def counting_or_real_array(array: ArrayLike, name: str) -> jax.Array:
    """Returns booleans, integers as the default integer type, or floats in at least 32 bits."""
    converted = as_array(array, name, "boolean or real array")
    if converted.dtype == jnp.bool_:
        return converted
    if not jnp.issubdtype(converted.dtype, jnp.floating):
        return counting_array(array, name)
    return converted.astype(jnp.float32) if converted.dtype.itemsize < 4 else converted


def real_array(values: ArrayLike, name: str, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """Returns real numbers of this shape in `dtype`, or raises for other values."""
    converted = real_numbers(values, name)
    if converted.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {converted.shape}.")
    return converted.astype(dtype)


def real_numbers(values: ArrayLike, name: str) -> jax.Array:
    """Returns real numbers in the type that they have, or as floats if they are concrete integers.

    Raises `TypeError` for other values.
    """
    concrete = None if isinstance(values, jax.Array) else known_values(values)
    if concrete is not None and concrete.dtype.kind in "iu":
        # Integers of any size are rounded to floats.
        values = concrete.astype(np.float64)
    converted = as_array(values, name, "real number or array")
    if not (
        jnp.issubdtype(converted.dtype, jnp.floating)
        or jnp.issubdtype(converted.dtype, jnp.integer)
    ):
        raise TypeError(f"{name} must be real, got dtype {converted.dtype}.")
    return converted


def booleans_or_reals(values: ArrayLike, name: str, shape: tuple[int, ...]) -> jax.Array:
    """Returns booleans or real numbers of this shape in the type that they have, or raises."""
    converted = as_array(values, name, "boolean or real array")
    if converted.dtype != jnp.bool_:
        converted = real_numbers(converted, name)
    if converted.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {converted.shape}.")
    return converted
