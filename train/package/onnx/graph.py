"""ONNX graphs: nodes, constants, and values in the shapes of JAX."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax import ShapeDtypeStruct
from onnx import NodeProto, TensorProto, helper, numpy_helper

# The types of ONNX that the types of JAX become.
ELEMENTS: dict[str, int] = {
    "float32": TensorProto.FLOAT,
    "bool": TensorProto.BOOL,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
}
# A size is an integer, or a multiple of the number of examples, which JAX has as a symbol.
Shape = tuple[Any, ...]
# Smaller arrays stay in 32 bits.
_SMALL = 64


@dataclass(frozen=True)
class Value:
    """A value of JAX in a graph.

    Attributes:
        shape: its shape.
        dtype: its type.
        held: its shape in the graph. An axis that JAX has stretched has the size 1 there, until a
            node needs all of it: most nodes stretch by themselves.
        name: its name in the graph; empty for what depends on no example.
        array: its numbers, of the shape `held`; None for what depends on the examples.
    """

    shape: Shape
    dtype: Any
    held: Shape
    name: str = ""
    array: np.ndarray | None = None

    @property
    def is_known(self) -> bool:
        """Whether neither its numbers nor its shape depend on the examples."""
        return self.array is not None and is_static(self.shape)

    @property
    def known(self) -> np.ndarray:
        """All numbers of a value that is known."""
        assert self.array is not None
        return np.broadcast_to(self.array, self.shape)


def constant(numbers: Any, shape: Shape | None = None) -> Value:
    """A value that depends on no example, and is stretched to a shape if there is one."""
    array = np.asarray(numbers)
    return Value(array.shape if shape is None else shape, array.dtype, array.shape, array=array)


def ints(*numbers: int) -> Value:
    """Integers of 64 bits, with which ONNX counts."""
    return constant(np.array(numbers, np.int64))


def is_static(*shapes: Sequence[Any]) -> bool:
    """Whether no size depends on the number of examples."""
    return all(isinstance(size, int) for shape in shapes for size in shape)


def like(shape: Sequence[Any], dtype: Any) -> ShapeDtypeStruct:
    """The shape and the type that a value will have."""
    return ShapeDtypeStruct(tuple(shape), np.dtype(dtype))


@dataclass(frozen=True)
class Equation:
    """An equation of a jaxpr with its values in a graph.

    Attributes:
        graph: the graph.
        inputs: its inputs.
        outputs: what has the shapes and the types of its outputs.
        params: the parameters of its primitive.
    """

    graph: "Graph"
    inputs: Sequence[Value]
    outputs: Sequence[Any]
    params: dict[str, Any]


class Graph:
    """A graph that is made node by node.

    Attributes:
        nodes: its nodes, in an order in which they can be computed.
        constants: its constants by their names.
    """

    def __init__(self, examples: str, number: Any, *, half: bool = False) -> None:
        """Makes an empty graph.

        Args:
            examples: the name of the input whose first axis is over the examples.
            number: the number of examples, a symbol.
            half: whether constants that 16 bits have exactly are stored in these.
        """
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self._examples, self._number = examples, number
        self._half = half
        self._names = 0
        self._stored: dict[tuple[Any, ...], str] = {}

    def nodes_of(
        self, operator: str, inputs: Sequence[Value], outputs: Sequence[Any], **attributes: Any
    ) -> list[Value]:
        """Adds a node that needs its inputs in full.

        Args:
            operator: its operator.
            inputs: its inputs.
            outputs: what has the shapes and the types of its outputs.
            attributes: its attributes.
        """
        names = [self.name(self.full(one)) for one in inputs]
        found = self._add(operator, names, len(outputs), **attributes)
        return [named(name, one) for name, one in zip(found, outputs, strict=True)]

    def node(self, operator: str, inputs: Sequence[Value], output: Any, **attributes: Any) -> Value:
        """Adds a node with one output that needs its inputs in full."""
        return self.nodes_of(operator, inputs, [output], **attributes)[0]

    def each(self, operator: str, inputs: Sequence[Value], output: Any, **attributes: Any) -> Value:
        """Adds a node that computes each number by itself, and stretches its inputs."""
        rank = len(output.shape)
        held: list[Any] = [1] * rank
        for one in inputs:
            for axis, size in enumerate(one.held, rank - len(one.held)):
                if size != 1:
                    held[axis] = size
        (name,) = self._add(operator, [self.name(one) for one in inputs], 1, **attributes)
        return replace(named(name, output), held=tuple(held))

    def name(self, value: Value) -> str:
        """The name of a value as it is held."""
        return value.name if value.array is None else self._constant(value.array)

    def full(self, value: Value) -> Value:
        """The value with no axis that is still to be stretched."""
        if value.held == value.shape:
            return value
        (name,) = self._add("Expand", [self.name(value), self.name(self.sizes(value.shape))], 1)
        return named(name, value)

    def sizes(self, shape: Shape) -> Value:
        """The sizes of a shape, of which some are multiples of the number of examples."""
        if is_static(shape):
            return ints(*shape)
        factors = [0 if isinstance(size, int) else size // self._number for size in shape]
        known = [size if isinstance(size, int) else 0 for size in shape]
        (name,) = self._add("Shape", [self._examples], 1, start=0, end=1)
        number = named(name, like([1], np.int64))
        scaled = self.node("Mul", [number, ints(*factors)], like([len(shape)], np.int64))
        return self.node("Add", [scaled, ints(*known)], scaled)

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """The value with its axes in another order."""
        if list(order) == list(range(len(order))):
            return value
        shape, held = (tuple(sizes[axis] for axis in order) for sizes in (value.shape, value.held))
        if value.array is not None:
            return replace(value, shape=shape, held=held, array=value.array.transpose(order))
        (name,) = self._add("Transpose", [value.name], 1, perm=order)
        return replace(value, shape=shape, held=held, name=name)

    def _add(self, operator: str, inputs: list[str], outputs: int, **attributes: Any) -> list[str]:
        names = [self._new_name(operator.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names

    def _new_name(self, what: str) -> str:
        self._names += 1
        return f"{what}_{self._names}"

    def _constant(self, array: np.ndarray) -> str:
        """The name of an array; the same numbers are stored once."""
        numbers = np.asarray(array, order="C")
        key = (numbers.dtype.str, numbers.shape, hashlib.sha256(numbers.tobytes()).digest())
        if key not in self._stored:
            name = self._new_name("constant")
            halved = _halved(numbers) if self._half else None
            stored = numbers if halved is None else halved
            self.constants[name] = numpy_helper.from_array(stored, name)
            if halved is not None:
                (name,) = self._add("Cast", [name], 1, to=TensorProto.FLOAT)
            self._stored[key] = name
        return self._stored[key]


def named(name: str, output: Any) -> Value:
    """The value of a name, of the shape and the type of `output`."""
    return Value(tuple(output.shape), np.dtype(output.dtype), tuple(output.shape), name)


def _halved(numbers: np.ndarray) -> np.ndarray | None:
    """Numbers in 16 bits; None if these have them not exactly, or are not worth it."""
    if numbers.dtype != np.float32 or numbers.size < _SMALL:
        return None
    with np.errstate(over="ignore"):
        found = numbers.astype(np.float16)
    return found if np.array_equal(found.astype(np.float32), numbers) else None
