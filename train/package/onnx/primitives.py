"""The form that ONNX has for each primitive of JAX, but for those of `indexing`.

A function adds an equation to its graph. It raises NotImplementedError, in words, for what ONNX has
no form of. Convolutions transpose as they need it: ONNX Runtime moves that away.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from train.package.onnx.graph import (
    ELEMENTS,
    Equation,
    Graph,
    Value,
    constant,
    ints,
    is_static,
    like,
)

Lowering = Callable[[Equation], Value | Sequence[Value]]


def _each(operator: str) -> Lowering:
    """Of each number by itself."""
    return lambda of: of.graph.each(operator, of.inputs, of.outputs[0])


def _minus(of: Equation) -> Value:
    """Of known numbers the negative is added: ONNX Runtime folds sums into a convolution only."""
    left, right = of.inputs
    if right.array is None or right.dtype != np.float32:
        return of.graph.each("Sub", of.inputs, of.outputs[0])
    return of.graph.each("Add", [left, replace(right, array=-right.array)], of.outputs[0])


def _bound(operator: str, of: Equation) -> Value:
    """With one limit for all an activation, which ONNX Runtime folds into a convolution."""
    left, right = of.inputs
    limit = right.array if right.dtype == np.float32 else None
    if limit is not None and limit.size == 1:
        if operator == "Max" and not limit.any():
            return of.graph.each("Relu", [left], of.outputs[0])
        if operator == "Min":
            limits = [constant(np.float32(-np.inf)), constant(limit.reshape(()))]
            return of.graph.each("Clip", [left, *limits], of.outputs[0])
    return of.graph.each(operator, of.inputs, of.outputs[0])


def _power(of: Equation) -> Value:
    exponent = constant(of.inputs[0].dtype.type(of.params["y"]))
    return of.graph.each("Pow", [*of.inputs, exponent], of.outputs[0])


def _round(of: Equation) -> Value:
    if of.params["rounding_method"] != jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        raise NotImplementedError("rounding of halves away from zero")
    return of.graph.each("Round", of.inputs, of.outputs[0])


def _select(of: Equation) -> Value:
    which, *cases = of.inputs
    if which.dtype != np.bool_:
        raise NotImplementedError("a choice among more than two")
    return choose(of.graph, which, cases[1], cases[0], of.outputs[0])


def choose(graph: Graph, which: Value, yes: Value, no: Value, output: Any) -> Value:
    """Numbers of one value or of another."""
    if output.dtype != np.bool_:
        return graph.each("Where", [which, yes, no], output)
    # ONNX Runtime does not choose among booleans.
    not_which = graph.each("Not", [which], which)
    parts = [graph.each("And", pair, output) for pair in ([which, yes], [not_which, no])]
    return graph.each("Or", parts, output)


def convert(graph: Graph, value: Value, dtype: Any) -> Value:
    """The value in another type."""
    dtype = np.dtype(dtype)
    for one in (value.dtype, dtype):
        if one.name not in ELEMENTS:
            raise NotImplementedError(f"numbers of the type {one.name}")
    if value.dtype == dtype:
        return value
    if value.array is not None:
        return replace(value, dtype=dtype, array=value.array.astype(dtype))
    return graph.each("Cast", [value], like(value.shape, dtype), to=ELEMENTS[dtype.name])


def reshape(graph: Graph, value: Value, shape: Sequence[Any]) -> Value:
    """The numbers of a value in another shape."""
    shape = tuple(shape)
    if shape == value.shape:
        return value
    if value.array is not None and value.array.size == 1:
        return constant(value.array.reshape((1,) * len(shape)), shape)
    if value.is_known:
        return constant(value.known.reshape(shape))
    sizes = ints(*[size if isinstance(size, int) else -1 for size in shape])
    return graph.node("Reshape", [value, sizes], like(shape, value.dtype))


def _reshape(of: Equation) -> Value:
    return reshape(of.graph, of.inputs[0], of.outputs[0].shape)


def _stretch(of: Equation) -> Value:
    (value,), shape = of.inputs, tuple(of.outputs[0].shape)
    axes = of.params["broadcast_dimensions"]
    held: list[Any] = [1] * len(shape)
    for axis, size in zip(axes, value.held, strict=True):
        held[axis] = size
    if value.array is not None:
        return constant(value.array.reshape(held), shape)
    if len(axes) < len(shape):
        new = ints(*[axis for axis in range(len(shape)) if axis not in axes])
        value = of.graph.each("Unsqueeze", [value, new], of.outputs[0])
    return replace(value, shape=shape, held=tuple(held))


def _concatenate(of: Equation) -> Value:
    return of.graph.node("Concat", of.inputs, of.outputs[0], axis=of.params["dimension"])


def stack(of: Equation) -> Value:
    """Values along a new axis."""
    shape, axis = list(of.outputs[0].shape), of.params["axis"]
    shape[axis] = 1
    parts = [reshape(of.graph, one, shape) for one in of.inputs]
    return of.graph.node("Concat", parts, of.outputs[0], axis=axis)


def _split(of: Equation) -> list[Value]:
    inputs = [*of.inputs, ints(*of.params["sizes"])]
    return of.graph.nodes_of("Split", inputs, of.outputs, axis=of.params["axis"])


def _slice(of: Equation) -> Value:
    sizes = of.inputs[0].shape
    starts, ends = of.params["start_indices"], of.params["limit_indices"]
    steps = of.params["strides"] or (1,) * len(sizes)
    cuts = enumerate(zip(starts, ends, steps, strict=True))
    cut = {axis: cut for axis, cut in cuts if cut != (0, sizes[axis], 1)}
    return part(of.graph, of.inputs[0], cut)


def part(graph: Graph, value: Value, cuts: dict[int, tuple[Any, Any, int]]) -> Value:
    """The numbers from one place to another along some axes: start, end and step of each."""
    if not cuts:
        return value
    if not is_static(*cuts.values()):
        raise NotImplementedError("a part of the examples")
    shape = list(value.shape)
    for axis, cut in cuts.items():
        shape[axis] = len(range(*cut))
    starts, ends, steps = zip(*cuts.values(), strict=True)
    numbers = [ints(*one) for one in (starts, ends, tuple(cuts), steps)]
    return graph.node("Slice", [value, *numbers], like(shape, value.dtype))


def _reverse(of: Equation) -> Value:
    axes = of.params["dimensions"]
    last, beyond = (ints(*[number] * len(axes)) for number in (-1, -(2**62)))
    return of.graph.node("Slice", [*of.inputs, last, beyond, ints(*axes), last], of.outputs[0])


def _pad(of: Equation) -> Value:
    before, after, between = zip(*of.params["padding_config"], strict=True)
    if any(between):
        raise NotImplementedError("padding between numbers")
    inputs = [of.inputs[0], ints(*before, *after), of.inputs[1]]
    return of.graph.node("Pad", inputs, of.outputs[0])


def _count(of: Equation) -> Value:
    shape, along = tuple(of.outputs[0].shape), of.params["dimension"]
    if not is_static([shape[along]]):
        raise NotImplementedError("numbers of examples")
    held = [size if axis == along else 1 for axis, size in enumerate(shape)]
    return constant(np.arange(shape[along], dtype=of.outputs[0].dtype).reshape(held), shape)


def reduce(graph: Graph, operator: str, value: Value, axes: Sequence[int]) -> Value:
    """Sums or such along some axes."""
    if value.dtype == np.bool_:
        # ONNX Runtime has no reductions of booleans.
        numbers = convert(graph, value, np.int32)
        return convert(graph, reduce(graph, operator, numbers, axes), np.bool_)
    rest = like([size for a, size in enumerate(value.shape) if a not in axes], value.dtype)
    return graph.node(operator, [value, ints(*axes)], rest, keepdims=0)


def _reduced(operator: str) -> Lowering:
    return lambda of: reduce(of.graph, operator, of.inputs[0], of.params["axes"])


def _place(operator: str, of: Equation) -> Value:
    output, (axis,) = of.outputs[0], of.params["axes"]
    places = like(output.shape, np.int64)
    found = of.graph.node(operator, of.inputs, places, axis=axis, keepdims=0)
    return convert(of.graph, found, output.dtype)


def _running_sum(of: Equation) -> Value:
    inputs = [*of.inputs, constant(np.int64(of.params["axis"]))]
    return of.graph.node("CumSum", inputs, of.outputs[0], reverse=int(of.params["reverse"]))


def _running(
    farthest: Callable[..., jax.Array], x: jax.Array, axis: int, reverse: bool
) -> jax.Array:
    """The largest, or smallest, of 2, 4, 8 ... numbers up to each."""

    def cut(start: int, end: int | None) -> jax.Array:
        return jax.lax.slice_in_dim(x, start, end, axis=axis)

    for shift in (2**power for power in range((x.shape[axis] - 1).bit_length())):
        found = farthest(cut(0, -shift), cut(shift, None))
        parts = [found, cut(-shift, None)] if reverse else [cut(0, shift), found]
        x = jnp.concatenate(parts, axis)
    return x


def _largest(of: Equation) -> list[Value]:
    wanted = [of.outputs[0], like(of.outputs[1].shape, np.int64)]
    inputs = [*of.inputs, ints(of.params["k"])]
    found, places = of.graph.nodes_of("TopK", inputs, wanted, axis=of.params.get("axis", -1))
    return [found, convert(of.graph, places, of.outputs[1].dtype)]


def _sorted(of: Equation) -> list[Value]:
    (value,), axis = of.inputs, of.params["dimension"]
    inputs, wanted = [value, ints(value.shape[axis])], [value, like(value.shape, np.int64)]
    return of.graph.nodes_of("TopK", inputs, wanted, axis=axis, largest=0)[:1]


def _pooled(operator: str, of: Equation, **attributes: Any) -> Value:
    size = tuple(of.params["window_dimensions"])
    dilations = (*of.params["base_dilation"], *of.params["window_dilation"])
    if (len(size), size[0], size[-1], *dilations) != (4, *[1] * 10):
        raise NotImplementedError(f"windows of the shape {size}")
    number, *middle, depth = of.outputs[0].shape
    before, after = zip(*of.params["padding"][1:3], strict=True)
    found = of.graph.node(
        operator,
        [of.graph.transpose(of.inputs[0], (0, 3, 1, 2))],
        like([number, depth, *middle], of.outputs[0].dtype),
        kernel_shape=size[1:3],
        strides=of.params["window_strides"][1:3],
        pads=[*before, *after],
        **attributes,
    )
    return of.graph.transpose(found, (0, 2, 3, 1))


def _sum_of_windows(of: Equation) -> Value:
    means = _pooled("AveragePool", of, count_include_pad=1)
    number = math.prod(of.params["window_dimensions"])
    return of.graph.each("Mul", [means, constant(np.float32(number))], means)


def _multiply(of: Equation) -> Value:
    """Matrices, of which ONNX Runtime computes products faster than other sums; and those."""
    left, right = (len(one.shape) for one in of.inputs)
    (of_left, of_right), shared = of.params["dimension_numbers"]
    rest = [axis for axis in range(left) if axis not in (*of_left, *shared[0])]
    columns = [axis for axis in range(right) if axis not in (*of_right, *shared[1])]
    if len(of_left) == len(columns) == 1 and (len(rest) == 1 or not shared[0]):
        orders = [*shared[0], *rest, *of_left], [*shared[1], *of_right, *columns]
        pair = [of.graph.transpose(*one) for one in zip(of.inputs, orders, strict=True)]
        return of.graph.node("MatMul", pair, of.outputs[0])
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    first = [next(letters) for _ in range(left)]
    same = dict(zip((*of_right, *shared[1]), (*of_left, *shared[0]), strict=True))
    second = [first[same[axis]] if axis in same else next(letters) for axis in range(right)]
    out = [first[axis] for axis in (*shared[0], *rest)] + [second[axis] for axis in columns]
    equation = f"{''.join(first)},{''.join(second)}->{''.join(out)}"
    return of.graph.node("Einsum", of.inputs, of.outputs[0], equation=equation)


def _convolve(of: Equation) -> Value:
    params, output = of.params, of.outputs[0]
    if params["batch_group_count"] != 1 or any(step != 1 for step in params["lhs_dilation"]):
        raise NotImplementedError("a convolution with zeros between the numbers")
    *orders, order = params["dimension_numbers"]
    before, after = zip(*params["padding"], strict=True)
    found = of.graph.node(
        "Conv",
        [of.graph.transpose(*pair) for pair in zip(of.inputs, orders, strict=True)],
        like([output.shape[axis] for axis in order], output.dtype),
        strides=params["window_strides"],
        dilations=params["rhs_dilation"],
        group=params["feature_group_count"],
        pads=[*before, *after],
    )
    return of.graph.transpose(found, np.argsort(order).tolist())


# What has no operator, by what has one.
COMPOSED: dict[str, Callable[..., jax.Array]] = {
    "cummax": lambda x, axis, reverse, **_: _running(jnp.maximum, x, axis, reverse),
    "cummin": lambda x, axis, reverse, **_: _running(jnp.minimum, x, axis, reverse),
    "erfc": lambda x, **_: 1 - jax.lax.erf(x),
    "is_finite": lambda x, **_: jnp.abs(x) < jnp.inf,
    "ne": lambda x, y, **_: ~jax.lax.eq(x, y),
    "rsqrt": lambda x, **_: 1 / jnp.sqrt(x),
    "square": lambda x, **_: x * x,
}
_NAMES = "Abs Add And Ceil Div Erf Exp Floor Log Mul Neg Not Or Pow Sign Sqrt Tanh Xor"
TABLE: dict[str, Lowering] = {
    **{name.lower(): _each(name) for name in _NAMES.split()},
    "logistic": _each("Sigmoid"),
    "sub": _minus,
    "max": functools.partial(_bound, "Max"),
    "min": functools.partial(_bound, "Min"),
    "eq": _each("Equal"),
    "lt": _each("Less"),
    "le": _each("LessOrEqual"),
    "gt": _each("Greater"),
    "ge": _each("GreaterOrEqual"),
    "integer_pow": _power,
    "rem": lambda of: of.graph.each("Mod", of.inputs, of.outputs[0], fmod=1),
    "round": _round,
    "select_n": _select,
    "convert_element_type": lambda of: convert(of.graph, of.inputs[0], of.outputs[0].dtype),
    **dict.fromkeys(("copy", "stop_gradient", "optimization_barrier"), lambda of: of.inputs),
    **dict.fromkeys(("reshape", "squeeze"), _reshape),
    "transpose": lambda of: of.graph.transpose(of.inputs[0], of.params["permutation"]),
    "broadcast_in_dim": _stretch,
    "concatenate": _concatenate,
    "stack": stack,
    "split": _split,
    "slice": _slice,
    "rev": _reverse,
    "pad": _pad,
    "iota": _count,
    "reduce_sum": _reduced("ReduceSum"),
    "reduce_max": _reduced("ReduceMax"),
    "reduce_min": _reduced("ReduceMin"),
    "reduce_or": _reduced("ReduceMax"),
    "argmax": functools.partial(_place, "ArgMax"),
    "argmin": functools.partial(_place, "ArgMin"),
    "cumsum": _running_sum,
    "top_k": _largest,
    "sort": _sorted,
    "reduce_window_max": functools.partial(_pooled, "MaxPool"),
    "reduce_window_sum": _sum_of_windows,
    "dot_general": _multiply,
    "conv_general_dilated": _convolve,
}
