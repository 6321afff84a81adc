"""What a file of features, and a run on it, know of the network that made the features."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.classifiers import network
from train.classifiers.network import Network
from train.data import DatasetSpec, preparation
from train.foundation import fields, shapes
from train.foundation.errors import UserError
from train.foundation.fields import Field

_COLOURS = shapes.list_of(shapes.NUMBER, at_least=1)
_SHAPE: Field = shapes.record(
    dict.fromkeys(("network", "path", "parameters_digest"), fields.text())
    | {"image_shape": shapes.list_of(fields.integer(1), at_least=3)}
    | {"steps": preparation.SHAPE, "mean": _COLOURS, "std": _COLOURS},
    {"group": fields.text()},
)


def to_plain(used: Network, grammar: str | None) -> Mapping[str, Any] | None:
    """The description of a network; None if its path or the grammar is not text.

    Args:
        used: the network.
        grammar: what found the groups of the images, by which those of new images are found; see
            `grouping`. None if nothing did.
    """
    # Not resolved: a link may be there to be changed.
    path = os.path.abspath(used.path)  # noqa: PTH100
    try:
        (path + (grammar or "")).encode()
    except UnicodeEncodeError:
        return None
    return {
        "network": used.network,
        "path": path,
        "parameters_digest": used.parameters_digest,
        "image_shape": [*used.image_shape],
        "steps": preparation.to_plain(used.reader),
        "mean": [*used.spec.mean],
        "std": [*used.spec.std],
        **({} if grammar is None else {"group": grammar}),
    }


def spec_of(plain: Mapping[str, Any]) -> DatasetSpec:
    """How images became the input of a network, from its description.

    Raises:
        UserError: the description has another form.
    """
    wrong = _SHAPE(plain)
    if not wrong and {len(plain["mean"]), len(plain["std"])} != {plain["image_shape"][2]}:
        wrong = "an object with a mean and a std for each channel"
    if wrong:
        raise UserError(f"its description must be {wrong}")
    height, width, channels = plain["image_shape"][:3]
    reader = preparation.from_plain(plain["steps"], (height, width, channels))
    mean, std = (tuple(map(float, plain[name])) for name in ("mean", "std"))
    return network.spec_of_images(
        Path(plain["path"]), reader.shape, mean=mean, std=std, reader=reader
    )
