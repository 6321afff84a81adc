"""Primitives that compute each number from the numbers at the same place."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from train.prediction.onnx import tensors
from train.prediction.onnx.graph import ELEMENTS, Graph
from train.prediction.onnx.table import Inputs, Lowering, Outputs, lowers
from train.prediction.onnx.tensors import Like, Tensor

_LOW_BITS = 2**32 - 1


def combine(
    graph: Graph,
    operator: str,
    inputs: Sequence[Tensor],
    like: Any,
    in_numpy: Callable[..., np.ndarray] | None = None,
    **attributes: Any,
) -> Tensor:
    """A node for values that are held in the same order, or computed now if all are constants.

    Args:
        graph: the graph.
        operator: the operator of the node.
        inputs: values of the shape of the output; a value without axes is a number for all places.
        like: what has the shape and the type of the output.
        in_numpy: the operator for constants; None to have a node for these too.
        attributes: the attributes of the node.
    """
    rank = len(like.shape)
    orders = [one.order for one in inputs if one.rank == rank and not one.is_constant]
    unusual = [order for order in orders if order != tuple(range(rank))]
    order = (unusual or [tuple(range(rank))])[0]
    aligned = [graph.arrange(one, order) if one.rank == rank else one for one in inputs]
    held = tuple(
        next((one.held[axis] for one in aligned if one.rank == rank and _is_long(one, axis)), 1)
        for axis in range(rank)
    )
    arrays = [one.array for one in aligned]
    if in_numpy is not None and all(array is not None for array in arrays):
        with np.errstate(all="ignore"):
            found = np.asarray(in_numpy(*arrays)).astype(like.dtype)
        return tensors.constant(found, tuple(like.shape), order)
    name = graph.add(operator, [graph.name_of(one) for one in aligned], **attributes)
    return graph.value(name, like, held=held, order=order)


def _is_long(value: Tensor, axis: int) -> bool:
    return not tensors.is_one(value.held[axis])


def _simple(operator: str, in_numpy: Callable[..., np.ndarray] | None = None) -> Lowering:
    def lower(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
        return combine(graph, operator, inputs, outputs[0], in_numpy)

    return lower


# The operators of ONNX that compute what a primitive computes.
for _primitive, _operator, _in_numpy in (
    ("abs", "Abs", np.abs),
    ("ceil", "Ceil", np.ceil),
    ("exp", "Exp", np.exp),
    ("floor", "Floor", np.floor),
    ("log", "Log", np.log),
    ("logistic", "Sigmoid", None),
    ("neg", "Neg", np.negative),
    ("sign", "Sign", np.sign),
    ("sqrt", "Sqrt", np.sqrt),
    ("tanh", "Tanh", np.tanh),
    ("erf", "Erf", None),
    ("max", "Max", np.maximum),
    ("min", "Min", np.minimum),
    ("pow", "Pow", None),
    ("eq", "Equal", np.equal),
    ("lt", "Less", np.less),
    ("le", "LessOrEqual", np.less_equal),
    ("gt", "Greater", np.greater),
    ("ge", "GreaterOrEqual", np.greater_equal),
):
    lowers(_primitive)(_simple(_operator, _in_numpy))


def _wrapped(operator: str, in_numpy: Callable[..., np.ndarray]) -> Lowering:
    """Unsigned integers of 32 bits are kept below 2^32; see `Tensor.dtype`."""

    def lower(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
        found = combine(graph, operator, inputs, outputs[0], in_numpy)
        if found.is_constant or found.dtype != np.uint32:
            return found
        return _low_bits(graph, found, outputs[0])

    return lower


lowers("add")(_wrapped("Add", np.add))
lowers("mul")(_wrapped("Mul", np.multiply))


def _low_bits(graph: Graph, value: Tensor, like: Any) -> Tensor:
    mask = tensors.constant(np.array(_LOW_BITS, np.uint32))
    return combine(graph, "BitwiseAnd", [value, mask], like)


@lowers("sub")
def _subtract(
    graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any
) -> Tensor | Sequence[Tensor]:
    value, less = inputs
    if less.array is not None and less.array.dtype == np.float32 and not value.is_constant:
        # ONNX Runtime makes such a sum a part of a convolution before it.
        return combine(graph, "Add", [value, replace(less, array=-less.array)], outputs[0])
    return _wrapped("Sub", np.subtract)(graph, inputs, outputs)


@lowers("div")
def _divide(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    in_numpy = np.divide if outputs[0].dtype == np.float32 else None
    return combine(graph, "Div", inputs, outputs[0], in_numpy)


@lowers("rem")
def _remainder(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    return combine(graph, "Mod", inputs, outputs[0], np.fmod, fmod=1)


@lowers("ne")
def _differ(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    if all(one.is_constant for one in inputs):
        return combine(graph, "", inputs, outputs[0], np.not_equal)
    return combine(graph, "Not", [combine(graph, "Equal", inputs, outputs[0])], outputs[0])


@lowers("not")
def _negate(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    operator = "Not" if inputs[0].dtype == np.bool_ else "BitwiseNot"
    return combine(graph, operator, inputs, outputs[0], np.invert)


def _of_bits(of_booleans: str, of_integers: str, in_numpy: Callable[..., np.ndarray]) -> Lowering:
    def lower(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
        operator = of_booleans if inputs[0].dtype == np.bool_ else of_integers
        return combine(graph, operator, inputs, outputs[0], in_numpy)

    return lower


lowers("and")(_of_bits("And", "BitwiseAnd", np.bitwise_and))
lowers("or")(_of_bits("Or", "BitwiseOr", np.bitwise_or))
lowers("xor")(_of_bits("Xor", "BitwiseXor", np.bitwise_xor))


@lowers("shift_right_logical")
def _shift_right(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    value, bits = inputs
    if value.dtype != np.uint32 or bits.array is None:
        raise NotImplementedError("a shift of signed integers, or by numbers that are computed")
    # Integers below 2^32 in 64 bits.
    powers = tensors.constant(2 ** bits.array.astype(np.int64), bits.shape, bits.order)
    return combine(graph, "Div", [value, powers], outputs[0])


@lowers("square")
def _square(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    return combine(graph, "Mul", [*inputs, *inputs], outputs[0], np.multiply)


@lowers("integer_pow")
def _integer_power(graph: Graph, inputs: Inputs, outputs: Outputs, y: int, **_: Any) -> Tensor:
    if y < 1:
        raise NotImplementedError(f"the power {y}")
    found = inputs[0]
    for _time in range(y - 1):
        found = combine(graph, "Mul", [found, inputs[0]], outputs[0], np.multiply)
    return found


@lowers("rsqrt")
def _inverse_root(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    if inputs[0].is_constant:
        return combine(graph, "", inputs, outputs[0], lambda x: np.float32(1) / np.sqrt(x))
    return combine(graph, "Reciprocal", [combine(graph, "Sqrt", inputs, outputs[0])], outputs[0])


@lowers("erfc")
def _complementary_error(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    # Small results lose digits, but networks multiply them and add 1 or more.
    one = tensors.constant(np.float32(1))
    return combine(graph, "Sub", [one, combine(graph, "Erf", inputs, outputs[0])], outputs[0])


@lowers("log1p")
def _log_of_one_more(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    one = tensors.constant(np.float32(1))
    return combine(graph, "Log", [combine(graph, "Add", [one, *inputs], outputs[0])], outputs[0])


@lowers("is_finite")
def _is_finite(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    if inputs[0].is_constant:
        return combine(graph, "", inputs, outputs[0], np.isfinite)
    # A NaN is not less than infinity.
    infinity = tensors.constant(np.float32(np.inf))
    size = combine(graph, "Abs", inputs, Like.of(outputs[0], np.float32))
    return combine(graph, "Less", [size, infinity], outputs[0])


@lowers("round")
def _round(
    graph: Graph, inputs: Inputs, outputs: Outputs, rounding_method: Any, **_: Any
) -> Tensor:
    if int(rounding_method) != 1:
        raise NotImplementedError("rounding of halves away from zero")
    return combine(graph, "Round", inputs, outputs[0], np.round)


@lowers("select_n")
def _select(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    which, *cases = inputs
    if len(cases) != 2 or which.dtype != np.bool_:
        raise NotImplementedError("a choice among more than two")
    if_false, if_true = cases
    return choose(graph, which, if_true, if_false, outputs[0])


def choose(graph: Graph, which: Tensor, if_true: Tensor, if_false: Tensor, like: Any) -> Tensor:
    """One of two values at each place."""
    cases = (which, if_true, if_false)
    if like.dtype != np.bool_ or all(one.is_constant for one in cases):
        return combine(graph, "Where", cases, like, np.where)
    # ONNX Runtime does not choose among booleans.
    other = combine(graph, "Not", [which], which, np.invert)
    parts = [
        combine(graph, "And", [condition, case], like, np.logical_and)
        for condition, case in ((which, if_true), (other, if_false))
    ]
    return combine(graph, "Or", parts, like)


@lowers("clamp")
def _clamp(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    least, value, most = inputs
    above = combine(graph, "Max", [value, least], outputs[0], np.maximum)
    return combine(graph, "Min", [above, most], outputs[0], np.minimum)


@lowers("convert_element_type")
def _convert(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Tensor:
    return convert(graph, inputs[0], outputs[0].dtype)


def convert(graph: Graph, value: Tensor, dtype: Any) -> Tensor:
    """The value in another type."""
    wanted, given = np.dtype(dtype), value.dtype
    like = Like.of(value, wanted)
    if given == wanted:
        return value
    if value.array is not None:
        return replace(value, dtype=wanted, array=value.array.astype(wanted))
    for one in (wanted, given):
        if one.name not in ELEMENTS:
            raise NotImplementedError(f"numbers of the type {one.name}")
    found = combine(graph, "Cast", [value], like, to=ELEMENTS[wanted.name])
    is_wrapped = wanted == np.uint32 and given == np.int32
    return _low_bits(graph, found, like) if is_wrapped else found


@lowers("copy", "stop_gradient", "optimization_barrier")
def _as_it_is(graph: Graph, inputs: Inputs, outputs: Outputs, **_: Any) -> Sequence[Tensor]:
    del graph, outputs
    return list(inputs)
