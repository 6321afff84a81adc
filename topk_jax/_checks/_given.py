"""What the user gave: as an array of JAX, and its values if they can be read."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def as_array(array: Any, name: str, expected: str) -> jax.Array:
    """Returns what the user gave as an array of JAX, or raises if it is not an array."""
    try:
        if not isinstance(array, jax.Array):
            array = _saturated(array)
        return jnp.asarray(array)
    except (TypeError, ValueError, OverflowError) as error:
        article = "an" if expected[0] in "aeiou" else "a"
        raise TypeError(
            f"{name} must be {article} {expected}, got {type(array).__name__}."
        ) from error


def _saturated(given: Any) -> Any:
    """Clips concrete integers to the range of JAX's integer type.

    Hazard: without 64-bit mode JAX wraps around, and a label of 2^32 would become 0. Choice: the
    closest bound, which is out of range too. Cost: one pass on the host over 64-bit arrays.
    """
    concrete = known_values(given)
    if concrete is None or concrete.dtype.kind not in "iu":
        return given
    fitting = jax.dtypes.canonicalize_dtype(concrete.dtype)
    if fitting == concrete.dtype:
        return given
    limits = np.iinfo(fitting)
    return concrete.clip(limits.min, limits.max).astype(fitting)


def known_values(given: Any) -> np.ndarray | None:
    """The values of the user's argument, or `None` if they are traced.

    Do not pass a converted argument: under jit, conversion turns a constant into a traced value.
    """
    return None if is_traced(given) else np.asarray(given)


def is_traced(given: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(given))


def as_floats(values: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Traced values to compare with bounds, before they are rounded to `dtype`."""
    return values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(dtype)


def as_computed(number: np.ndarray, dtype: jnp.dtype) -> float:
    """A scalar as XLA has it in `dtype`: rounded, and 0 for a denormal number."""
    with np.errstate(over="ignore"):
        rounded = float(number.astype(dtype))
    return 0.0 if abs(rounded) < jnp.finfo(dtype).tiny else rounded
