"""Computations that are compiled once, also outside of a user's `jax.jit`."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from topk_jax import _platforms

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a computation of checked arguments: `jax.jit`, with all but arrays static.

    Arguments may be trees. Their leaves that are not arrays have to be hashable.

    Hazard: outside of `jit`, JAX compiles a loop anew in every call if its body is a closure.
    Choice: one program for each type of the arrays and each value of the other leaves. Inside of
    `jit` it is inlined, so that the user's program is the same as without it. Cost: none.

    Hazard: inside of a choice by the platform (`_platforms.choose`), JAX would take a trace that is
    for another platform. Choice: what is known of the platform is static, too. Cost: none.
    """

    def of_arrays(static: tuple[Any, ...], arrays: list[Any]) -> Result:
        _, tree, others = static
        leaves = [
            other if array is None else array for other, array in zip(others, arrays, strict=True)
        ]
        args, kwargs = jax.tree.unflatten(tree, leaves)
        return function(*args, **kwargs)

    # What JAX logs and profiles has this name.
    of_arrays.__name__ = function.__name__
    program = jax.jit(of_arrays, static_argnums=0, inline=True)

    @wraps(function)
    def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        leaves, tree = jax.tree.flatten((args, kwargs))
        # For JAX, `None` is a tree without leaves.
        arrays = [leaf if isinstance(leaf, jax.Array | np.ndarray) else None for leaf in leaves]
        others = tuple(
            leaf if array is None else None for leaf, array in zip(leaves, arrays, strict=True)
        )
        return program((_platforms.known(), tree, others), arrays)

    return called
