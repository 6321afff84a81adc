"""Maps floats to integers in the same order, for searches bit by bit."""

from typing import Any

import jax
import jax.numpy as jnp


def to_ordinals(floats: jax.Array) -> jax.Array:
    """Unsigned integers with the same number of bits, in the order of the floats; -0 is before 0.

    Identity: the bits of floats with the same sign are in the order of the magnitudes. So all bits
    of negative floats are flipped, and only the sign bit of the others.
    """
    unsigned = jnp.dtype(f"uint{8 * floats.dtype.itemsize}")
    bits = jax.lax.bitcast_convert_type(floats, unsigned)
    sign = highest_bit(unsigned)
    return jnp.where(bits >= sign, ~bits, bits | sign)


def to_floats(ordinals: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """The floats of the given dtype with these ordinals."""
    sign = highest_bit(ordinals.dtype)
    bits = jnp.where(ordinals >= sign, ordinals ^ sign, ~ordinals)
    return jax.lax.bitcast_convert_type(bits, dtype)


def sort(floats: jax.Array) -> jax.Array:
    """The floats in ascending order along the last axis; NaN comes last.

    Hazard: on the CPU, XLA sorts floats in several times the time that it takes for integers.
    """
    numbers = jnp.where(jnp.isnan(floats), jnp.nan, floats)
    ascending = jax.lax.sort(to_ordinals(numbers), is_stable=False)
    return to_floats(ascending, floats.dtype)


def highest_bit(unsigned: jnp.dtype) -> Any:
    """The unsigned integer with only its highest bit set."""
    return unsigned.type(1 << (8 * unsigned.itemsize - 1))
