"""Runs ONNX files in ONNX Runtime."""

import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from train.foundation.errors import needs_package

# Warnings of its optimizations help nobody.
_ONLY_ERRORS = 3
# Where ONNX Runtime looks for numbers that are in other files: none are, and it refuses these.
_FOLDER = "session.model_external_initializers_file_folder_path"


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
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ONLY_ERRORS
    options.add_session_config_entry(_FOLDER, os.devnull)
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()

    def call(examples: np.ndarray) -> tuple[np.ndarray, ...]:
        found: list[Any] = session.run(None, {given.name: np.asarray(examples)})
        return tuple(found)

    return call
