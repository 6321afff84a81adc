"""Programs as JAX lowers them for machines that are not here, and what must not be in them."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export

# Platforms of `jax.export`: TPUs, and GPUs of NVIDIA and of AMD.
PLATFORMS = ("tpu", "cuda", "rocm")
# What programs of this project call by name: JAX's check of symbolic sizes, on any platform, which
# XLA takes out when it learns them. Kernels of one platform's libraries are not used.
CUSTOM_CALLS = frozenset({"shape_assertion"})
# Communication with the host, in any form.
_HOST = ("infeed", "outfeed", "send", "recv")
# Their results have static shapes: the name is of the place, which is computed.
_STATIC_IN_SPITE_OF_THE_NAME = frozenset({"dynamic_slice", "dynamic_update_slice"})
_CUSTOM_CALL = re.compile(r'custom_call @([\w$.]+)|call_target_name = "([^"]+)"')
_OPERATION = re.compile(r"\bstablehlo\.(\w+)")
# Not a letter of a constant in hexadecimals.
_FLOAT64 = re.compile(r"[x<]f64[>,]")
_UNKNOWN_SIZE = re.compile(r"[<x]\?x")


def lowered(
    function: Callable[..., Any], *shapes: Any, platforms: Sequence[str] = PLATFORMS
) -> jax.export.Exported:
    """The function of arrays of these shapes, as one program for the platforms."""
    return jax.export.export(jax.jit(function), platforms=platforms)(*shapes)


def custom_calls(program: jax.export.Exported) -> set[str]:
    """The names of the custom calls in a program."""
    return {"".join(found) for found in _CUSTOM_CALL.findall(program.mlir_module())}


def faults(program: jax.export.Exported) -> list[str]:
    """What keeps a program from running on its platforms, or makes it slow there."""
    text = program.mlir_module()
    operations = set(_OPERATION.findall(text))
    found = [f"the custom call {name}" for name in sorted(custom_calls(program) - CUSTOM_CALLS)]
    found += [f"the host by {name}" for name in _HOST if name in operations]
    if _FLOAT64.search(text):
        found.append("float64")
    sizes = {
        str(size)
        for array in (*program.in_avals, *program.out_avals)
        for size in array.shape
        if not isinstance(size, int)
    }
    if not sizes:
        # Nothing here may have a size that is known when the program runs.
        found += [
            f"the dynamic shape of {name}"
            for name in sorted(operations - _STATIC_IN_SPITE_OF_THE_NAME)
            if "dynamic" in name
        ]
        found += ["a dynamic shape"] if _UNKNOWN_SIZE.search(text) else []
    return found
