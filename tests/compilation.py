"""How the tests compile.

Most of a test's time is compilation, and most tests are about formulas, shapes, errors and the
program. They compile without optimizations, in a third of the time. Tests of the last digits
compile as users do: `for_users`.

JAX makes a context of MLIR for each program that it lowers, which takes longer than most programs
of the tests do: `share_contexts`.
"""

import functools
import os
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

_shared_context = functools.cache(mlir.make_ir_context)


def for_users(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit`, which compiles as for users with any XLA_FLAGS."""
    return jax.jit(function, compiler_options=_FOR_USERS, **options)


def share_contexts() -> None:
    """Has all programs of this process lowered in one context, until it is dropped."""
    mlir.make_ir_context = _shared_context


def drop_context() -> None:
    """Frees what programs left in the context that they share: types, and constants."""
    _shared_context.cache_clear()
