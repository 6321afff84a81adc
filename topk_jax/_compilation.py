"""Computations that are compiled once, inside and outside of a user's `jax.jit`."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from topk_jax import _platforms

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a computation of checked arguments: `jax.jit`, static where there are no arrays.

    Arguments may be trees. Their leaves that are not arrays are static, and have to be hashable.

    Hazard: outside of `jit`, JAX compiles a loop anew in every call if its body is a closure.
    Choice: one program for the arrays' types and the static leaves. Inside of `jit` it is inlined,
    so that the user's program stays the same. Hazard: JAX would use one trace for all platforms in
    `_platforms.choose`. Choice: the known platforms are static, too. Cost: none.
    """

    @partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
    def of_arrays(_platforms: Any, tree: Any, static: tuple[Any, ...], *arrays: Any) -> Result:
        rest = iter(arrays)
        leaves = [next(rest) if leaf is _ARRAY else leaf for leaf in static]
        args, kwargs = jax.tree.unflatten(tree, leaves)
        return function(*args, **kwargs)

    @wraps(function)
    def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        leaves, tree = jax.tree.flatten((args, kwargs))
        are_arrays = [isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves]
        static = tuple(
            _ARRAY if is_array else leaf for leaf, is_array in zip(leaves, are_arrays, strict=True)
        )
        arrays = (leaf for leaf, is_array in zip(leaves, are_arrays, strict=True) if is_array)
        return of_arrays(_platforms.known(), tree, static, *arrays)

    return called


_ARRAY = object()
