"""Networks that start with the weights of a file, under the names of its publisher."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from train.foundation.errors import UserError
from train.foundation.spelling import spell
from train.models.model_spec import ModelSpec
from train.models.weights import files, names
from train.models.weights.names import Arrays, PublishedNames

# The reason for a new head if the user asked for one.
NEW_HEAD = "config.model.new_head asks for it"
# The number of names that a message lists.
_LISTED = 3
# The most nested modules in which a network is searched.
_DEEPEST_PREFIX = 2


class Pretrained(NamedTuple):
    """The variables of a network, replaced by the variables of a file.

    Attributes:
        params: the parameters.
        batch_stats: the statistics of batch norm.
        message: a line for the user: which file was read, and whether its head was.
        why_new_head: the reason why the head was not read; None if it was.
    """

    params: Any
    batch_stats: Any
    message: str
    why_new_head: str | None

    @property
    def head_is_read(self) -> bool:
        """Whether the head of the file was read."""
        return self.why_new_head is None


def load(
    path: str,
    params: Any,
    batch_stats: Any,
    *,
    model_name: str,
    networks: Mapping[str, ModelSpec],
    new_head: bool = False,
) -> Pretrained:
    """The variables of a network, read from a file of weights.

    A linear head is read too if the file has one for the same number of classes. Any other head
    keeps its initial values, and so do all with `new_head`.

    Args:
        path: a file of safetensors or of torch.save, with the names of one of its publishers.
        params: the initial parameters.
        batch_stats: the initial statistics of batch norm.
        model_name: the name of the network.
        networks: all networks by name, with this one among them.
        new_head: whether the head keeps its initial values in any case.

    Raises:
        UserError: the file cannot be read, asks for code to be run, or is of another network.
    """
    published = networks[model_name].names
    assert published is not None
    in_file = files.read(Path(path).expanduser())
    named = f"{spell('config.model.pretrained')}: {path}"
    arrays = _translated(in_file, published)
    variables = names.flatten(params, batch_stats)
    keys = {published.of(key): key for key in variables}
    shapes = {
        # Only the layout matters: numbers are not copied.
        name: published.to_torch(key, np.broadcast_to(np.float32(0), variables[key].shape)).shape
        for name, key in keys.items()
        if name is not None
    }
    for name in shapes:
        dtype = arrays[name].dtype if name in arrays else np.dtype(np.float32)
        if not jnp.issubdtype(dtype, jnp.floating):
            raise UserError(
                f"{named} has {dtype} numbers in {name}, in place of floating-point ones: "
                "quantised weights are not read"
            )
    differences = _differences(arrays, shapes, published)
    if differences:
        check_prefix(path, in_file, networks)
        raise UserError(
            f"{named} does not fit {spell(f'config.model.name={model_name}')}"
            f"{_why(in_file, shapes, model_name, networks)}: it {'; it '.join(differences)}",
            usually="the file is of another network, or of another size of it",
        )
    why_new_head = NEW_HEAD if new_head else _why_new_head(arrays, shapes, published)
    for name, shape in shapes.items():
        if why_new_head is not None and published.in_head(name):
            continue
        array, key = arrays[name].reshape(shape).astype(np.float32), keys[name]
        variables[key] = np.ascontiguousarray(names.from_torch(key, array, variables[key].shape))
    what = f"{model_name} starts with the weights of {path}"
    head = (
        f"its head too, of {shapes[f'{published.head}.weight'][0]} classes"
        if why_new_head is None
        else f"but its head starts from random weights: {why_new_head}"
    )
    unused = [_quoted(name) for name in published.unused(in_file)]
    left_out = f"; left out: {_listed(unused)}" if unused else ""
    return Pretrained(*names.unflatten(variables), f"{what}, {head}{left_out}", why_new_head)


def networks_of(arrays: Arrays, networks: Mapping[str, ModelSpec]) -> list[str]:
    """The networks that the arrays of a file can be for, by the number of their parameters."""
    found = []
    for name, spec in networks.items():
        if spec.names is not None and spec.num_parameters is not None:
            translated = _translated(arrays, spec.names)
            if spec.names.num_parameters(translated) == spec.num_parameters:
                found.append(name)
    return found


def check_prefix(path: str, arrays: Arrays, networks: Mapping[str, ModelSpec]) -> None:
    """Refuses a file whose names are the names of a known network with a prefix.

    Args:
        path: the file.
        arrays: its arrays.
        networks: all networks by name.

    Raises:
        UserError: the names have a prefix.
    """
    if networks_of(arrays, networks):
        return
    modules = (name.split(".")[:-1] for name in arrays)
    begun = Counter(
        ".".join(outer[:depth]) + "."
        for outer in modules
        for depth in range(1, min(len(outer), _DEEPEST_PREFIX) + 1)
    )
    for prefix, count in begun.items():
        if count <= len(arrays) / 2:
            continue
        inside = {
            name.removeprefix(prefix): array
            for name, array in arrays.items()
            if name.startswith(prefix)
        }
        found = networks_of(inside, networks)
        if found:
            raise UserError(
                f"{spell('config.model.pretrained')}: {path} has {_quoted(prefix)} before the "
                f"names of {' or '.join(found)}, as programs like PyTorch Lightning write them: "
                "save the state dict of the network inside instead"
            )


def _translated(arrays: Arrays, published: PublishedNames) -> Arrays:
    """The arrays by the names of the table; as they are if they cannot be arranged."""
    try:
        return published.translate(arrays)
    except Exception:
        # Arrays of a damaged file, or of another network, can fail in many ways.
        return dict(arrays)


def _differences(
    arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], published: PublishedNames
) -> list[str]:
    """How the variables of a file differ from the variables below the head."""
    wanted = [name for name in shapes if not published.in_head(name)]
    missing = [name for name in wanted if name not in arrays]
    unknown = [
        _quoted(name) for name in arrays if not published.in_head(name) and name not in shapes
    ]
    misshapen = [
        f"{name} of shape {arrays[name].shape} instead of {shapes[name]}"
        + (", as for images of another size" if name in published.sized else "")
        for name in wanted
        if name in arrays and not _same_shape(arrays[name].shape, shapes[name])
    ]
    return [
        f"{what} {_listed(listed)}"
        for what, listed in (("lacks", missing), ("has also", unknown), ("has", misshapen))
        if listed
    ]


def _why(
    in_file: Arrays,
    shapes: Mapping[str, tuple[int, ...]],
    model_name: str,
    networks: Mapping[str, ModelSpec],
) -> str:
    """What the file is instead, for a message."""
    found = networks_of(in_file, networks)
    if model_name in found:
        return ""
    if found:
        return f", it holds {' or '.join(found)}"
    overlap = sum(name in in_file for name in shapes)
    return "" if overlap > len(shapes) / 2 else ", it holds no network known here"


def _quoted(name: str) -> str:
    """A name of a file, which can be long and have line ends and control characters."""
    return repr(name[:80])


def _same_shape(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes are equal, except for axes of length 1."""
    return [n for n in one if n != 1] == [n for n in other if n != 1]


def _listed(listed: Sequence[str]) -> str:
    first = ", ".join(sorted(listed)[:_LISTED])
    return first if len(listed) <= _LISTED else f"{first} and {len(listed) - _LISTED} more"


def _why_new_head(
    arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], published: PublishedNames
) -> str | None:
    """The reason why the head of the file is not used; None if it is."""
    in_file = {name: array.shape for name, array in arrays.items() if published.in_head(name)}
    in_model = {name: shape for name, shape in shapes.items() if published.in_head(name)}
    if not in_model:
        return "the model's is not linear"
    if in_file.keys() != in_model.keys():
        listed = _listed([_quoted(name) for name in in_file])
        return "the file has none" if not in_file else f"the file's has {listed}"
    if all(_same_shape(in_file[name], in_model[name]) for name in in_model):
        return None
    weight = f"{published.head}.weight"
    (found, *features), (wanted, *_) = in_file[weight] or (0,), in_model[weight]
    if _same_shape(features, in_model[weight][1:]) and found != wanted:
        return f"the file's is for {found} classes, not {wanted}"
    return "the file's is for other features"
