"""What a file of features, and a run on it, know of the network that made the features."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.data import DatasetSpec, dataset_spec
from train.foundation import fields, shapes
from train.foundation.errors import UserError
from train.foundation.fields import Field
from train.prediction import preparation
from train.prediction.embedding import found
from train.prediction.embedding.network import Network

_NUMBERS = shapes.list_of(shapes.NUMBER, at_least=1)
_SHAPE: Field = shapes.record(
    {
        "network": fields.text(),
        "path": fields.text(),
        "parameters_digest": fields.text(),
        "image_shape": shapes.list_of(fields.integer(1), at_least=3),
        "steps": preparation.SHAPE,
        "mean": _NUMBERS,
        "std": _NUMBERS,
    },
    {"group": fields.text()},
)


def to_plain(network: Network, grammar: str | None) -> Mapping[str, Any] | None:
    """The description of a network; None if its path or the grammar is not text.

    Args:
        network: the network.
        grammar: what found the groups of the images, by which those of new images are found; see
            `groups`. None if nothing did.
    """
    # Not resolved: a link may be there to be changed.
    path = os.path.abspath(network.path)  # noqa: PTH100
    if not _is_text(path + (grammar or "")):
        return None
    return {
        "network": network.network,
        "path": path,
        "parameters_digest": network.parameters_digest,
        "image_shape": list(network.image_shape),
        "steps": preparation.to_plain(network.reader),
        "mean": list(network.spec.mean),
        "std": list(network.spec.std),
        **({} if grammar is None else {"group": grammar}),
    }


def grammar_of(plain: Mapping[str, Any] | None) -> str | None:
    """What found the groups of the images, from a description that may not have it."""
    found = (plain or {}).get("group")
    return found if isinstance(found, str) else None


def spec_of(plain: Mapping[str, Any]) -> DatasetSpec:
    """How images became the input of a network, from its description.

    Raises:
        UserError: the description has another form.
    """
    if wrong := _SHAPE(plain):
        raise UserError(f"its description must be {wrong}")
    height, width, channels = plain["image_shape"][:3]
    for name in ("mean", "std"):
        if (number := len(plain[name])) != channels:
            raise UserError(
                f"its description must have {channels} numbers as {name!r}, not {number}"
            )
    reader = preparation.from_plain(plain["steps"], (height, width, channels))
    # Images without a data set: only how they are read is used.
    spec = dataset_spec(found.configuration(Path(plain["path"])))
    return dataclasses.replace(
        spec.of_shape(reader.shape),
        mean=tuple(map(float, plain["mean"])),
        std=tuple(map(float, plain["std"])),
        reader=reader,
    )


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
