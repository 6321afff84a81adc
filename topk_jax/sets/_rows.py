"""Searches of one row at a time: blocks of rows that stay in a cache, and sums that are vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from topk_jax import _platforms, _sharding
from topk_jax._entries import map_rows

# Rows of about this many numbers in all stay in the cache of a core while they are searched.
_BLOCK = 16_384
# Sums of rows are halved to at most this many numbers.
_WIDTH = 32


def in_blocks(function: Callable[..., Any], *arguments: jax.Array) -> Any:
    """The results of a function of one example: of its probabilities [L], and of numbers.

    On the CPU it takes a few examples at a time, which stay in the cache of a core. It does not do
    so if the compiler splits the examples over devices, because the compiler would gather them for
    a loop.
    """
    rows = arguments[0]

    def blockwise(*arguments: jax.Array) -> Any:
        rows_at_a_time = max(1, _BLOCK // rows.shape[-1])
        return jax.lax.map(lambda row: function(*row), arguments, batch_size=rows_at_a_time)

    at_once = partial(map_rows, function)
    # A program of `jax.export` for any number of rows does not have blocks either.
    is_small = not isinstance(rows.size, int) or rows.size <= _BLOCK
    if is_small or _sharding.is_split_later(rows):
        return at_once(*arguments)
    return _platforms.choose(*arguments, cpu=blockwise, default=at_once)


def sum_of(numbers: jax.Array) -> jax.Array:
    """The sums of numbers along the last axis.

    Identity: the order of the additions depends on the length only. So with floats, too, more terms
    that are not negative never have a smaller sum. Hazard: XLA adds up numbers on the CPU one at a
    time. Choice: add the halves of a row, which are vectors, until they are short. Cost: none.
    """
    rest = jnp.zeros((), numbers.dtype)
    while numbers.shape[-1] > _WIDTH:
        half, is_odd = divmod(numbers.shape[-1], 2)
        if is_odd:
            rest += numbers[..., -1]
        numbers = numbers[..., :half] + numbers[..., half : 2 * half]
    return rest + numbers.sum(axis=-1, dtype=numbers.dtype)


def pad(values: jax.Array, value: float) -> jax.Array:
    """The values [L] with `value` behind, so that `sum_of` halves them without a rest."""
    multiple = 1
    while values.size > _WIDTH * multiple:
        multiple *= 2
    return jnp.pad(values, (0, -values.size % multiple), constant_values=value)
