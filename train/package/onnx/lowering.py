"""Functions of JAX as ONNX models: their jaxprs, equation by equation.

What depends on no example is computed here, once.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx
from jax.extend import core
from onnx import helper

from train.foundation.errors import UserError
from train.package.onnx import indexing, primitives
from train.package.onnx.graph import (
    ELEMENTS,
    Equation,
    Graph,
    Value,
    constant,
    is_static,
    like,
    named,
)
from train.package.onnx.primitives import Lowering

# The operators of ONNX that ONNX Runtime has since 1.14, of 2023. Browsers have these too.
OPSET = 18
_IR = 8
# A file of protobuf cannot be larger.
_MOST_BYTES = 2**31 - 2**16
# Primitives that compute a jaxpr, and the parameter that has it.
_CALLS = {"jit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
# JAX would compile each of these for each shape, which takes a minute for a large network.
_IN_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "max": np.maximum,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
# No form for a platform is meant: all compute the same.
_ANY_PLATFORM = -1


def make(
    function: Callable[[jax.Array], Sequence[jax.Array]],
    name: str,
    shape: Sequence[int],
    dtype: Any,
    outputs: Sequence[str],
    metadata: Mapping[str, Any],
    *,
    half: bool = False,
) -> bytes:
    """The contents of a file of ONNX.

    Args:
        function: maps examples [n, ...] to arrays [n, ...], for any n of at least 1.
        name: the name of its input.
        shape: the shape of an example.
        dtype: the type of the examples.
        outputs: the names of its results.
        metadata: the description of the file; JSON values by names.
        half: whether numbers that 16 bits have exactly are stored in 16 bits.

    Raises:
        UserError: ONNX has no form of an operation, or the file would be too large.
    """
    (number,) = jax.export.symbolic_shape("n")
    closed = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((number, *shape), dtype))
    graph = Graph(name, number, half=half)
    given = named(name, closed.in_avals[0])
    try:
        results = [graph.full(one) for one in _run(graph, closed, [given])]
    except NotImplementedError as error:
        raise UserError(f"--format=onnx has no form of {error}") from error
    for output, value in zip(outputs, results, strict=True):
        graph.nodes.append(helper.make_node("Identity", [graph.name(value)], [output]))
    constants = list(graph.constants.values())
    if sum(len(one.raw_data) for one in constants) > _MOST_BYTES:
        raise UserError("--format=onnx is for classifiers of less than 2 GB; this one is larger")
    infos = [_info(*one) for one in zip(outputs, results, strict=True)]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "classifier", [_info(name, given)], infos, constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR,
        producer_name="topk_jax",
    )
    # In ASCII: protobuf does not take a path with bytes that are not UTF-8.
    helper.set_model_props(model, {key: json.dumps(value) for key, value in metadata.items()})
    return bytes(model.SerializeToString())


def _info(name: str, value: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ELEMENTS[value.dtype.name], ["n", *value.shape[1:]])


def _run(graph: Graph, closed: Any, inputs: Sequence[Value]) -> list[Value]:
    """Adds what a jaxpr computes to a graph; returns its outputs."""
    jaxpr = closed.jaxpr
    values: dict[Any, Value] = dict(zip(jaxpr.invars, inputs, strict=True))
    values |= zip(jaxpr.constvars, map(constant, closed.consts), strict=True)

    def read(atom: Any) -> Value:
        if isinstance(atom, core.Literal):
            aval: Any = atom.aval
            return constant(np.asarray(atom.val, aval.dtype))
        return values[atom]

    for equation in jaxpr.eqns:
        found = _lower(graph, equation, [read(atom) for atom in equation.invars])
        results = [found] if isinstance(found, Value) else found
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _lower(graph: Graph, equation: Any, inputs: Sequence[Value]) -> Value | Sequence[Value]:
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        return _run(graph, params[_CALLS[name]], inputs)
    this = Equation(graph, inputs, [variable.aval for variable in equation.outvars], params)
    is_known = is_static(*[one.shape for one in this.outputs])
    if name not in _KEPT and is_known and all(one.is_known for one in inputs):
        return _computed(equation.primitive, this)
    if name in primitives.COMPOSED:
        function = partial(primitives.COMPOSED[name], **params)
        closed = jax.make_jaxpr(function)(*[like(one.shape, one.dtype) for one in inputs])
        return _run(graph, closed, inputs)
    if name not in _TABLE:
        raise NotImplementedError(f"the operation {name} of JAX")
    return _TABLE[name](this)


def _computed(primitive: Any, of: Equation) -> list[Value]:
    function = _IN_NUMPY.get(primitive.name)
    if function is not None and of.outputs[0].dtype == np.float32:
        with np.errstate(all="ignore"):
            numbers = np.asarray(function(*[one.array for one in of.inputs]), np.float32)
        return [constant(numbers, tuple(of.outputs[0].shape))]
    found = primitive.bind(*[jnp.asarray(one.known) for one in of.inputs], **of.params)
    return [constant(one) for one in (found if primitive.multiple_results else [found])]


def _branch(of: Equation) -> list[Value]:
    """The chosen branch; of the forms for several platforms, the last that ONNX has."""
    (index, *inputs), branches = of.inputs, of.params["branches"]
    if index.array is None:
        raise NotImplementedError("a condition that is computed")
    if int(index.array) != _ANY_PLATFORM:
        return _run(of.graph, branches[int(index.array)], inputs)
    for branch in reversed(branches[1:]):
        try:
            return _run(of.graph, branch, inputs)
        except NotImplementedError:
            # ONNX Runtime leaves out nodes that nothing needs.
            continue
    return _run(of.graph, branches[0], inputs)


def _steps(of: Equation) -> list[Value]:
    """The steps of a scan over known numbers, one after the other."""
    start, num_carry = of.params["num_consts"], of.params["num_carry"]
    constants, carried = of.inputs[:start], list(of.inputs[start:][:num_carry])
    columns = of.inputs[start + num_carry :]
    if not all(one.is_known for one in columns):
        raise NotImplementedError("steps over examples")
    if of.params["reverse"] or len(of.outputs) > num_carry:
        raise NotImplementedError("what each step of a scan computes")
    for step in range(of.params["length"]):
        rows = [constant(column.known[step]) for column in columns]
        carried = _run(of.graph, of.params["jaxpr"], [*constants, *carried, *rows])
    return carried


_CONTROL: dict[str, Lowering] = {
    "cond": _branch,
    "scan": _steps,
    "platform_index": lambda _: constant(np.int32(_ANY_PLATFORM)),
}
_TABLE = {**primitives.TABLE, **indexing.TABLE, **_CONTROL}
# What JAX does not compute: numbers that are stretched are not written out.
_KEPT = {*_CONTROL, "broadcast_in_dim", "iota", "reshape", "squeeze", "transpose"}
