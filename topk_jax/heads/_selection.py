"""The largest scores of a head, over blocks of classes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from topk_jax.operators._top_k import select_largest


class Largest(NamedTuple):
    """The largest values so far and their classes, `[..., size]` both, in descending order.

    Equal values are in the order of their classes, as the blocks are.
    """

    values: jax.Array
    classes: jax.Array


def select_nothing(like: jax.Array, size: int) -> Largest:
    """Values of -inf, which the first block with enough classes replaces; `like` is `[...]`."""
    values = jnp.broadcast_to(like[..., None], (*like.shape, size))
    return Largest(jnp.full_like(values, -jnp.inf), jnp.zeros_like(values, jnp.int32))


def merge(found: Largest, values: jax.Array, start: jax.Array) -> Largest:
    """The largest of those found before and of the values `[..., B]` of classes from `start` on."""
    size = found.values.shape[-1]
    # A value of -inf belongs to a class of the block before, and is never larger than others.
    of_block, places = select_largest(values, size)
    both = jnp.concatenate([found.values, of_block], axis=-1)
    classes = jnp.concatenate([found.classes, start + places.astype(jnp.int32)], axis=-1)
    kept, order = select_largest(both, size)
    return Largest(kept, jnp.take_along_axis(classes, order, axis=-1))
