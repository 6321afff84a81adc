"""The primitives that read numbers at computed places, or write numbers at known places.

JAX has one primitive for all of them: a place is a start along some axes, at which a window is.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from train.package.onnx.graph import Equation, Graph, Value, constant, is_static, like
from train.package.onnx.primitives import Lowering, choose, convert, part, reduce, reshape


def _read(of: Equation) -> Value:
    graph, (value, places), output = of.graph, of.inputs, of.outputs[0]
    numbers, slice_sizes, mode, fill_value = (
        of.params[name] for name in ("dimension_numbers", "slice_sizes", "mode", "fill_value")
    )
    indexed, shared = list(numbers.start_index_map), list(numbers.operand_batching_dims)
    if places.array is not None and len(places.shape) == 1 and not shared:
        starts = zip(indexed, places.known.tolist(), strict=True)
        cuts = {axis: (start, start + slice_sizes[axis], 1) for axis, start in starts}
        if not is_static(*cuts.values()):
            raise NotImplementedError("a part of the examples")
        if any(start < 0 or end > value.shape[axis] for axis, (start, end, _) in cuts.items()):
            raise NotImplementedError("windows outside an array")
        return reshape(graph, part(graph, value, cuts), output.shape)
    for axis, size in enumerate(slice_sizes):
        if size != (1 if axis in (*indexed, *shared) else value.shape[axis]):
            raise NotImplementedError("windows at places that are computed")
    points, inside = _inside(graph, places, [value.shape[axis] for axis in indexed], mode)
    found = _read_points(graph, value, points, output, numbers, indexed)
    if inside is None:
        return found
    held = list(output.shape)
    for axis in numbers.offset_dims:
        held[axis] = 1
    fill = constant(value.dtype.type(fill_value))
    return choose(graph, reshape(graph, inside, held), found, fill, output)


def _inside(
    graph: Graph, places: Value, sizes: Sequence[Any], mode: GatherScatterMode
) -> tuple[Value, Value | None]:
    """The places, moved inside the array; and which were inside, if the others are filled."""
    if not is_static(sizes):
        raise NotImplementedError("places among the examples")
    last = np.array(sizes) - 1
    known = places.array is not None and ((places.known >= 0) & (places.known <= last)).all()
    if known or mode == GatherScatterMode.PROMISE_IN_BOUNDS:
        return places, None
    bounds = [
        constant(one.astype(places.dtype).reshape((1,) * (len(places.shape) - 1) + last.shape))
        for one in (0 * last, last)
    ]
    above = graph.each("Max", [places, bounds[0]], places)
    clipped = graph.each("Min", [above, bounds[1]], places)
    if mode == GatherScatterMode.CLIP:
        return clipped, None
    same = graph.each("Equal", [places, clipped], like(places.shape, np.bool_))
    return clipped, reduce(graph, "ReduceMin", same, [len(places.shape) - 1])


def _read_points(
    graph: Graph, value: Value, places: Value, output: Any, numbers: Any, indexed: list[int]
) -> Value:
    """The numbers at places, along the axes that are indexed, and all along the others."""
    shared = list(numbers.operand_batching_dims)
    rest = [axis for axis in range(len(value.shape)) if axis not in (*indexed, *shared)]
    # The axes over the places come first, of these the ones that value and places share.
    of_places = list(numbers.start_indices_batching_dims)
    batch = of_places + [a for a in range(len(places.shape) - 1) if a not in of_places]
    first = graph.transpose(value, [*shared, *indexed, *rest])
    points = graph.transpose(convert(graph, places, np.int64), [*batch, len(places.shape) - 1])
    shape = [*(places.shape[axis] for axis in batch), *(value.shape[axis] for axis in rest)]
    found = graph.node(
        "GatherND", [first, points], like(shape, value.dtype), batch_dims=len(shared)
    )
    # In JAX the axes over the places are those that no window has. A window of size 1 can stay.
    at = [axis for axis in range(len(output.shape)) if axis not in numbers.offset_dims]
    gone = (*numbers.collapsed_slice_dims, *shared)
    kept = [axis for axis in range(len(value.shape)) if axis not in gone]
    offsets = dict(zip(kept, numbers.offset_dims, strict=True))
    axes = [*(at[axis] for axis in batch), *(offsets[axis] for axis in rest)]
    return reshape(graph, graph.transpose(found, np.argsort(axes).tolist()), output.shape)


def _write(reduction: str, of: Equation) -> Value:
    graph, (value, places, updates) = of.graph, of.inputs
    numbers, mode = of.params["dimension_numbers"], of.params["mode"]
    if numbers.operand_batching_dims or places.array is None or mode == GatherScatterMode.CLIP:
        raise NotImplementedError("numbers that are written at places that are computed")
    indexed, windows = list(numbers.scatter_dims_to_operand_dims), list(numbers.update_window_dims)
    kept = [a for a in range(len(value.shape)) if a not in numbers.inserted_window_dims]
    offsets = dict(zip(kept, windows, strict=True))
    sizes = [value.shape[axis] for axis in indexed]
    along = [axis for axis in indexed if axis in offsets]
    steps = [updates.shape[offsets[axis]] for axis in along]
    if not is_static(sizes, steps):
        raise NotImplementedError("numbers that are written among the examples")
    points = places.known.astype(np.int64)
    for axis, step in zip(along, steps, strict=True):
        # A window along an axis with places: one place for each of its numbers.
        unit = np.eye(len(indexed), dtype=np.int64)[indexed.index(axis)]
        points = points[..., None, :] + np.arange(step)[:, None] * unit
    points = points.reshape(-1, len(indexed))
    rest = [axis for axis in range(len(value.shape)) if axis not in indexed]
    batch = [axis for axis in range(len(updates.shape)) if axis not in windows]
    moved = graph.transpose(updates, [*batch, *(offsets[axis] for axis in (*along, *rest))])
    shape = [len(points), *(value.shape[axis] for axis in rest)]
    changes = reshape(graph, moved, shape)
    if ((points < 0) | (points >= sizes)).any():
        raise NotImplementedError("numbers that are written outside an array")
    order = [*indexed, *rest]
    before = graph.transpose(value, order)
    operands = [before, constant(points), changes]
    found = graph.node("ScatterND", operands, before, reduction=reduction)
    return graph.transpose(found, np.argsort(order).tolist())


TABLE: dict[str, Lowering] = {
    "gather": _read,
    "scatter": partial(_write, "none"),
    "scatter-add": partial(_write, "add"),
}
