"""Lowers jaxprs to ONNX graphs, equation by equation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from train.foundation.errors import UserError
from train.prediction.onnx import elementwise, indexing, products, reductions, shapes, tensors
from train.prediction.onnx.graph import Graph
from train.prediction.onnx.table import LOWERINGS, Inputs, Outputs, lowers
from train.prediction.onnx.tensors import Like, Tensor

# They fill the table.
MODULES = (elementwise, indexing, products, reductions, shapes)
# The parameter that has the jaxpr that a primitive computes.
_CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
# The name of the number of a platform, which no node has.
_PLATFORM = "platform"
_CONTROL = ("cond", "platform_index", "scan")


def lower(graph: Graph, closed: core.ClosedJaxpr, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Adds what a jaxpr computes to a graph.

    Args:
        graph: the graph.
        closed: the jaxpr.
        inputs: its inputs.

    Returns:
        Its outputs.

    Raises:
        UserError: it has a primitive that is not in the table, or in a form that is not.
    """
    jaxpr = closed.jaxpr
    values: dict[Any, Tensor] = dict(zip(jaxpr.invars, inputs, strict=True))
    for variable, array in zip(jaxpr.constvars, closed.consts, strict=True):
        values[variable] = tensors.constant(np.asarray(array))

    def read(atom: Any) -> Tensor:
        if isinstance(atom, core.Literal):
            return tensors.constant(np.asarray(atom.val, dtype_of(atom)))
        return values[atom]

    for equation in _needed(jaxpr):
        operands = [read(atom) for atom in equation.invars]
        results = _lower_equation(graph, equation, operands)
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def dtype_of(atom: Any) -> np.dtype[Any]:
    """The type of a value in a jaxpr."""
    return np.dtype(atom.aval.dtype)


def _needed(jaxpr: Any) -> list[Any]:
    """The equations that the outputs depend on."""
    needed = {atom for atom in jaxpr.outvars if not isinstance(atom, core.Literal)}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if needed.isdisjoint(equation.outvars):
            continue
        kept.append(equation)
        needed |= {atom for atom in equation.invars if not isinstance(atom, core.Literal)}
    return kept[::-1]


def _lower_equation(graph: Graph, equation: Any, operands: Sequence[Tensor]) -> list[Tensor]:
    name, parameters = equation.primitive.name, equation.params
    outputs = [variable.aval for variable in equation.outvars]
    if name in _CALLS:
        return lower(graph, parameters[_CALLS[name]], operands)
    if name not in LOWERINGS:
        if _can_be_computed(name, operands, outputs):
            return _compute(equation, operands)
        raise UserError(f"--format=onnx has no form of the operation {name} of JAX")
    try:
        found = LOWERINGS[name](graph, operands, outputs, **parameters)
    except NotImplementedError as error:
        if _can_be_computed(name, operands, outputs):
            return _compute(equation, operands)
        raise UserError(
            f"--format=onnx has no form of the operation {name} of JAX for {error}"
        ) from error
    if name not in _CONTROL and _can_be_computed(name, operands, outputs):
        # The operands are constants, and the table does not always compute with these itself.
        results = [found] if isinstance(found, Tensor) else list(found)
        if not all(one.is_constant for one in results):
            return _compute(equation, operands)
    return [found] if isinstance(found, Tensor) else list(found)


def _can_be_computed(name: str, operands: Sequence[Tensor], outputs: Sequence[Any]) -> bool:
    """Whether the results of an equation do not depend on the examples."""
    known = all(one.is_constant and tensors.is_static(one.shape) for one in operands)
    return known and name not in _CONTROL and all(tensors.is_static(one.shape) for one in outputs)


def _compute(equation: Any, operands: Sequence[Tensor]) -> list[Tensor]:
    arrays = [jnp.asarray(one.numbers()) for one in operands]
    found = equation.primitive.bind(*arrays, **equation.params)
    results = found if equation.primitive.multiple_results else [found]
    return [tensors.constant(np.asarray(one)) for one in results]


@lowers("platform_index")
def _platform(graph: Graph, inputs: Inputs, outputs: Outputs, platforms: Any, **_: Any) -> Tensor:
    del graph, inputs, outputs
    # The last form is for all platforms that have no form of their own.
    return replace(tensors.constant(np.int32(len(platforms) - 1)), name=_PLATFORM)


@lowers("cond")
def _branch(
    graph: Graph, inputs: Inputs, outputs: Outputs, branches: Any, **_: Any
) -> list[Tensor]:
    del outputs
    index, *operands = inputs
    if not index.is_constant:
        raise NotImplementedError("a condition that is computed")
    chosen = int(index.numbers())
    if index.name == _PLATFORM:
        # The forms compute the same: another one will do.
        order = [chosen, *(other for other in range(len(branches)) if other != chosen)]
        chosen = next((one for one in order if _is_supported(branches[one].jaxpr)), chosen)
    return lower(graph, branches[chosen], operands)


def _is_supported(jaxpr: Any) -> bool:
    """Whether all primitives are in the table."""
    for equation in _needed(jaxpr):
        name = equation.primitive.name
        if name in _CALLS:
            if not _is_supported(equation.params[_CALLS[name]].jaxpr):
                return False
        elif name == "cond":
            # A choice by platform inside of a choice.
            if not any(_is_supported(branch.jaxpr) for branch in equation.params["branches"]):
                return False
        elif name not in LOWERINGS:
            return False
    return True


@lowers("scan")
def _repeat(
    graph: Graph,
    inputs: Inputs,
    outputs: Outputs,
    length: int,
    jaxpr: Any,
    num_consts: int,
    num_carry: int,
    reverse: bool,
    **_: Any,
) -> list[Tensor]:
    """The steps one after the other."""
    constants, carried = list(inputs[:num_consts]), list(inputs[num_consts:][:num_carry])
    stepped = inputs[num_consts + num_carry :]
    found: list[list[Tensor]] = []
    for step in range(length)[:: -1 if reverse else 1]:
        parts = [_part(graph, one, step) for one in stepped]
        carried_and_found = lower(graph, jaxpr, [*constants, *carried, *parts])
        carried = carried_and_found[:num_carry]
        found.append(carried_and_found[num_carry:])
    found = found[:: -1 if reverse else 1]
    stacked = []
    for like, column in zip(outputs[num_carry:], zip(*found, strict=True), strict=False):
        one = Like((1, *like.shape[1:]), np.dtype(like.dtype))
        rows = [graph.reshape(each, one) for each in column]
        stacked.append(shapes.joined(graph, rows, like, 0))
    return [*carried, *stacked]


def _part(graph: Graph, value: Tensor, step: int) -> Tensor:
    """An entry along the first axis."""
    rest = Like(value.shape[1:], value.dtype)
    if value.is_constant and tensors.is_static(value.shape):
        return tensors.constant(value.numbers()[step])
    row = Like((1, *value.shape[1:]), value.dtype)
    return graph.reshape(shapes.sliced(graph, value, row, {0: (step, step + 1, 1)}), rest)


def trace(function: Any, shape: Sequence[int], dtype: Any) -> core.ClosedJaxpr:
    """The jaxpr of a function of examples [n, ...], for any n from 1 on."""
    (number,) = jax.export.symbolic_shape("n")
    return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((number, *shape), dtype))
