"""Functions of examples as ONNX models."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import onnx
from onnx import helper

from train.foundation.errors import UserError
from train.prediction.onnx import graph, lowering
from train.prediction.onnx.graph import ELEMENTS, Graph

# The operators of ONNX that ONNX Runtime has since 1.14, of 2023. Browsers have these too.
OPSET = 18
_IR = 8
_NUMBER = "n"
# A part of the error of ONNX Runtime for an empty batch.
AT_LEAST_ONE = "at_least_one_example"
# A file of protobuf cannot be larger.
_MOST_BYTES = 2**31 - 2**16


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
    made = Graph(name, half=half)
    closed = lowering.trace(function, shape, dtype)
    (given,) = closed.in_avals
    results = lowering.lower(made, closed, [made.value(name, given)])
    nothing = _nothing(made, given.shape[0])
    infos = []
    for output, value in zip(outputs, results, strict=True):
        plain = made.plain(value)
        number, *others = plain.shape
        number = made.add("Add", [made.sizes([number]), nothing])
        sizes = made.add("Concat", [number, made.store(np.array(others, np.int64))], axis=0)
        made.nodes.append(helper.make_node("Reshape", [made.name_of(plain), sizes], [output]))
        infos.append(_info(output, plain))
    nodes = graph.prune(made.nodes, outputs)
    used = {one for node in nodes for one in node.input}
    constants = [constant for key, constant in made.constants.items() if key in used]
    if sum(len(constant.raw_data) for constant in constants) > _MOST_BYTES:
        raise UserError("--format=onnx is for classifiers of less than 2 GB; this one is larger")
    found = helper.make_model(
        helper.make_graph(
            nodes, "classifier", [_info(name, made.value(name, given))], infos, constants
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR,
        producer_name="topk_jax",
    )
    # In ASCII: protobuf does not take a path with bytes that are not UTF-8.
    helper.set_model_props(found, {key: json.dumps(value) for key, value in metadata.items()})
    return bytes(found.SerializeToString())


def _nothing(made: Graph, number: Any) -> str:
    """The name of a zero that is an error without examples, as each output then is.

    ONNX has no assertions. Choice: take the first number of a range that is as long as there are
    examples. The error of ONNX Runtime has the name of the node. Cost: none, because an output that
    has its shape already is not copied, and the shapes inside of the network do not depend on it.
    """
    ends = [made.store(np.array(end, np.int64)) for end in (0, 1)]
    numbers = made.add("Range", [ends[0], made.add("Squeeze", [made.sizes([number])]), ends[1]])
    first = made.store(np.array([0], np.int64))
    return str(made.add("Gather", [numbers, first], name=AT_LEAST_ONE))


def _info(name: str, value: Any) -> onnx.ValueInfoProto:
    _, *sizes = value.shape
    element = ELEMENTS[np.dtype(value.dtype).name]
    return helper.make_tensor_value_info(name, element, [_NUMBER, *sizes])
