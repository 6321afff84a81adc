"""Floats as integers in the same order, so that a search can go through them bit by bit."""

from typing import Any

import jax
import jax.numpy as jnp


def to_ordinals(floats: jax.Array) -> jax.Array:
    """Unsigned integers of as many bits, in the order of the floats; -0 is before 0.

    Identity: read as integers, the floats of each sign are in the order of their magnitudes. All
    bits of the negative ones are flipped, and the sign bit of the others.
    """
    unsigned = jnp.dtype(f"uint{8 * floats.dtype.itemsize}")
    bits = jax.lax.bitcast_convert_type(floats, unsigned)
    sign = highest_bit(unsigned)
    return jnp.where(bits >= sign, ~bits, bits | sign)


def to_floats(ordinals: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """The floats of a type that have these ordinals."""
    sign = highest_bit(ordinals.dtype)
    bits = jnp.where(ordinals >= sign, ordinals ^ sign, ~ordinals)
    return jax.lax.bitcast_convert_type(bits, dtype)


def highest_bit(unsigned: jnp.dtype) -> Any:
    """The number of an unsigned type that has its highest bit alone."""
    return unsigned.type(1 << (8 * unsigned.itemsize - 1))
