"""Reads the arrays of a file of weights, of safetensors or of `torch.save`."""

from pathlib import Path

import safetensors

from train.foundation.errors import errors_told, within
from train.models.weights import torch_files
from train.models.weights.names import Arrays

_FIELD = "config.model.pretrained"


def read(path: Path) -> Arrays:
    """The arrays of a file by name; its first bytes determine the format, not its name.

    Raises:
        UserError: the file cannot be read, or asks for code to be run.
    """
    where = f"{_FIELD}: {path} "
    what = "cannot be read as a file of safetensors or torch.save"
    with errors_told(where + what, "; get it again"), within(where):
        with path.open("rb") as file:
            # The size of the header, then the header.
            if file.read(9)[8:] != b"{":
                return torch_files.read_state_dict(file)
        with safetensors.safe_open(path, framework="np") as tensors:
            return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
