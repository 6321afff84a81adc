"""What the recipes of the papers share."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict


def for_loss(
    config: Mapping[str, Any], losses: Mapping[str, Mapping[str, Any]], name: str
) -> ConfigDict:
    """The recipe with one of its losses.

    Args:
        config: the fields that all losses of the recipe share, nested.
        losses: the losses by name, each with the fields that it has in `loss`, or changes elsewhere
            by their dotted names.
        name: what follows the colon in `--config=configs/x.py:name`.

    Raises:
        ValueError: the recipe has no such loss.
    """
    if name not in losses:
        known = ", ".join(losses)
        raise ValueError(f"the recipe has no loss {name!r}; after the colon may stand {known}")
    result = ConfigDict(config)
    result.loss = ConfigDict({"name": name})
    for field, value in losses[name].items():
        if "." in field or field in config:
            result.update_from_flattened_dict({field: value})
        else:
            result.loss[field] = value
    return result
