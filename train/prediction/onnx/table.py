"""The table of lowerings: one function for each primitive of JAX."""

from collections.abc import Callable, Sequence
from typing import Any

from train.prediction.onnx.tensors import Tensor

# The values of the operands of a primitive, and the shapes and types of its results in JAX.
Inputs = Sequence[Tensor]
Outputs = Sequence[Any]
# Adds the nodes of a primitive to a graph, and returns the values of its results: a function of
# the graph, the values of the operands, the shapes and types of the results in JAX, and, by their
# names, the parameters of the primitive. It raises `NotImplementedError` for a form that it does
# not lower.
Lowering = Callable[..., Tensor | Sequence[Tensor]]
LOWERINGS: dict[str, Lowering] = {}


def lowers(*primitives: str) -> Callable[[Lowering], Lowering]:
    """Enters a function as the lowering of primitives."""

    def enter(lowering: Lowering) -> Lowering:
        for name in primitives:
            LOWERINGS[name] = lowering
        return lowering

    return enter
