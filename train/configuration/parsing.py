"""The door: a nested configuration becomes a `Config`, once every field of it has been checked."""

from collections.abc import Mapping
from typing import Any

import msgspec

from train.configuration import rules
from train.configuration.declaring import NO_DEFAULT, by_dotted_name, groups_of, of_group
from train.configuration.groups import Config, LossFields
from train.data import dataset_spec, find
from train.foundation import kinds
from train.foundation.errors import UserError
from train.foundation.nested import flatten
from train.models import find as find_network
from train.training.losses import LOSSES, find_loss


def parse(config: Mapping[str, Any]) -> Config:
    """The configuration of a recipe or of a run.

    Args:
        config: its fields, nested; a field that is missing has its default.

    Raises:
        UserError: a field is unknown, out of range or does not fit another one; or one without a
            default is missing.
    """
    values = dict(flatten(config))
    for name in ("dataset.name", "model.name", "loss.name"):
        if name not in values:
            raise UserError(f"config.{name} is missing")
    kind, loss = find(values["dataset.name"]).fields, find_loss(values["loss.name"])
    find_network(values["model.name"])
    declared = by_dotted_name(Config, dataset=kind)
    # A recipe may have parameters of all losses.
    of_losses = {name for one in (*LOSSES.values(), loss) for name in one.parameters}
    known = {*declared, *(f"loss.{name}" for name in of_losses)}
    for name in values:
        if name not in known:
            hint = kinds.did_you_mean(name, known)
            raise UserError(f"config.{name} is not a field of the configuration{hint}")
    for name, one in declared.items():
        if name in values or one.default is NO_DEFAULT:
            _check(values, name, one.kind)
    in_all = of_group(LossFields)
    for name, parameter in loss.parameters.items():
        if name not in in_all:
            _check(values, f"loss.{name}", parameter)
    given = {name: value for name, value in config.get("loss", {}).items() if name not in in_all}
    config = {**config, "loss": {**config["loss"], "of_losses": given}}
    groups: dict[str, Any] = {
        name: msgspec.convert(config.get(name, {}), group)
        for name, group in {**groups_of(Config), "dataset": kind}.items()
    }
    own = {
        name: msgspec.convert(config[name], one.kind)
        for name, one in of_group(Config).items()
        if name in config
    }
    parsed = Config(**groups, **own)
    rules.check(parsed, dataset_spec(parsed.dataset))
    return parsed


def _check(values: Mapping[str, Any], name: str, kind: Any) -> None:
    """Raises `UserError` if a field is missing, or holds what it may not."""
    if name not in values:
        raise UserError(f"config.{name} is missing")
    if (wrong := kinds.wrong(values[name], kind)) is not None:
        raise UserError(field=f"config.{name}", must_be=wrong, got=values[name])
