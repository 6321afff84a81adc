"""Primitives that move numbers, or choose numbers at places that are known before."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from train.prediction.onnx import elementwise, tensors
from train.prediction.onnx.graph import Graph, is_same
from train.prediction.onnx.table import Inputs, Outputs, lowers
from train.prediction.onnx.tensors import Like, Tensor


@lowers("reshape")
def _reshape(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    value, shape = inputs[0], tuple(outputs[0].shape)
    if value.array is not None and value.array.size == 1:
        # A number that is stretched.
        return tensors.constant(value.array.reshape((1,) * len(shape)), shape)
    return graph.reshape(value, outputs[0])


@lowers("squeeze")
def _squeeze(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    return graph.reshape(inputs[0], outputs[0])


@lowers("broadcast_in_dim")
def _stretch(
    graph: Graph,
    inputs: Inputs,
    outputs: Outputs,
    shape: tuple[Any, ...],
    broadcast_dimensions: tuple[int, ...],
    **_: Any,
) -> Tensor:
    del shape
    return stretched(graph, inputs[0], outputs[0], broadcast_dimensions)


def stretched(
    graph: Graph, value: Tensor, like: Any, broadcast_dimensions: Sequence[int]
) -> Tensor:
    """A value with new axes, and with axes of size 1 stretched."""
    shape = tuple(like.shape)
    held: list[Any] = [1] * len(shape)
    for axis, dim in zip(broadcast_dimensions, value.held, strict=True):
        held[axis] = dim
    if value.array is not None:
        plain = value.array.transpose(np.argsort(value.order)) if value.rank else value.array
        return tensors.constant(plain.reshape(held), tuple(shape))
    arranged = graph.arrange(value, tuple(range(value.rank)))
    if len(shape) == value.rank:
        return replace(arranged, shape=tuple(shape), held=tuple(held))
    new = [axis for axis in range(len(shape)) if axis not in broadcast_dimensions]
    axes = graph.store(np.array(new, np.int64))
    name = graph.add("Unsqueeze", [graph.name_of(arranged), axes])
    return graph.value(name, Like.of(like, value.dtype), held=tuple(held))


@lowers("transpose")
def _transpose(
    graph: Graph, inputs: Inputs, outputs: Outputs, permutation: tuple[int, ...], **_: Any
) -> Tensor:
    del graph, outputs
    value = inputs[0]
    # The numbers stay where they are.
    return replace(
        value,
        shape=tuple(value.shape[axis] for axis in permutation),
        held=tuple(value.held[axis] for axis in permutation),
        order=tuple(permutation.index(axis) for axis in value.order),
    )


def joined(graph: Graph, inputs: Sequence[Tensor], like: Any, axis: int) -> Tensor:
    """Values one after the other along an axis."""
    if len(inputs) == 1:
        return inputs[0]
    if all(one.is_constant and tensors.is_static(one.shape) for one in inputs):
        return tensors.constant(np.concatenate([one.numbers() for one in inputs], axis))
    order = next((one.order for one in inputs if not one.is_constant), inputs[0].order)
    names = [graph.name_of(graph.full(graph.arrange(one, order))) for one in inputs]
    name = graph.add("Concat", names, axis=order.index(axis))
    return graph.value(name, like, order=order)


@lowers("concatenate")
def _concatenate(
    graph: Graph, inputs: Inputs, outputs: Outputs, dimension: int, **_: Any
) -> Tensor:
    return joined(graph, inputs, outputs[0], dimension)


@lowers("stack")
def _stack(graph: Graph, inputs: Inputs, outputs: Outputs, axis: int, **_: Any) -> Tensor:
    shape = list(outputs[0].shape)
    shape[axis] = 1
    like = Like(tuple(shape), np.dtype(outputs[0].dtype))
    return joined(graph, [graph.reshape(one, like) for one in inputs], outputs[0], axis)


@lowers("split")
def _split(
    graph: Graph, inputs: Inputs, outputs: Outputs, sizes: tuple[int, ...], axis: int, **_: Any
) -> list[Tensor]:
    value = graph.full(inputs[0])
    operands = [graph.name_of(value), graph.store(np.array(sizes, np.int64))]
    names = graph.add("Split", operands, outputs=len(sizes), axis=value.place(axis))
    names = [names] if isinstance(names, str) else names
    return [
        graph.value(name, like, order=value.order)
        for name, like in zip(names, outputs, strict=True)
    ]


@lowers("slice")
def _slice(
    graph: Graph,
    inputs: Inputs,
    outputs: Outputs,
    start_indices: tuple[Any, ...],
    limit_indices: tuple[Any, ...],
    strides: tuple[int, ...] | None,
    **_: Any,
) -> Tensor:
    value = inputs[0]
    steps = strides or (1,) * value.rank
    parts = {
        axis: (start, stop, step)
        for axis, (start, stop, step) in enumerate(
            zip(start_indices, limit_indices, steps, strict=True)
        )
        if not (is_same(start, 0) and is_same(stop, value.shape[axis]) and step == 1)
    }
    return sliced(graph, value, outputs[0], parts)


def sliced(
    graph: Graph, value: Tensor, like: Any, parts: dict[int, tuple[int, int, int]]
) -> Tensor:
    """Parts of some axes of a value, each from a start to a stop in steps."""
    if not parts:
        return value
    if value.is_constant and tensors.is_static(value.shape):
        places = [
            slice(*parts[axis]) if axis in parts else slice(None) for axis in range(value.rank)
        ]
        return tensors.constant(value.numbers()[tuple(places)])
    if not tensors.is_static(tuple(number for part in parts.values() for number in part)):
        raise NotImplementedError("a part of the examples")
    value = graph.full(value)
    columns = [np.array(column, np.int64) for column in zip(*parts.values(), strict=True)]
    starts, stops, steps = (graph.store(column) for column in columns)
    axes = graph.store(np.array([value.place(axis) for axis in parts], np.int64))
    name = graph.add("Slice", [graph.name_of(value), starts, stops, axes, steps])
    return graph.value(name, like, order=value.order)


@lowers("rev")
def _reverse(
    graph: Graph, inputs: Inputs, outputs: Outputs, dimensions: tuple[int, ...], **_: Any
) -> Tensor:
    value = inputs[0]
    if value.is_constant and tensors.is_static(value.shape):
        return tensors.constant(np.flip(value.numbers(), dimensions))
    # From the last number to the first one, in ONNX's form.
    whole = (-1, -(2**62), -1)
    return sliced(graph, value, outputs[0], dict.fromkeys(dimensions, whole))


@lowers("pad")
def _pad(
    graph: Graph,
    inputs: Inputs,
    outputs: Outputs,
    padding_config: tuple[tuple[int, int, int], ...],
    **_: Any,
) -> Tensor:
    value, filling = inputs
    if any(between for _, _, between in padding_config):
        raise NotImplementedError("padding between numbers")
    if not any(before or after for before, after, _ in padding_config):
        return value
    value = graph.full(value)
    pads = [padding_config[axis] for axis in value.order]
    amounts = [before for before, _, _ in pads] + [after for _, after, _ in pads]
    sizes = graph.store(np.array(amounts, np.int64))
    name = graph.add("Pad", [graph.name_of(value), sizes, graph.name_of(graph.plain(filling))])
    return graph.value(name, outputs[0], order=value.order)


@lowers("iota")
def _count(graph: Graph, inputs: Inputs, outputs: Outputs, dimension: int, **_: Any) -> Tensor:
    del inputs
    shape = tuple(outputs[0].shape)
    length = shape[dimension]
    held = tuple(length if axis == dimension else 1 for axis in range(len(shape)))
    if not isinstance(length, int):
        ends = [graph.store(np.array(end, np.int64)) for end in (0, 1)]
        stop = graph.add("Squeeze", [graph.sizes([length])])
        name = graph.add("Range", [ends[0], stop, ends[1]])
        # Held in 64 bits.
        counted = graph.value(name, Like((length,), np.dtype(np.uint32)))
        counted = elementwise.convert(graph, counted, outputs[0].dtype)
        return stretched(graph, counted, outputs[0], (dimension,))
    numbers = np.arange(length, dtype=outputs[0].dtype)
    return tensors.constant(numbers.reshape(held), shape)
