"""Pretrained ResNets: reads weights of torchvision, timm and Pl@ntNet-300K."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import safetensors

from train.foundation.errors import UserError
from train.models import torch_files, torch_names

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
# The number of names that a message lists.
_LISTED = 3


class Pretrained(NamedTuple):
    """The variables of a network with those of a file in their place.

    Attributes:
        params: the parameters.
        batch_stats: the statistics of batch norm.
        message: a line for the user: which file was read, and whether its head was.
    """

    params: Any
    batch_stats: Any
    message: str


def load_resnet(path: str, params: Any, batch_stats: Any, *, model_name: str) -> Pretrained:
    """The variables of a ResNet, read from a file of weights.

    A linear head is read too if the file has one for as many classes; any other keeps its initial
    values.

    Args:
        path: a file of safetensors or of torch.save, with torchvision's names.
        params: the initial parameters.
        batch_stats: the initial statistics of batch norm.
        model_name: the name of the network in messages.

    Raises:
        UserError: the file cannot be read, asks for code to be run, or is of another network.
    """
    arrays = {
        name: array
        for name, array in _read(Path(path)).items()
        if name.rpartition(".")[2] != "num_batches_tracked"
    }
    variables = torch_names.flatten(params, batch_stats)
    keys = {torch_names.torchvision_name(key): key for key in variables}
    shapes = {
        name: torch_names.to_torch(np.asarray(variables[key])).shape
        for name, key in keys.items()
        if name is not None
    }
    _check_features(path, arrays, shapes, model_name)
    why_new_head = _why_new_head(arrays, shapes)
    wanted = [name for name in shapes if why_new_head is None or not _in_head(name)]
    for name in wanted:
        array = arrays[name]
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise UserError(
                f"config.model.pretrained: {path} has {array.dtype} numbers in {name}, "
                "where floating-point ones belong"
            )
        variables[keys[name]] = np.ascontiguousarray(
            torch_names.from_torch(array.astype(np.float32))
        )
    what = f"{model_name} starts with the weights of {path}"
    head = (
        f"its head too, of {shapes['fc.weight'][0]} classes"
        if why_new_head is None
        else f"but its head starts anew: {why_new_head}"
    )
    return Pretrained(*torch_names.unflatten(variables), f"{what}, {head}")


def network_of(path: str) -> str:
    """The name of the ResNet that a file of weights is for.

    Raises:
        UserError: the file cannot be read, or is for none that is known here.
    """
    arrays = _read(Path(path))
    name = torch_names.resnet_of({name: array.shape for name, array in arrays.items()})
    if name is None:
        raise UserError(f"config.model.pretrained: {path} holds no ResNet known here")
    return name


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name; its first bytes determine the format, not its name."""
    try:
        with path.open("rb") as file:
            return _reader(file)(file)
    except OSError as error:
        raise UserError(
            f"config.model.pretrained must be a file of weights; {path}: {error.strerror or error}"
        ) from error
    except UserError as error:
        raise UserError(f"config.model.pretrained: {path} {error}") from error
    except Exception as error:
        # A damaged file can make its reader fail in many ways.
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UserError(
            f"config.model.pretrained: {path} is damaged or cut short ({reason}); get it again"
        ) from error


def _reader(file: IO[bytes]) -> Callable[[IO[bytes]], dict[str, np.ndarray]]:
    start = file.read(9)
    file.seek(0)
    if start[8:] == b"{":  # safetensors: the size of the header, then the header.
        return _read_safetensors
    if start.startswith((torch_files.ZIP_START, torch_files.LEGACY_START)):
        return torch_files.read_state_dict
    raise UserError(f"is no file of safetensors or torch.save: it starts with {start!r}")


def _read_safetensors(file: IO[bytes]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, tensor in safetensors.deserialize(file.read()):
        if tensor["dtype"] not in _SAFETENSORS_DTYPES:
            raise UserError(f"has a tensor of the type {tensor['dtype']}, which is not read here")
        dtype = _SAFETENSORS_DTYPES[tensor["dtype"]]
        arrays[name] = np.frombuffer(tensor["data"], dtype).reshape(tensor["shape"])
    return arrays


def _in_head(name: str) -> bool:
    return name.startswith(torch_names.HEAD)


def _check_features(
    path: str,
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    model_name: str,
) -> None:
    """Refuses a file that does not have exactly the variables below the head."""
    wanted = [name for name in shapes if not _in_head(name)]
    missing = [name for name in wanted if name not in arrays]
    unknown = [repr(name[:80]) for name in arrays if not _in_head(name) and name not in shapes]
    misshapen = [
        f"{name} of shape {arrays[name].shape} instead of {shapes[name]}"
        for name in wanted
        if name in arrays and arrays[name].shape != shapes[name]
    ]
    differences = [
        f"{what} {_listed(names)}"
        for what, names in (("lacks", missing), ("has also", unknown), ("has", misshapen))
        if names
    ]
    if differences:
        found = torch_names.resnet_of({name: array.shape for name, array in arrays.items()})
        raise UserError(
            f"config.model.pretrained: {path} does not fit config.model.name={model_name}"
            + ("" if found == model_name else f", it holds {found or 'no ResNet known here'}")
            + f": it {'; it '.join(differences)}"
        )


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(sorted(names)[:_LISTED])
    return listed if len(names) <= _LISTED else f"{listed} and {len(names) - _LISTED} more"


def _why_new_head(
    arrays: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
) -> str | None:
    """The reason why the head of the file is not used; None if it is."""
    in_file = {name: array.shape for name, array in arrays.items() if _in_head(name)}
    in_model = {name: shape for name, shape in shapes.items() if _in_head(name)}
    if not in_model:
        return "the model's is not linear"
    if in_file == in_model:
        return None
    if in_file.keys() != in_model.keys():
        return "the file has none" if not in_file else f"the file's has {_listed(list(in_file))}"
    if in_file["fc.weight"][1:] != in_model["fc.weight"][1:]:
        return "the file's is for other features"
    return f"the file's is for {in_file['fc.weight'][0]} classes, not {in_model['fc.weight'][0]}"
