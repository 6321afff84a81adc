"""The door: a nested configuration becomes a `Config`, once every field of it has been checked."""

from collections.abc import Iterator, Mapping
from typing import Any

from train.configuration import rules
from train.configuration.declaring import build, by_dotted_name, defaults
from train.configuration.groups import Config
from train.data import DATASET_NAME, dataset_spec, find
from train.foundation import addresses, fields
from train.foundation.errors import UserError
from train.foundation.fields import Field
from train.foundation.nested import flatten
from train.models import MODEL_NAME
from train.training.losses import LOSS_NAME, LOSSES, find_loss
from train.training.optimizer import OPTIMIZERS

# What may stand in these fields is not known to their declarations. `rules` has the rest of them.
NAMES: Mapping[str, Field] = {
    "dataset.name": DATASET_NAME,
    "model.name": MODEL_NAME,
    "loss.name": LOSS_NAME,
    "optimizer.name": fields.one_of(OPTIMIZERS),
}


def parse(config: Mapping[str, Any]) -> Config:
    """The configuration of a recipe or of a run.

    Args:
        config: its fields, nested; a field that is missing has its default.

    Raises:
        UserError: a field is unknown, out of range or does not fit another one; or one without a
            default is missing.
    """
    values = dict(flatten(config))
    for name, value in values.items():
        addresses.refuse(f"config.{name}", value)
    rules.check_field(values, "dataset.name", DATASET_NAME)
    kind = find(values["dataset.name"]).fields
    declared = by_dotted_name(Config, dataset=kind)
    known = {*declared, *_loss_parameters(values)}
    for name in values:
        if name not in known:
            hint = fields.did_you_mean(name, known)
            raise UserError(f"config.{name} is not a field of the configuration{hint}")
    values = {**defaults(Config, dataset=kind), **values}
    for name, one in declared.items():
        if (one.in_recipes or name in values) and name not in rules.DEPENDENT:
            rules.check_field(values, name, NAMES.get(name, one.check))
    for name in sorted(rules.DEPENDENT.keys() - values.keys()):
        raise UserError(f"config.{name} is missing")
    for name in find_loss(values["loss.name"]).parameters:
        if f"loss.{name}" not in values:
            raise UserError(
                f"config.loss.{name} is missing; a recipe has the parameters of the loss that "
                f"follows its colon, as in --config=FILE:{values['loss.name']}"
            )
    parsed = build(Config, values, dataset=kind)
    rules.check(parsed, dataset_spec(parsed.dataset), values)
    return parsed


def _loss_parameters(values: Mapping[str, Any]) -> Iterator[str]:
    """The fields of all our losses, and the fields of the configuration's loss."""
    for loss in LOSSES.values():
        yield from (f"loss.{name}" for name in loss.parameters)
    name = values.get("loss.name")
    if LOSS_NAME(name) is None:
        yield from (f"loss.{parameter}" for parameter in find_loss(str(name)).parameters)
