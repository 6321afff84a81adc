"""Runs ONNX files in ONNX Runtime."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from train.foundation.errors import needs_package

# Warnings of its optimizations help nobody.
_ONLY_ERRORS = 3


def check_installed(flag: str) -> None:
    """Refuses missing packages, which a flag needs."""
    for name in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            raise needs_package(flag, name, "onnx")


def load(content: bytes) -> Callable[[np.ndarray], tuple[np.ndarray, ...]]:
    """The function of a file: examples to its outputs.

    Args:
        content: the bytes of the file. Errors of damaged bytes are of many types.
    """
    onnx, onnxruntime = map(importlib.import_module, ("onnx", "onnxruntime"))
    if any(_are_elsewhere(onnx.load_model_from_string(content))):
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


def _are_elsewhere(message: Any) -> Iterator[bool]:
    """Whether the numbers of each array in a message of protobuf are in another file."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message.data_location == message.EXTERNAL or bool(message.external_data)
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if isinstance(value, Sequence) else [value]:
                yield from _are_elsewhere(part)
