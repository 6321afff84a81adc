"""Reads the arrays of a file of weights, of safetensors or of `torch.save`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import jax.numpy as jnp
import numpy as np
import safetensors

from train.foundation.errors import UserError
from train.models.weights import torch_files
from train.models.weights.names import Arrays

# safetensors' names of types; its own reader of NumPy arrays does not know bfloat16.
_SAFETENSORS_DTYPES: dict[str, Any] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": jnp.bfloat16,
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
# As Hugging Face's programs name the parts of a file, and the list of them.
_PART = re.compile(r"-\d+-of-\d+\.|\.index\.json$")


def read(path: Path) -> Arrays:
    """The arrays of a file by name; its first bytes determine the format, not its name.

    Raises:
        UserError: the file cannot be read, or asks for code to be run.
    """
    field = "config.model.pretrained"
    try:
        with path.open("rb") as file:
            if _PART.search(path.name):
                raise UserError(
                    "is one of several files of the same weights, or their index: only single "
                    "files are read"
                )
            return _reader(file)(file)
    except OSError as error:
        reason = f"{path}: {error.strerror or error}"
        raise UserError(field=field, must_be="a file of weights", but=reason) from error
    except UserError as error:
        raise UserError(f"{field}: {path} {error}") from error
    except Exception as error:
        # A damaged file can make its reader fail in many ways.
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UserError(
            f"{field}: {path} is damaged or cut short ({reason}); get it again"
        ) from error


def _reader(file: IO[bytes]) -> Callable[[IO[bytes]], Arrays]:
    start = file.read(9)
    file.seek(0)
    if start[8:] == b"{":  # safetensors: the size of the header, then the header.
        return _read_safetensors
    if start.startswith((torch_files.ZIP_START, torch_files.LEGACY_START)):
        return torch_files.read_state_dict
    raise UserError(f"is not a file of safetensors or torch.save: it starts with {start!r}")


def _read_safetensors(file: IO[bytes]) -> Arrays:
    arrays = {}
    for name, tensor in safetensors.deserialize(file.read()):
        if tensor["dtype"] not in _SAFETENSORS_DTYPES:
            raise UserError(
                f"has numbers of the type {tensor['dtype']} in {name[:80]!r}, which are not read: "
                "quantised weights are not"
            )
        dtype = _SAFETENSORS_DTYPES[tensor["dtype"]]
        arrays[name] = np.frombuffer(tensor["data"], dtype).reshape(tensor["shape"])
    return arrays
