"""Primitives that read or write numbers at places that are computed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from train.prediction.onnx import elementwise, shapes, tensors
from train.prediction.onnx.graph import Graph, is_same
from train.prediction.onnx.table import Inputs, Lowering, Outputs, lowers
from train.prediction.onnx.tensors import Like, Tensor


@lowers("gather")
def _read(
    graph: Graph,
    inputs: Inputs,
    outputs: Outputs,
    dimension_numbers: Any,
    slice_sizes: tuple[Any, ...],
    mode: Any,
    fill_value: Any,
    **_: Any,
) -> Tensor:
    value, places = inputs
    indexed = tuple(dimension_numbers.start_index_map)
    shared = tuple(dimension_numbers.operand_batching_dims)
    if places.is_constant and places.rank == 1:
        return _window(graph, value, places.numbers(), outputs[0], dimension_numbers, slice_sizes)
    whole = [axis for axis in indexed if is_same(slice_sizes[axis], value.shape[axis])]
    if whole and whole != list(indexed) and mode != GatherScatterMode.FILL_OR_DROP:
        # A slice of a complete axis starts at 0, whatever its given start is.
        chosen = [number for number, axis in enumerate(indexed) if axis not in whole]
        places = _columns(graph, places, chosen)
        indexed = tuple(indexed[number] for number in chosen)
        dimension_numbers = dimension_numbers._replace(start_index_map=indexed)
    if not _are_whole(value.shape, slice_sizes, (*indexed, *shared)):
        raise NotImplementedError("windows at places that are computed")
    if places.is_constant and not shared:
        grid = _of_grid(graph, value, places.numbers(), outputs[0], dimension_numbers)
        if grid is not None:
            return grid
    inside, allowed = _inside(graph, places, [value.shape[axis] for axis in indexed], mode)
    found = _read_points(graph, value, inside, outputs[0], dimension_numbers)
    if allowed is None:
        return found
    # Places outside have the value that fills.
    filling = fill_value
    if filling is None:
        filling = np.nan if found.dtype.kind == "f" else np.iinfo(found.dtype).min
    batch = [axis for axis in range(found.rank) if axis not in dimension_numbers.offset_dims]
    held = [1] * found.rank
    for axis, dim in zip(batch, allowed.shape, strict=True):
        held[axis] = dim
    stretched = graph.reshape(allowed, Like(tuple(held), np.dtype(np.bool_)))
    fills = tensors.constant(np.array(filling, found.dtype))
    return elementwise.choose(graph, stretched, found, fills, outputs[0])


def _columns(graph: Graph, places: Tensor, chosen: list[int]) -> Tensor:
    """Some numbers of each place."""
    if places.is_constant:
        return tensors.constant(places.numbers()[..., chosen])
    like = Like((*places.shape[:-1], len(chosen)), places.dtype)
    numbers = graph.store(np.array(chosen, np.int64))
    return graph.node("Gather", [places, numbers], like, axis=places.rank - 1)


def _window(
    graph: Graph,
    value: Tensor,
    start: np.ndarray,
    like: Any,
    dimension_numbers: Any,
    sizes: tuple[Any, ...],
) -> Tensor:
    """The one window that starts at a place that is known."""
    parts = {}
    for axis, first in zip(dimension_numbers.start_index_map, start.tolist(), strict=True):
        if not 0 <= first <= value.shape[axis] - sizes[axis]:
            raise NotImplementedError("windows outside an array")
        parts[axis] = (first, first + sizes[axis], 1)
    shape = tuple(sizes[axis] if axis in parts else dim for axis, dim in enumerate(value.shape))
    found = shapes.sliced(graph, value, Like(shape, value.dtype), parts)
    return graph.reshape(found, like) if dimension_numbers.collapsed_slice_dims else found


def _are_whole(shape: Sequence[Any], sizes: Sequence[Any], indexed: Sequence[int]) -> bool:
    """Whether slices have one number along the axes with places, and all along the others."""
    return all(
        is_same(size, 1) if axis in indexed else is_same(size, dim)
        for axis, (size, dim) in enumerate(zip(sizes, shape, strict=True))
    )


def _of_grid(
    graph: Graph, value: Tensor, places: np.ndarray, like: Any, dimension_numbers: Any
) -> Tensor | None:
    """Every n-th row and column, or single places along one axis; None for other places."""
    indexed = tuple(dimension_numbers.start_index_map)
    collapsed = tuple(dimension_numbers.collapsed_slice_dims)
    batch = [axis for axis in range(len(like.shape)) if axis not in dimension_numbers.offset_dims]
    # The axes of the places must take the places of the axes of the value, in the same order.
    if collapsed != indexed or tuple(batch) != indexed or places.ndim - 1 != len(indexed):
        return None
    parts = {}
    for number, axis in enumerate(indexed):
        first = [0] * len(indexed)
        along: list[Any] = [*first]
        along[number] = slice(None)
        line = places[(*along, number)]
        shape = [1] * len(indexed)
        shape[number] = len(line)
        if not (places[..., number] == line.reshape(shape)).all():
            return None
        steps = np.diff(line)
        step = int(steps[0]) if len(steps) else 1
        size = value.shape[axis]
        is_inside = isinstance(size, int) and line.min() >= 0 and line.max() < size
        if step <= 0 or (steps != step).any() or not is_inside:
            return None
        parts[axis] = (int(line[0]), int(line[-1]) + 1, step)
    return shapes.sliced(graph, value, like, parts)


def _inside(
    graph: Graph, places: Tensor, sizes: Sequence[Any], mode: Any
) -> tuple[Tensor, Tensor | None]:
    """The places, moved inside the array; and which were inside, if the mode asks."""
    if not tensors.is_static(tuple(sizes)):
        raise NotImplementedError("places among the examples")
    last = np.array(sizes) - 1
    if places.is_constant:
        numbers = places.numbers().astype(np.int64)
        if ((numbers >= 0) & (numbers <= last)).all():
            return tensors.constant(numbers.astype(np.uint32)), None
    if mode == GatherScatterMode.PROMISE_IN_BOUNDS:
        return places, None
    if mode not in (GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP):
        raise NotImplementedError(f"places of the mode {mode}")
    least = tensors.constant(np.zeros((), places.dtype))
    stretched = tensors.constant(
        last.astype(places.dtype).reshape((1,) * (places.rank - 1) + last.shape), places.shape
    )
    above = elementwise.combine(graph, "Max", [places, least], places, np.maximum)
    clipped = elementwise.combine(graph, "Min", [above, stretched], places, np.minimum)
    if mode == GatherScatterMode.CLIP:
        return clipped, None
    same = Like.of(places, np.bool_)
    is_inside = elementwise.combine(graph, "Equal", [places, clipped], same, np.equal)
    without = Like(places.shape[:-1], np.dtype(np.int32))
    numbers_inside = elementwise.convert(graph, is_inside, np.int32)
    axis = graph.store(np.array([places.rank - 1], np.int64))
    all_inside = graph.node("ReduceMin", [numbers_inside, axis], without, keepdims=0)
    return clipped, elementwise.convert(graph, all_inside, np.bool_)


def _read_points(
    graph: Graph, value: Tensor, places: Tensor, like: Any, dimension_numbers: Any
) -> Tensor:
    indexed = tuple(dimension_numbers.start_index_map)
    shared = tuple(dimension_numbers.operand_batching_dims)
    of_places = tuple(dimension_numbers.start_indices_batching_dims)
    collapsed = {*dimension_numbers.collapsed_slice_dims, *shared}
    rest = [axis for axis in range(value.rank) if axis not in (*indexed, *shared)]
    kept = [axis for axis in range(value.rank) if axis not in collapsed]
    first = graph.full(graph.arrange(value, (*shared, *indexed, *rest)))
    others = [axis for axis in range(places.rank - 1) if axis not in of_places]
    batch = (*of_places, *others)
    points = graph.full(graph.arrange(places, (*batch, places.rank - 1)))
    points = elementwise.convert(graph, points, np.uint32)
    shape = (*(places.shape[axis] for axis in batch), *(value.shape[axis] for axis in rest))
    if not shared and len(indexed) == 1:
        flat = graph.reshape(_moved(points), Like(shape[: len(batch)], points.dtype))
        name = graph.add("Gather", [graph.name_of(first), graph.name_of(flat)], axis=0)
    else:
        operands = [graph.name_of(first), graph.name_of(points)]
        name = graph.add("GatherND", operands, batch_dims=len(shared))
    # In JAX the axes of the places are at the axes that no slice has.
    at = [axis for axis in range(len(like.shape)) if axis not in dimension_numbers.offset_dims]
    offsets = dict(zip(kept, dimension_numbers.offset_dims, strict=True))
    axes = (*(at[axis] for axis in batch), *(offsets[axis] for axis in rest))
    if len(axes) == len(like.shape):
        return graph.value(name, like, order=axes)
    # Slices of one number can keep their axis.
    order = tuple(sorted(axes).index(axis) for axis in axes)
    without = Like(tuple(like.shape[axis] for axis in sorted(axes)), value.dtype)
    return graph.reshape(graph.value(name, without, order=order), like)


def _moved(value: Tensor) -> Tensor:
    """The value, as if JAX had it as it is held."""
    shape = tuple(value.shape[axis] for axis in value.order)
    return Tensor(shape, value.dtype, shape, tuple(range(value.rank)), value.name, value.array)


def _writer(reduction: str) -> Lowering:
    def lower(
        graph: Graph, inputs: Inputs, outputs: Outputs, dimension_numbers: Any, mode: Any, **_: Any
    ) -> Tensor:
        return _write(graph, inputs, outputs[0], dimension_numbers, mode, reduction)

    return lower


lowers("scatter")(_writer("none"))
lowers("scatter-add")(_writer("add"))


def _write(
    graph: Graph,
    inputs: Sequence[Tensor],
    like: Any,
    dimension_numbers: Any,
    mode: Any,
    reduction: str,
) -> Tensor:
    value, places, updates = inputs
    indexed = tuple(dimension_numbers.scatter_dims_to_operand_dims)
    if dimension_numbers.operand_batching_dims or not places.is_constant:
        raise NotImplementedError("numbers that are written at places that are computed")
    numbers = places.numbers().astype(np.int64)
    inserted = tuple(dimension_numbers.inserted_window_dims)
    windows = tuple(dimension_numbers.update_window_dims)
    batch = tuple(axis for axis in range(updates.rank) if axis not in windows)
    kept = [axis for axis in range(value.rank) if axis not in inserted]
    offsets = dict(zip(kept, windows, strict=True))
    numbers, indexed = _spread(updates, numbers, indexed, offsets)
    batch = (*batch, *(offsets[axis] for axis in indexed if axis in offsets))
    rest = [axis for axis in range(value.rank) if axis not in indexed]
    sizes = np.array([value.shape[axis] for axis in indexed])
    is_inside = ((numbers >= 0) & (numbers < sizes)).all(axis=-1)
    changes = graph.full(graph.arrange(updates, (*batch, *(offsets[axis] for axis in rest))))
    changes = _moved(changes)
    points = numbers.reshape(-1, numbers.shape[-1])
    shape = (len(points), *(value.shape[axis] for axis in rest))
    changes = graph.reshape(changes, Like(shape, updates.dtype))
    if not is_inside.all():
        if mode == GatherScatterMode.CLIP:
            raise NotImplementedError("places that are moved inside before numbers are written")
        chosen = np.flatnonzero(is_inside)
        points = points[chosen]
        name = graph.add(
            "Gather", [graph.name_of(changes), graph.store(chosen.astype(np.int64))], axis=0
        )
        changes = graph.value(name, Like((len(chosen), *shape[1:]), updates.dtype))
    order = (*indexed, *rest)
    before = graph.full(graph.arrange(value, order))
    operands = [graph.name_of(one) for one in (before, tensors.constant(points), changes)]
    name = graph.add("ScatterND", operands, reduction=reduction)
    return graph.value(name, like, order=order)


def _spread(
    updates: Tensor,
    places: np.ndarray,
    indexed: tuple[int, ...],
    offsets: dict[int, int],
) -> tuple[np.ndarray, tuple[int, ...]]:
    """A place for each number that is written along an axis with places, if these are windows.

    Returns:
        The places, with an axis more for each such axis, and their axes of the value: the axes of
        windows last.
    """
    windows = [axis for axis in indexed if axis in offsets]
    found = places
    for axis in windows:
        size = updates.shape[offsets[axis]]
        if not isinstance(size, int):
            raise NotImplementedError("windows of the examples")
        found = np.repeat(found[..., None, :], size, axis=-2)
        found[..., indexed.index(axis)] += np.arange(size)
    single = [axis for axis in indexed if axis not in offsets]
    order = [indexed.index(axis) for axis in (*single, *windows)]
    return found[..., order], (*single, *windows)
