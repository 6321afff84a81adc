"""Networks that start with the weights of a file, under the names of its publisher."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from train.foundation.errors import UserError
from train.models.weights import files
from train.models.weights.names import Arrays, PublishedNames, flatten, unflatten

# The reason for a new head if the user asked for one.
NEW_HEAD = "config.model.new_head asks for it"
# How many names a message lists. Those of a file are literals: they can have control characters.
_LISTED = 3


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


def load(
    path: str,
    params: Any,
    batch_stats: Any,
    *,
    model_name: str,
    published: PublishedNames,
    new_head: bool = False,
) -> Pretrained:
    """The variables of a network, read from a file of weights.

    A linear head is read too if the file has one for the same number of classes. Any other head
    keeps its initial values, and so do all with `new_head`.

    Args:
        path: a file of safetensors or of torch.save, with the names of its publisher.
        params: the initial parameters.
        batch_stats: the initial statistics of batch norm.
        model_name: the name of the network, for messages.
        published: the names of its variables.
        new_head: whether the head keeps its initial values in any case.

    Raises:
        UserError: the file cannot be read, asks for code to be run, or is of another network.
    """
    in_file = files.read(Path(path).expanduser())
    arrays, variables = published.translate(in_file), flatten(params, batch_stats)
    places = {name: place for place in variables if (name := published.of(place)) is not None}
    # Only the layout matters: numbers are not copied.
    layouts = {place: np.broadcast_to(0, variables[place].shape) for place in places.values()}
    shapes = {name: published.to_torch(at, layouts[at]).shape for name, at in places.items()}
    if differences := _differences(arrays, shapes, published):
        raise UserError(
            f"config.model.pretrained: {path} does not fit config.model.name={model_name}: "
            f"it {', '.join(differences)}"
        )
    why_new_head = NEW_HEAD if new_head else _why_new_head(arrays, shapes, published)
    for name, place in places.items():
        if why_new_head is None or not published.in_head(name):
            array = arrays[name].reshape(shapes[name]).astype(np.float32)
            variables[place] = np.ascontiguousarray(published.from_torch(place, array))
    head = (
        f"its head too, of {shapes[f'{published.head}.weight'][0]} classes"
        if why_new_head is None
        else f"but its head starts from random weights: {why_new_head}"
    )
    unused = sorted(map(repr, published.unused(in_file)))
    left_out = f"; left out: {_listed(unused)}" if unused else ""
    message = f"{model_name} starts with the weights of {path}, {head}{left_out}"
    return Pretrained(*unflatten(variables), message, why_new_head)


def _differences(
    arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], published: PublishedNames
) -> list[str]:
    """How the variables of a file differ from those of the network, without the head's shapes."""
    both = [name for name in shapes if name in arrays]
    body = {name for name in {**arrays, **shapes} if not published.in_head(name)}
    differences = {
        "lacks": [name for name in shapes if name in body and name not in arrays],
        "has also": [repr(name) for name in arrays if name in body and name not in shapes],
        "has no floating-point numbers in": [
            name for name in both if not jnp.issubdtype(arrays[name].dtype, jnp.floating)
        ],
        "has other shapes, as for other networks or image sizes:": [
            f"{name} {arrays[name].shape} instead of {shapes[name]}"
            for name in both
            if name in body and not _same_shape(arrays[name].shape, shapes[name])
        ],
    }
    return [f"{verb} {_listed(names)}" for verb, names in differences.items() if names]


def _same_shape(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes are equal, except for axes of length 1."""
    return [n for n in one if n != 1] == [n for n in other if n != 1]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _why_new_head(
    arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], published: PublishedNames
) -> str | None:
    """The reason why the head of the file is not used; None if it is."""
    in_file = {name: array.shape for name, array in arrays.items() if published.in_head(name)}
    in_model = {name: shape for name, shape in shapes.items() if published.in_head(name)}
    if not in_model or not in_file:
        return "the file has none" if in_model else "the model's is not linear"
    if in_file.keys() != in_model.keys():
        return f"the file's has {_listed([*map(repr, in_file)])}"
    if all(_same_shape(in_file[name], in_model[name]) for name in in_model):
        return None
    found, wanted = ((one[f"{published.head}.weight"] or (0,))[0] for one in (in_file, in_model))
    if found != wanted:
        return f"the file's is for {found} classes, not {wanted}"
    return "the file's is for other features"
