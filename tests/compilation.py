"""What the programs are like that the tests compile."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def optimized(wanted: bool) -> Iterator[None]:
    """Compiles as for users, or in two thirds of the time to programs that are slower."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", not wanted)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


@contextmanager
def float64() -> Iterator[None]:
    """For tests of formulas, to which the last digits of a program for users are no matter."""
    with optimized(False), jax.enable_x64(True):
        yield
