"""Runs ONNX files in ONNX Runtime."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from train.foundation import packages
from train.foundation.errors import UserError

# Warnings of its optimizations help nobody.
_ONLY_ERRORS = 3


def check_installed(flag: str, *names: str) -> None:
    """Refuses a missing package.

    Raises:
        UserError: one is missing.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise UserError(packages.missing(flag, name, "onnx"))


def load(content: bytes) -> Callable[[np.ndarray], tuple[np.ndarray, ...]]:
    """The function of a file: examples to its outputs.

    Args:
        content: the bytes of the file. Errors of damaged bytes are of many types.
    """
    onnx, onnxruntime = map(importlib.import_module, ("onnx", "onnxruntime"))
    if any(_is_elsewhere(tensor) for tensor in _tensors(onnx.load_model_from_string(content))):
        # ONNX Runtime would read any file below the current folder, or above it.
        raise ValueError("it names other files that its numbers are in")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ONLY_ERRORS
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()

    def call(examples: np.ndarray) -> tuple[np.ndarray, ...]:
        found: list[Any] = session.run(None, {given.name: np.asarray(examples)})
        return tuple(found)

    return call


def _tensors(message: Any) -> Iterator[Any]:
    """All arrays in a message of protobuf, wherever they are."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            parts = value if isinstance(value, Sequence) else [value]
            for part in parts:
                yield from _tensors(part)


def _is_elsewhere(tensor: Any) -> bool:
    """Whether the numbers of an array are in another file."""
    return bool(tensor.data_location == tensor.EXTERNAL or tensor.external_data)
