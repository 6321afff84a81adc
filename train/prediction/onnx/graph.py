"""Makes an ONNX graph: nodes, constants, and values in the layouts that nodes need."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from train.prediction.onnx import tensors
from train.prediction.onnx.tensors import Dim, Shape, Tensor

# The types of ONNX that the types of JAX become. See `Tensor.dtype`.
ELEMENTS: dict[str, int] = {
    "float32": onnx.TensorProto.FLOAT,
    "bool": onnx.TensorProto.BOOL,
    "int32": onnx.TensorProto.INT32,
    "uint32": onnx.TensorProto.INT64,
    "uint8": onnx.TensorProto.UINT8,
}


class Graph:
    """A graph that is made node by node.

    Attributes:
        nodes: its nodes, in an order in which they can be computed.
        constants: its constants by their names.
    """

    def __init__(self, examples: str, *, half: bool = False) -> None:
        """Makes an empty graph.

        Args:
            examples: the name of the input whose first axis is over the examples.
            half: whether large constants are stored in 16 bits.
        """
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self._examples = examples
        self._half = half
        self._names = 0
        self._known: dict[tuple[Any, ...], str] = {}
        # The arrays of constants are kept, so that no other array gets the address of one.
        self._kept: list[np.ndarray] = []

    def add(self, operator: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        """Adds a node; returns the name of its output, or a list of names for several."""
        names = [self._new_name(operator.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def node(
        self, operator: str, inputs: Sequence[Tensor | str], like: Any, **attributes: Any
    ) -> Tensor:
        """Adds a node for inputs that are held as in JAX.

        Args:
            operator: its operator.
            inputs: values, or names of values that JAX does not have.
            like: what has the shape and the type of its output.
            attributes: its attributes.
        """
        names = [one if isinstance(one, str) else self.name_of(self.plain(one)) for one in inputs]
        return self.value(self.add(operator, names, **attributes), like)

    @staticmethod
    def value(
        name: str, like: Any, *, held: Shape | None = None, order: tuple[int, ...] | None = None
    ) -> Tensor:
        """The value of a name, of the shape and the type of `like`."""
        shape = tuple(like.shape)
        order = tuple(range(len(shape))) if order is None else order
        return Tensor(shape, np.dtype(like.dtype), shape if held is None else held, order, name)

    def name_of(self, value: Tensor) -> str:
        """The name of a value as it is held."""
        if value.name is not None:
            return value.name
        assert value.array is not None
        return self.store(value.array)

    def store(self, array: np.ndarray) -> str:
        """The name of a constant."""
        small = array.size <= 16
        key: tuple[Any, ...] = (
            array.dtype.str,
            array.shape,
            array.tobytes() if small else array.ctypes.data,
        )
        if not small:
            key = (*key, array.strides)
        if key not in self._known:
            self._kept.append(array)
            self._known[key] = self._store(array)
        return self._known[key]

    def _store(self, array: np.ndarray) -> str:
        numbers = np.ascontiguousarray(array).reshape(array.shape)
        if numbers.dtype == np.uint32:
            numbers = numbers.astype(np.int64)
        if not self._half or numbers.dtype != np.float32 or not fits_half(numbers):
            name = self._new_name("constant")
            self.constants[name] = numpy_helper.from_array(numbers, name)
            return name
        stored = self._new_name("half")
        self.constants[stored] = numpy_helper.from_array(numbers.astype(np.float16), stored)
        return str(self.add("Cast", [stored], to=onnx.TensorProto.FLOAT))

    def arrange(self, value: Tensor, order: tuple[int, ...]) -> Tensor:
        """The value, held in that order of the axes of JAX."""
        if value.order == order:
            return value
        moves = [value.place(axis) for axis in order]
        if value.array is not None:
            return replace(value, order=order, array=value.array.transpose(moves))
        name = self.add("Transpose", [self.name_of(value)], perm=moves)
        return replace(value, order=order, name=name)

    def full(self, value: Tensor) -> Tensor:
        """The value with all of its numbers."""
        if all(is_same(one, other) for one, other in zip(value.held, value.shape, strict=True)):
            return value
        sizes = [value.shape[axis] for axis in value.order]
        if value.array is not None and tensors.is_static(value.shape):
            array = np.ascontiguousarray(np.broadcast_to(value.array, sizes))
            return replace(value, held=value.shape, array=array)
        name = self.add("Expand", [self.name_of(value), self.sizes(sizes)])
        return replace(value, held=value.shape, name=name, array=None)

    def plain(self, value: Tensor) -> Tensor:
        """The value as JAX has it."""
        return self.full(self.arrange(value, tuple(range(value.rank))))

    def reshape(self, value: Tensor, like: Any) -> Tensor:
        """The numbers of a value in another shape."""
        shape = tuple(like.shape)
        if value.is_constant and tensors.is_static(value.shape):
            return tensors.constant(value.numbers().reshape(shape))
        unknown = [not isinstance(dim, int) for dim in shape]
        if sum(unknown) == 1 and 0 not in [dim for dim in shape if isinstance(dim, int)]:
            wanted = [-1 if open_ else dim for dim, open_ in zip(shape, unknown, strict=True)]
            name = self.store(np.array(wanted, np.int64))
        else:
            name = self.sizes(shape)
        return self.node("Reshape", [value, name], like)

    def sizes(self, shape: Sequence[Dim]) -> str:
        """The name of the sizes of a shape, integers of 64 bits."""
        if tensors.is_static(tuple(shape)):
            return self.store(np.array(shape, np.int64))
        parts = [
            self.store(np.array([dim], np.int64)) if isinstance(dim, int) else self._size(dim)
            for dim in shape
        ]
        return str(self.add("Concat", parts, axis=0)) if len(parts) > 1 else parts[0]

    def _size(self, dim: Dim) -> str:
        """The name of a dimension a n + b, of n examples."""
        key = ("dimension", str(dim))
        if key not in self._known:
            variables = tuple(dim._get_vars())
            at = [int(dim._evaluate(dict.fromkeys(variables, n))) for n in (2, 3, 7)]
            slope = at[1] - at[0]
            if at[2] - at[0] != 5 * slope:
                raise NotImplementedError(f"the size {dim}")
            number = self.add("Shape", [self._examples], start=0, end=1)
            if slope != 1:
                number = self.add("Mul", [number, self.store(np.array([slope], np.int64))])
            if rest := at[0] - 2 * slope:
                number = self.add("Add", [number, self.store(np.array([rest], np.int64))])
            self._known[key] = number
        return self._known[key]

    def _new_name(self, what: str) -> str:
        self._names += 1
        return f"{what}_{self._names}"


def is_same(one: Dim, other: Dim) -> bool:
    """Whether two dimensions are the same for any number of examples."""
    return bool(one == other)


def fits_half(numbers: np.ndarray) -> bool:
    """Whether numbers are stored in 16 bits without a further rounding, and are worth it."""
    if numbers.size < 64:
        return False
    with np.errstate(over="ignore"):
        return bool(np.array_equal(numbers.astype(np.float16).astype(np.float32), numbers))


def prune(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that outputs depend on."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
    return kept[::-1]
