"""Computations that are compiled once, and code for the CPU beside code for accelerators."""

import contextvars
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
# Whether what is being traced is for the CPU; without a value it is for all platforms.
_IS_FOR_CPU: contextvars.ContextVar[bool] = contextvars.ContextVar("is_for_cpu")


def choose(*operands: Any, cpu: Callable[..., Any], default: Callable[..., Any]) -> Any:
    """`cpu(*operands)` on the CPU, and `default(*operands)` on other platforms.

    `jax.lax.platform_dependent` would trace both again in each part of a choice inside of a choice.
    Here only the part of the known platform is traced. So a function that `jax.jit` compiles itself
    must not choose there: JAX would use its trace for other platforms, too; one that is `compiled`
    may.
    """
    if cpu is default:
        return cpu(*operands)
    is_for_cpu = _IS_FOR_CPU.get(None)
    if is_for_cpu is not None:
        return (cpu if is_for_cpu else default)(*operands)

    def part(function: Callable[..., Any], *, is_for_cpu: bool) -> Callable[..., Any]:
        def trace(*operands: Any) -> Any:
            token = _IS_FOR_CPU.set(is_for_cpu)
            try:
                return function(*operands)
            finally:
                _IS_FOR_CPU.reset(token)

        return trace

    return jax.lax.platform_dependent(
        *operands, cpu=part(cpu, is_for_cpu=True), default=part(default, is_for_cpu=False)
    )


def store(function: Callable[..., Any], *operands: Any) -> Any:
    """The result of `function(*operands)`, computed once and stored.

    XLA on the CPU removes barriers before it fuses, and computes even a random generator again for
    each use. So there it is a branch of a condition that XLA does not know.
    """

    def in_a_branch(*operands: Any) -> Any:
        def never(*operands: Any) -> Any:
            return jax.tree.map(jnp.zeros_like, function(*operands))

        always = jax.lax.optimization_barrier(jnp.asarray(True))
        return jax.lax.cond(always, function, never, *operands)

    def behind_a_barrier(*operands: Any) -> Any:
        return jax.lax.optimization_barrier(function(*operands))

    return choose(*operands, cpu=in_a_branch, default=behind_a_barrier)


def compute_once(scores: jax.Array) -> jax.Array:
    """The scores, behind a barrier.

    XLA may compute a score again for each use, with different rounding, so that a comparison of a
    score with itself fails.
    """
    return jax.lax.optimization_barrier(scores)


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a computation of checked arguments: `jax.jit`, with all but arrays static.

    Arguments may be trees, whose leaves that are not arrays have to be hashable. Outside of `jit`,
    JAX compiles a loop again in every call if its body is a closure: here there is one program for
    each type of the arrays and each value of the other leaves. Inside of `jit` it is inlined.
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
        # Inside of a choice, JAX would take a trace that is for another platform.
        return program((_IS_FOR_CPU.get(None), tree, others), arrays)

    return called
