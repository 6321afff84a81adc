"""Networks that start with the weights of a file, under the names of its publisher."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from train.foundation.errors import UserError
from train.models.model_spec import ModelSpec
from train.models.weights import files, names
from train.models.weights.names import Arrays, PublishedNames

# The number of names that a message lists.
_LISTED = 3


class Pretrained(NamedTuple):
    """The variables of a network with those of a file in their place.

    Attributes:
        params: the parameters.
        batch_stats: the statistics of batch norm.
        message: a line for the user: which file was read, and whether its head was.
        head_is_read: whether its head was.
    """

    params: Any
    batch_stats: Any
    message: str
    head_is_read: bool


def load(
    path: str,
    params: Any,
    batch_stats: Any,
    *,
    model_name: str,
    networks: Mapping[str, ModelSpec],
) -> Pretrained:
    """The variables of a network, read from a file of weights.

    A linear head is read too if the file has one for as many classes; any other keeps its initial
    values.

    Args:
        path: a file of safetensors or of torch.save, with the names of one of its publishers.
        params: the initial parameters.
        batch_stats: the initial statistics of batch norm.
        model_name: the name of the network.
        networks: all networks by name, with this one among them.

    Raises:
        UserError: the file cannot be read, asks for code to be run, or is of another network.
    """
    published = networks[model_name].names
    assert published is not None
    in_file = files.read(Path(path))
    arrays = published.translate(in_file)
    variables = names.flatten(params, batch_stats)
    keys = {published.of(key): key for key in variables}
    shapes = {
        # The layout alone matters: no number is copied.
        name: published.to_torch(key, np.broadcast_to(np.float32(0), variables[key].shape)).shape
        for name, key in keys.items()
        if name is not None
    }
    for name in published.sized:
        if published.fit is not None and name in arrays and name in shapes:
            arrays[name] = published.fit(arrays[name], shapes[name])
    differences = _differences(arrays, shapes, published)
    if differences:
        raise UserError(
            f"config.model.pretrained: {path} does not fit config.model.name={model_name}"
            f"{_why(in_file, shapes, model_name, networks)}: it {'; it '.join(differences)}"
        )
    why_new_head = _why_new_head(arrays, shapes, published)
    for name in shapes:
        if why_new_head is not None and published.in_head(name):
            continue
        array, key = arrays[name], keys[name]
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise UserError(
                f"config.model.pretrained: {path} has {array.dtype} numbers in {name}, where "
                "floating-point ones belong: quantised weights are not read"
            )
        variables[key] = np.ascontiguousarray(
            names.from_torch(key, array.astype(np.float32), variables[key].shape)
        )
    what = f"{model_name} starts with the weights of {path}"
    head = (
        f"its head too, of {shapes[f'{published.head}.weight'][0]} classes"
        if why_new_head is None
        else f"but its head starts anew: {why_new_head}"
    )
    unused = published.unused(in_file)
    left_out = f"; left out: {_listed(unused)}" if unused else ""
    return Pretrained(
        *names.unflatten(variables), f"{what}, {head}{left_out}", why_new_head is None
    )


def networks_of(arrays: Arrays, networks: Mapping[str, ModelSpec]) -> list[str]:
    """The networks that the arrays of a file can be for, by the number of their parameters."""
    found = []
    for name, spec in networks.items():
        if spec.names is not None and spec.num_parameters is not None:
            translated = spec.names.translate(arrays)
            if spec.names.num_parameters(translated) == spec.num_parameters:
                found.append(name)
    return found


def _differences(
    arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], published: PublishedNames
) -> list[str]:
    """How a file does not have exactly the variables below the head."""
    wanted = [name for name in shapes if not published.in_head(name)]
    missing = [name for name in wanted if name not in arrays]
    unknown = [
        repr(name[:80]) for name in arrays if not published.in_head(name) and name not in shapes
    ]
    misshapen = [
        f"{name} of shape {arrays[name].shape} instead of {shapes[name]}"
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
    """What the file is instead, to stand in a message."""
    found = networks_of(in_file, networks)
    if model_name in found:
        return ""
    if found:
        return f", it holds {' or '.join(found)}"
    prefix = _prefix(in_file, shapes)
    if prefix is not None:
        return (
            f", its names begin with {prefix!r}, as training programs like PyTorch Lightning write "
            "them (save the state_dict of the network inside instead)"
        )
    overlap = sum(name in in_file for name in shapes)
    return "" if overlap > len(shapes) / 2 else ", it holds no network known here"


def _prefix(in_file: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """The beginning that most names of a file have before those that are wanted."""
    first = next(iter(shapes))
    for name in in_file:
        prefix = name.removesuffix(first)
        if prefix in ("", name):
            continue
        if sum(prefix + wanted in in_file for wanted in shapes) > len(shapes) / 2:
            return prefix
    return None


def _same_shape(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes are equal, but for axes of length 1."""
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
        return "the file has none" if not in_file else f"the file's has {_listed(list(in_file))}"
    if all(_same_shape(in_file[name], in_model[name]) for name in in_model):
        return None
    weight = f"{published.head}.weight"
    if in_file[weight][1:] != in_model[weight][1:]:
        return "the file's is for other features"
    return f"the file's is for {in_file[weight][0]} classes, not {in_model[weight][0]}"
