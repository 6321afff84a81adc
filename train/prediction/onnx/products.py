"""Products of matrices, and convolutions."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from train.prediction.onnx import elementwise
from train.prediction.onnx.graph import Graph
from train.prediction.onnx.table import Inputs, Outputs, lowers
from train.prediction.onnx.tensors import Like, Shape, Tensor


@lowers("dot_general")
def _multiply(
    graph: Graph, inputs: Inputs, outputs: Outputs, dimension_numbers: Any, **_: Any
) -> Tensor:
    left, right = inputs
    (left_summed, right_summed), (left_shared, right_shared) = dimension_numbers
    left_own = _others(left, (*left_summed, *left_shared))
    right_own = _others(right, (*right_summed, *right_shared))
    if not left_summed:
        return _products(graph, left, right, outputs[0], dimension_numbers)
    dtype = left.dtype
    shared = _sizes(left, left_shared)
    # [shared, own, summed] times [shared, summed, own].
    rows = _grouped(graph, left, (left_shared, left_own, left_summed), len(left_own) > 1)
    columns = _grouped(graph, right, (right_shared, right_summed, right_own), len(right_own) > 1)
    of_left, of_right = _sizes(left, left_own), _sizes(right, right_own)
    if not shared and right.is_constant:
        # The examples need not be counted: a matrix multiplies the last axis of any array.
        rows = _grouped(graph, left, (left_own, left_summed), False)
        shape = (*of_left, math.prod(of_right))
    else:
        shape = (*shared, math.prod(of_left), math.prod(of_right))
    product = graph.node("MatMul", [rows, columns], Like(shape, dtype))
    wanted = Like((*shared, *of_left, *of_right), dtype)
    if len(shape) == len(wanted.shape):
        return product
    return graph.reshape(product, wanted)


def _others(value: Tensor, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis for axis in range(value.rank) if axis not in axes)


def _sizes(value: Tensor, axes: Sequence[int]) -> Shape:
    return tuple(value.shape[axis] for axis in axes)


def _grouped(graph: Graph, value: Tensor, groups: Sequence[Sequence[int]], joins: bool) -> Tensor:
    """The axes in another order; the axes of each group but the first become one axis.

    Args:
        graph: the graph.
        value: the value.
        groups: the axes of each group.
        joins: whether a group has several axes; one without an axis has the size 1.
    """
    first, *others = groups
    order = tuple(axis for group in groups for axis in group)
    moved = graph.full(graph.arrange(value, order))
    shape = (*_sizes(value, first), *(math.prod(_sizes(value, group)) for group in others))
    # JAX has the axes in that order from here on.
    plain = Tensor(
        _sizes(value, order),
        value.dtype,
        _sizes(value, order),
        tuple(range(value.rank)),
        moved.name,
        moved.array,
    )
    if not joins and all(len(group) == 1 for group in others):
        return plain
    return graph.reshape(plain, Like(shape, value.dtype))


def _products(
    graph: Graph, left: Tensor, right: Tensor, like: Any, dimension_numbers: Any
) -> Tensor:
    """Products without a sum, of numbers at the same places of the shared axes."""
    _, (left_shared, right_shared) = dimension_numbers
    left_own, right_own = _others(left, left_shared), _others(right, right_shared)
    rank = len(like.shape)
    parts = []
    for value, shared, own, first in (
        (left, left_shared, left_own, len(left_shared)),
        (right, right_shared, right_own, len(left_shared) + len(left_own)),
    ):
        arranged = graph.full(graph.arrange(value, (*shared, *own)))
        shape: list[Any] = [1] * rank
        for place, axis in enumerate(shared):
            shape[place] = value.shape[axis]
        for place, axis in enumerate(own):
            shape[first + place] = value.shape[axis]
        moved = Tensor(
            _sizes(value, (*shared, *own)),
            value.dtype,
            _sizes(value, (*shared, *own)),
            tuple(range(value.rank)),
            arranged.name,
            arranged.array,
        )
        parts.append(graph.reshape(moved, Like(tuple(shape), value.dtype)))
    return elementwise.combine(graph, "Mul", parts, like, np.multiply)


@lowers("conv_general_dilated")
def _convolve(
    graph: Graph,
    inputs: Inputs,
    outputs: Outputs,
    window_strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    lhs_dilation: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    **_: Any,
) -> Tensor:
    if batch_group_count != 1 or any(step != 1 for step in lhs_dilation):
        raise NotImplementedError("a convolution with zeros between the numbers")
    images, kernel = inputs
    arranged = graph.full(graph.arrange(images, tuple(dimension_numbers.lhs_spec)))
    weights = graph.full(graph.arrange(kernel, tuple(dimension_numbers.rhs_spec)))
    sizes = [kernel.shape[axis] for axis in dimension_numbers.rhs_spec[2:]]
    name = graph.add(
        "Conv",
        [graph.name_of(arranged), graph.name_of(weights)],
        kernel_shape=sizes,
        strides=list(window_strides),
        dilations=list(rhs_dilation),
        group=feature_group_count,
        pads=[before for before, _ in padding] + [after for _, after in padding],
    )
    return graph.value(name, outputs[0], order=tuple(dimension_numbers.out_spec))
