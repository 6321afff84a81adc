"""A function that runs many times in one program, one run after another.

The time of such a program is the device's, without the calls from Python.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

RUNS = 50
# The number of threads that compile.
THREADS = 8


def in_a_loop(function: Callable[..., Any]) -> Callable[..., jax.Array]:
    """`RUNS` runs of a function, each of which depends on all results of the run before."""

    def loop(*arrays: Any) -> jax.Array:
        return jax.lax.fori_loop(0, RUNS, lambda _, total: after(total, *arrays), jnp.float32(0))

    def after(total: jax.Array, *arrays: Any) -> jax.Array:
        """A number that depends on all results, which depend on the number before."""
        return sum_of(function(*_depending(arrays, total)))

    return loop


def _depending(arrays: Any, number: jax.Array) -> Any:
    """The arrays, unchanged, but not before the number is known."""
    # A comparison that XLA cannot decide; a product with 0 would be NaN if a loss is infinite.
    nothing = jnp.where(number == -1.0, 1.0, 0.0)

    def depending(array: jax.Array) -> jax.Array:
        if jnp.issubdtype(array.dtype, jnp.floating):
            return array + nothing.astype(array.dtype)
        return array

    return jax.tree.map(depending, arrays)


def sum_of(results: Any) -> jax.Array:
    """One number of every entry of the results."""
    leaves = [leaf for leaf in jax.tree.leaves(results) if not _is_key(leaf)]
    return sum((jnp.sum(leaf, dtype=jnp.float32) for leaf in leaves), jnp.float32(0))


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))
