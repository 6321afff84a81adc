"""Reads the arrays of a file of weights, of safetensors or of `torch.save`."""

from pathlib import Path

import safetensors

from train.foundation.errors import UserError
from train.models.weights import torch_files
from train.models.weights.names import Arrays

_FIELD = "config.model.pretrained"


def read(path: Path) -> Arrays:
    """The arrays of a file by name; its first bytes determine the format, not its name.

    Raises:
        UserError: the file cannot be read, or asks for code to be run.
    """
    try:
        with path.open("rb") as file:
            # The size of the header, then the header.
            if file.read(9)[8:] != b"{":
                return torch_files.read_state_dict(file)
        with safetensors.safe_open(path, framework="np") as tensors:
            return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    except OSError as error:
        reason = f"{path}: {error.strerror or error}"
        raise UserError(field=_FIELD, must_be="a file of weights", but=reason) from error
    except UserError as error:
        raise error.within(f"{_FIELD}: {path} ") from error
    except Exception as error:  # A damaged file can make its reader fail in many ways.
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UserError(
            f"{_FIELD}: {path} is damaged or cut short, or is no file of safetensors or "
            f"torch.save ({reason}); get it again"
        ) from error
