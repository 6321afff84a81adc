"""Networks that start with the weights of a file, under the names of its publisher."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from train.foundation.errors import UserError
from train.models.weights import files
from train.models.weights.names import Arrays, PublishedNames, flatten, from_torch, unflatten

# The reason for a new head if the user asked for one.
NEW_HEAD = "config.model.new_head asks for it"
# The number of differences, or of names, that a message lists.
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
    arrays = published.translate(in_file)
    variables = flatten(params, batch_stats)
    keys = {name: key for key in variables if (name := published.of(key)) is not None}
    # Only the layout matters: numbers are not copied.
    layouts = {key: np.broadcast_to(np.float32(0), variables[key].shape) for key in keys.values()}
    shapes = {name: published.to_torch(key, layouts[key]).shape for name, key in keys.items()}
    if differences := _differences(arrays, shapes, published):
        raise UserError(
            f"config.model.pretrained: {path} does not fit config.model.name={model_name}: "
            f"it {_listed(differences, '; it ')}"
        )
    why_new_head = NEW_HEAD if new_head else _why_new_head(arrays, shapes, published)
    for name, shape in shapes.items():
        if why_new_head is None or not published.in_head(name):
            array, key = arrays[name].reshape(shape).astype(np.float32), keys[name]
            variables[key] = np.ascontiguousarray(from_torch(key, array, variables[key].shape))
    head = (
        f"its head too, of {shapes[f'{published.head}.weight'][0]} classes"
        if why_new_head is None
        else f"but its head starts from random weights: {why_new_head}"
    )
    unused = sorted(_quoted(name) for name in published.unused(in_file))
    left_out = f"; left out: {_listed(unused)}" if unused else ""
    message = f"{model_name} starts with the weights of {path}, {head}{left_out}"
    return Pretrained(*unflatten(variables), message, why_new_head)


def _differences(
    arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], published: PublishedNames
) -> list[str]:
    """How the variables of a file differ from those of the network, without the head's shapes."""
    found = []
    for name, shape in shapes.items():
        array = arrays.get(name)
        if array is None:
            found += [] if published.in_head(name) else [f"lacks {name}"]
        elif not jnp.issubdtype(array.dtype, jnp.floating):
            found.append(f"has {array.dtype} numbers in {name}: quantised weights are not read")
        elif not published.in_head(name) and not _same_shape(array.shape, shape):
            why = ", as for images of another size" if name in published.sized else ""
            found.append(f"has {name} of shape {array.shape} instead of {shape}{why}")
    unknown = [
        f"has also {_quoted(name)}"
        for name in arrays
        if name not in shapes and not published.in_head(name)
    ]
    # An unknown name shows best what the file is.
    return [*unknown[:1], *found, *unknown[1:]]


def _quoted(name: str) -> str:
    """A name of a file, which can be long and have line ends and control characters."""
    return repr(name[:80])


def _same_shape(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes are equal, except for axes of length 1."""
    return [n for n in one if n != 1] == [n for n in other if n != 1]


def _listed(listed: Sequence[str], separator: str = ", ") -> str:
    first = separator.join(listed[:_LISTED])
    return first if len(listed) <= _LISTED else f"{first} and {len(listed) - _LISTED} more"


def _why_new_head(
    arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], published: PublishedNames
) -> str | None:
    """The reason why the head of the file is not used; None if it is."""
    in_file = {name: array.shape for name, array in arrays.items() if published.in_head(name)}
    in_model = {name: shape for name, shape in shapes.items() if published.in_head(name)}
    if not in_model or not in_file:
        return "the file has none" if in_model else "the model's is not linear"
    if in_file.keys() != in_model.keys():
        return f"the file's has {_listed([_quoted(name) for name in in_file])}"
    if all(_same_shape(in_file[name], in_model[name]) for name in in_model):
        return None
    weight = f"{published.head}.weight"
    (found, *features), (wanted, *_) = in_file[weight] or (0,), in_model[weight]
    if _same_shape(features, in_model[weight][1:]) and found != wanted:
        return f"the file's is for {found} classes, not {wanted}"
    return "the file's is for other features"
