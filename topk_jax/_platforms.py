"""Code for the CPU and code for accelerators in one program."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax

# Whether what is being traced is for the CPU; None if it is for all platforms.
_is_for_cpu: contextvars.ContextVar[bool | None] = contextvars.ContextVar("is_for_cpu")
# Whether it is for NVIDIA's GPUs; None if it is for all accelerators.
_is_for_cuda: contextvars.ContextVar[bool | None] = contextvars.ContextVar("is_for_cuda")


def choose(*operands: Any, cpu: Callable[..., Any], default: Callable[..., Any]) -> Any:
    """`cpu(*operands)` on the CPU, and `default(*operands)` on other platforms.

    Hazard: `jax.lax.platform_dependent` traces both, and both again in each part of a choice inside
    of a choice. Choice: inside of a choice the platform is known, and only its part is traced. The
    programs are the same. Cost: a function that is compiled by `jax.jit` itself must not choose
    inside of a choice, because JAX would use its trace for other platforms, too.
    """
    if cpu is default:
        return cpu(*operands)
    is_for_cpu = _is_for_cpu.get(None)
    if is_for_cpu is not None:
        return (cpu if is_for_cpu else default)(*operands)

    def on_cpu(*operands: Any) -> Any:
        with _known(_is_for_cpu, value=True):
            return cpu(*operands)

    def elsewhere(*operands: Any) -> Any:
        with _known(_is_for_cpu, value=False):
            return default(*operands)

    return jax.lax.platform_dependent(*operands, cpu=on_cpu, default=elsewhere)


def choose_accelerator(
    *operands: Any, cuda: Callable[..., Any], default: Callable[..., Any]
) -> Any:
    """`cuda(*operands)` on NVIDIA's GPUs, and `default(*operands)` on other platforms.

    For the parts of `choose` that are not for the CPU. Both are traced, but inside of a choice only
    its part.
    """
    is_for_cuda = _is_for_cuda.get(None)
    if is_for_cuda is not None:
        return (cuda if is_for_cuda else default)(*operands)

    def on_cuda(*operands: Any) -> Any:
        with _known(_is_for_cuda, value=True):
            return cuda(*operands)

    def elsewhere(*operands: Any) -> Any:
        with _known(_is_for_cuda, value=False):
            return default(*operands)

    return jax.lax.platform_dependent(*operands, cuda=on_cuda, default=elsewhere)


@contextlib.contextmanager
def _known(name: contextvars.ContextVar[bool | None], *, value: bool) -> Iterator[None]:
    token = name.set(value)
    try:
        yield
    finally:
        name.reset(token)
