"""Code for the CPU and code for accelerators in one program."""

import contextvars
from collections.abc import Callable
from typing import Any

import jax

# Whether what is being traced is for the CPU; without a value it is for all platforms.
_IS_FOR_CPU: contextvars.ContextVar[bool] = contextvars.ContextVar("is_for_cpu")


def choose(*operands: Any, cpu: Callable[..., Any], default: Callable[..., Any]) -> Any:
    """`cpu(*operands)` on the CPU, and `default(*operands)` on other platforms.

    `jax.lax.platform_dependent` traces both, and both again in each part of a choice inside of a
    choice. Here the platform is known inside of a choice, and only its part is traced. So a
    function that `jax.jit` compiles itself must not choose there: JAX would use its trace for other
    platforms, too. A function that is `compiled` may.
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


def known() -> bool | None:
    """Whether this is the CPU's part of a choice; `None` outside of choices."""
    return _IS_FOR_CPU.get(None)
