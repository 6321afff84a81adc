"""Code for the CPU and code for accelerators in one program."""

import contextvars
from collections.abc import Callable
from typing import Any

import jax

# Whether what is being traced is for the platform; without a value it is for this and for others.
_IS_FOR: dict[str, contextvars.ContextVar[bool]] = {
    platform: contextvars.ContextVar(f"is_for_{platform}") for platform in ("cpu", "cuda")
}


def choose(*operands: Any, cpu: Callable[..., Any], default: Callable[..., Any]) -> Any:
    """`cpu(*operands)` on the CPU, and `default(*operands)` on other platforms.

    Hazard: `jax.lax.platform_dependent` traces both, and both again in each part of a choice inside
    of a choice. Choice: inside of a choice the platform is known, and only its part is traced. The
    programs are the same. Cost: a function that is compiled by `jax.jit` itself must not choose
    inside of a choice, because JAX would use its trace for other platforms, too. A function that is
    `compiled` may.
    """
    if cpu is default:
        return cpu(*operands)
    return _choose("cpu", cpu, default, operands)


def choose_accelerator(
    *operands: Any, cuda: Callable[..., Any], default: Callable[..., Any]
) -> Any:
    """`cuda(*operands)` on NVIDIA's GPUs, and `default(*operands)` on other platforms.

    For the parts of `choose` that are not for the CPU. Both are traced, but inside of a choice only
    its part.
    """
    if cuda is default:
        return cuda(*operands)
    return _choose("cuda", cuda, default, operands)


def known() -> tuple[bool | None, ...]:
    """For each platform whether this is its part of a choice; `None` outside of choices."""
    return tuple(is_for.get(None) for is_for in _IS_FOR.values())


def _choose(
    platform: str, here: Callable[..., Any], default: Callable[..., Any], operands: tuple[Any, ...]
) -> Any:
    """`here(*operands)` on a platform, and `default(*operands)` on others."""
    is_for = _IS_FOR[platform]
    known = is_for.get(None)
    if known is not None:
        return (here if known else default)(*operands)

    def part(function: Callable[..., Any], *, is_here: bool) -> Callable[..., Any]:
        def trace(*operands: Any) -> Any:
            token = is_for.set(is_here)
            try:
                return function(*operands)
            finally:
                is_for.reset(token)

        return trace

    here, default = part(here, is_here=True), part(default, is_here=False)
    return jax.lax.platform_dependent(*operands, default=default, **{platform: here})
