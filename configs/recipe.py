"""The fields that the recipes of the papers share."""

from collections.abc import Mapping
from typing import Any, TypeVar

from ml_collections import ConfigDict, config_dict

from train.configuration import FIELDS_OF, Config, DatasetFields
from train.configuration.declaring import NO_DEFAULT, by_dotted_name
from train.foundation import kinds
from train.foundation.errors import UserError

_Entry = TypeVar("_Entry")


def complete(config: Mapping[str, Any]) -> ConfigDict:
    """Adds the fields that a recipe leaves out, with their defaults.

    The command line has to give a field that neither the recipe nor a default gives.
    """
    dataset = FIELDS_OF.get(config["dataset"]["name"], DatasetFields)
    fields: dict[str, Any] = {}
    for name, declared in by_dotted_name(Config, dataset=dataset).items():
        *groups, field = name.split(".")
        place = fields
        for group in groups:
            place = place.setdefault(group, {})
        unset = declared.default is NO_DEFAULT or declared.default is None
        place[field] = config_dict.placeholder(declared.type) if unset else declared.default
    result = ConfigDict(fields)
    result.update(ConfigDict(config))
    return result


def for_loss(
    config: Mapping[str, Any], losses: Mapping[str, Mapping[str, Any]], name: str
) -> ConfigDict:
    """Returns the recipe with one of its losses.

    Args:
        config: the fields that all losses of the recipe share, nested.
        losses: the losses by name, each with its fields in `loss`, and changes to other fields by
            their dotted names.
        name: the text after the colon in `--config=configs/x.py:name`.

    Raises:
        UserError: the recipe has no such loss.
    """
    changes = chosen(losses, name, "loss")
    result = complete(config)
    result.loss.name = name
    for field, value in changes.items():
        if "." in field or field in config:
            result.update_from_flattened_dict({field: value})
        else:
            result.loss[field] = value
    return result


def chosen(entries: Mapping[str, _Entry], name: str, kind: str) -> _Entry:
    """The entry that the text after the colon names.

    Args:
        entries: the entries of the recipe by name.
        name: the text after the colon.
        kind: what an entry is, for the message.

    Raises:
        UserError: the recipe has no such entry.
    """
    if wrong := kinds.wrong(name, kinds.one_of(entries)):
        raise UserError(field=f"the {kind} after the colon of --config", must_be=wrong, got=name)
    return entries[name]
