"""The largest of each window, with a gradient that is fast on the CPU too.

XLA's gradient visits the windows one after the other on the CPU, and takes several times as long as
the form here. Both give the gradient of a window to the first of its largest numbers.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

# Before and after the rows, and before and after the columns.
Padding = tuple[tuple[int, int], tuple[int, int]]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def max_pool(inputs: jax.Array, size: int, stride: int, padding: Padding) -> jax.Array:
    """Activations [n, height, width, c] to the largest numbers of windows of size by size."""
    return _by_xla(inputs, size, stride, padding)


def _by_xla(inputs: jax.Array, size: int, stride: int, padding: Padding) -> jax.Array:
    return nn.max_pool(inputs, (size, size), strides=(stride, stride), padding=padding)


def _forward(
    inputs: jax.Array, size: int, stride: int, padding: Padding
) -> tuple[jax.Array, jax.Array]:
    return max_pool(inputs, size, stride, padding), inputs


def _backward(
    size: int,
    stride: int,
    padding: Padding,
    inputs: jax.Array,
    cotangent: jax.Array,
) -> tuple[jax.Array]:
    def by_xla(inputs: jax.Array, cotangent: jax.Array) -> Any:
        _, pull_back = jax.vjp(lambda inputs: _by_xla(inputs, size, stride, padding), inputs)
        return pull_back(cotangent)[0]

    def by_places(inputs: jax.Array, cotangent: jax.Array) -> Any:
        height, width = cotangent.shape[1:3]
        places = _find_places(inputs, (height, width), size, stride, padding)
        return _sum_of_windows(places, cotangent, inputs.shape, size, stride, padding)

    return (lax.platform_dependent(inputs, cotangent, cpu=by_places, default=by_xla),)


max_pool.defvjp(_forward, _backward)


def _find_places(
    inputs: jax.Array, windows: tuple[int, int], size: int, stride: int, padding: Padding
) -> jax.Array:
    """The place of the first largest number in each window, as row · size + column."""
    images, channels = inputs.shape[0], inputs.shape[-1]
    height, width = windows
    lowest = jnp.array(-jnp.inf, inputs.dtype)
    around = [(0, 0, 0), *((before, after, 0) for before, after in padding), (0, 0, 0)]
    # XLA may compute a number again for each place, with different roundings.
    padded = lax.optimization_barrier(lax.pad(inputs, lowest, around))
    largest = jnp.full((images, height, width, channels), lowest)
    places = jnp.zeros(largest.shape, jnp.int32)
    for place in range(size * size):
        row, column = divmod(place, size)
        bottom, right = row + stride * (height - 1) + 1, column + stride * (width - 1) + 1
        shifted = lax.slice(
            padded,
            (0, row, column, 0),
            (images, bottom, right, channels),
            (1, stride, stride, 1),
        )
        larger = shifted > largest
        largest = jnp.where(larger, shifted, largest)
        places = jnp.where(larger, place, places)
    return places


def _sum_of_windows(
    places: jax.Array,
    cotangent: jax.Array,
    shape: tuple[int, ...],
    size: int,
    stride: int,
    padding: Padding,
) -> jax.Array:
    """For each pixel, the cotangents of the windows in which it is at the place."""
    images, height, width, channels = shape
    # One pixel for each window, and zeros between them.
    around = [(0, 0, 0)]
    for length, windows, (before, _) in zip(
        (height, width), cotangent.shape[1:3], padding, strict=True
    ):
        start = size - 1 - before
        spread = (windows - 1) * stride + 1
        around.append((start, length + size - 1 - start - spread, stride - 1))
    around.append((0, 0, 0))
    places = lax.pad(places, jnp.array(-1, places.dtype), around)
    cotangent = lax.pad(cotangent, jnp.zeros((), cotangent.dtype), around)
    total = jnp.zeros((), jnp.float32)
    for place in range(size * size):
        row, column = divmod(place, size)
        top, left = size - 1 - row, size - 1 - column
        first, last = (0, top, left, 0), (images, top + height, left + width, channels)
        here = lax.slice(places, first, last) == place
        of_window = lax.slice(cotangent, first, last).astype(jnp.float32)
        total = total + jnp.where(here, of_window, 0.0)
    return total.astype(cotangent.dtype)
