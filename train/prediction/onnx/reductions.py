"""Primitives that combine the numbers along axes, or of windows, and orders of numbers."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from train.prediction.onnx import elementwise, shapes, tensors
from train.prediction.onnx.graph import Graph
from train.prediction.onnx.table import Inputs, Lowering, Outputs, lowers
from train.prediction.onnx.tensors import Like, Tensor


def _reduce(graph: Graph, operator: str, value: Tensor, axes: Sequence[int], like: Any) -> Tensor:
    """A reduction over axes of JAX; the others stay in their order."""
    value = graph.full(value)
    places = graph.store(np.array([value.place(axis) for axis in axes], np.int64))
    name = graph.add(operator, [graph.name_of(value), places], keepdims=0)
    kept = [axis for axis in value.order if axis not in axes]
    return graph.value(name, like, order=tuple(sorted(kept).index(axis) for axis in kept))


def _of_axes(operator: str) -> Lowering:
    def lower(
        graph: Graph, inputs: Inputs, outputs: Outputs, axes: tuple[int, ...], **_: Any
    ) -> Tensor:
        if not axes:
            return inputs[0]
        return _reduce(graph, operator, inputs[0], axes, outputs[0])

    return lower


for _primitive, _operator in (
    ("reduce_sum", "ReduceSum"),
    ("reduce_max", "ReduceMax"),
    ("reduce_min", "ReduceMin"),
    ("reduce_prod", "ReduceProd"),
):
    lowers(_primitive)(_of_axes(_operator))


def _of_booleans(operator: str) -> Lowering:
    """ONNX Runtime has no reductions of booleans."""

    def lower(
        graph: Graph, inputs: Inputs, outputs: Outputs, axes: tuple[int, ...], **_: Any
    ) -> Tensor:
        numbers = elementwise.convert(graph, inputs[0], np.int32)
        like = Like.of(outputs[0], np.int32)
        return elementwise.convert(graph, _reduce(graph, operator, numbers, axes, like), np.bool_)

    return lower


lowers("reduce_or")(_of_booleans("ReduceMax"))
lowers("reduce_and")(_of_booleans("ReduceMin"))


def _of_place(operator: str) -> Lowering:
    def lower(
        graph: Graph, inputs: Inputs, outputs: Outputs, axes: tuple[int, ...], **_: Any
    ) -> Tensor:
        (axis,) = axes
        found = graph.node(operator, inputs, Like.of(outputs[0], np.uint32), axis=axis, keepdims=0)
        return elementwise.convert(graph, found, outputs[0].dtype)

    return lower


lowers("argmax")(_of_place("ArgMax"))
lowers("argmin")(_of_place("ArgMin"))


@lowers("cumsum")
def _running_sum(
    graph: Graph, inputs: Inputs, outputs: Outputs, axis: int, reverse: bool, **_: Any
) -> Tensor:
    along = graph.store(np.array(axis, np.int64))
    return graph.node("CumSum", [inputs[0], along], outputs[0], reverse=int(reverse))


@lowers("cummax")
def _running_maximum(
    graph: Graph, inputs: Inputs, outputs: Outputs, axis: int, reverse: bool, **_: Any
) -> Tensor:
    value = graph.plain(inputs[0])
    length = value.shape[axis]
    if not isinstance(length, int):
        raise NotImplementedError("a running maximum over the examples")
    like = Like((*value.shape[:axis], 1, *value.shape[axis + 1 :]), value.dtype)
    parts = [shapes.sliced(graph, value, like, {axis: (at, at + 1, 1)}) for at in range(length)]
    parts = parts[::-1] if reverse else parts
    found = parts[:1]
    for part in parts[1:]:
        found.append(elementwise.combine(graph, "Max", [found[-1], part], like))
    return shapes.joined(graph, found[::-1] if reverse else found, outputs[0], axis)


@lowers("top_k")
def _largest(
    graph: Graph,
    inputs: Inputs,
    outputs: Outputs,
    k: int,
    operand: int | None = None,
    axis: int = -1,
    **_: Any,
) -> list[Tensor]:
    del operand
    return _in_order(graph, inputs[0], outputs, k, axis, largest=True)


def _in_order(
    graph: Graph, value: Tensor, outputs: Sequence[Any], number: int, axis: int, *, largest: bool
) -> list[Tensor]:
    """The first numbers along an axis in their order, and their places; equal ones as they were."""
    operands = [graph.name_of(graph.plain(value)), graph.store(np.array([number], np.int64))]
    names = graph.add("TopK", operands, outputs=2, axis=axis, largest=int(largest), sorted=1)
    found = graph.value(names[0], outputs[0])
    if len(outputs) == 1:
        return [found]
    places = graph.value(names[1], Like.of(outputs[1], np.uint32))
    return [found, elementwise.convert(graph, places, outputs[1].dtype)]


@lowers("sort")
def _sort(graph: Graph, inputs: Inputs, outputs: Outputs, dimension: int, **_: Any) -> list[Tensor]:
    if len(inputs) != 1:
        raise NotImplementedError("a sort of several arrays")
    length = inputs[0].shape[dimension]
    return _in_order(graph, inputs[0], outputs, length, dimension, largest=False)


def _pooled(
    graph: Graph,
    operator: str,
    value: Tensor,
    like: Any,
    parameters: dict[str, Any],
    **attributes: Any,
) -> Tensor:
    """Windows of rows and columns of [n, rows, columns, channels]."""
    size, strides, padding = (
        parameters[name] for name in ("window_dimensions", "window_strides", "padding")
    )
    dilated = any(
        step != 1 for step in (*parameters["base_dilation"], *parameters["window_dilation"])
    )
    if len(size) != 4 or size[0] != 1 or size[3] != 1 or dilated:
        raise NotImplementedError(f"windows of the shape {tuple(size)}")
    order = (0, 3, 1, 2)
    arranged = graph.full(graph.arrange(value, order))
    name = graph.add(
        operator,
        [graph.name_of(arranged)],
        kernel_shape=list(size[1:3]),
        strides=list(strides[1:3]),
        pads=[before for before, _ in padding[1:3]] + [after for _, after in padding[1:3]],
        **attributes,
    )
    return graph.value(name, like, order=order)


@lowers("reduce_window_max")
def _largest_of_windows(
    graph: Graph, inputs: Inputs, outputs: Outputs, **parameters: Any
) -> Tensor:
    return _pooled(graph, "MaxPool", inputs[0], outputs[0], parameters)


@lowers("reduce_window_sum")
def _sums_of_windows(graph: Graph, inputs: Inputs, outputs: Outputs, **parameters: Any) -> Tensor:
    means = _pooled(graph, "AveragePool", inputs[0], outputs[0], parameters, count_include_pad=1)
    number = tensors.constant(np.float32(math.prod(parameters["window_dimensions"])))
    return elementwise.combine(graph, "Mul", [means, number], outputs[0])
