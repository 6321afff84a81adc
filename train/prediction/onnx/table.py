"""The table of lowerings: one function for each primitive of JAX."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from train.prediction.onnx.graph import Graph
from train.prediction.onnx.tensors import Tensor


class Lowering(Protocol):
    """Adds the nodes of a primitive to a graph."""

    def __call__(
        self, graph: Graph, inputs: Sequence[Tensor], outputs: Sequence[Any], **parameters: Any
    ) -> Tensor | Sequence[Tensor]:
        """The values of the outputs.

        Args:
            graph: the graph.
            inputs: the values of the operands.
            outputs: the shapes and types of the results in JAX.
            parameters: the parameters of the primitive.
        """


LOWERINGS: dict[str, Lowering] = {}


def lowers(*primitives: str) -> Callable[[Lowering], Lowering]:
    """Enters a function as the lowering of primitives."""

    def enter(lowering: Lowering) -> Lowering:
        for name in primitives:
            LOWERINGS[name] = lowering
        return lowering

    return enter
