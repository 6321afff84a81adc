"""How the tests compile.

Most of a test's time is compilation, and most tests are about formulas, shapes, errors and the
program. They compile without optimizations, in a third of the time. Tests of the last digits
compile as users do: `for_users`.

JAX 0.10 makes a context of MLIR for each program that it lowers, which takes longer than to lower
most programs of the tests; JAX 0.11 makes one for ten programs of a thread. See `share_contexts`.
"""

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax._src.interpreters import mlir

_QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    # Without optimizations, it takes longer to take a program apart than to compile it.
    "xla_cpu_parallel_codegen_split_count": 1,
}
# XLA's defaults.
_FOR_USERS = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_parallel_codegen_split_count": 32,
}
# XLA ends the process that has a flag that it does not know, and JAX 0.11 has this one no more.
if jax.__version_info__ < (0, 11):
    _QUICK["xla_cpu_use_fusion_emitters"] = False
    _FOR_USERS["xla_cpu_use_fusion_emitters"] = True

# The instructions that XLA may use, which the caller's XLA_FLAGS choose: in every process that
# tests start, which have their own XLA_FLAGS. The compilation cache keeps such programs apart.
INSTRUCTION_SET = " ".join(
    flag
    for flag in os.environ.get("XLA_FLAGS", "").split()
    if flag.startswith("--xla_cpu_max_isa=")
)
# For XLA_FLAGS.
QUICK_FLAGS = " ".join(
    (*(f"--{name}={str(value).lower()}" for name, value in _QUICK.items()), INSTRUCTION_SET)
).strip()

_make_context = mlir.make_ir_context


@functools.cache
def _context_of(thread: int) -> Any:
    return _make_context()


def for_users(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit`, which compiles as for users with any XLA_FLAGS."""
    return jax.jit(function, compiler_options=_FOR_USERS, **options)


def share_contexts() -> None:
    """Has all programs of a thread lowered in one context, until it is dropped."""
    mlir.make_ir_context = lambda: _context_of(threading.get_ident())


def drop_contexts() -> None:
    """Frees what programs left in the contexts that they share: types, and constants."""
    _context_of.cache_clear()
