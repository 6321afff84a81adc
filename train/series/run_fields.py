"""The fields of a configuration by which users compare runs."""

from collections.abc import Iterable
from typing import Any

from train.foundation.errors import UserError
from train.run.runs import StoredRun
from train.training.losses import find_loss


def check_fields(run: StoredRun, names: Iterable[str]) -> None:
    """Raises `UserError` if a finished run lacks one of the fields, or has an unknown loss."""
    for name in names:
        if name not in run.fields:
            raise UserError(f"the results in {run.workdir} have no config.{name}")
    try:
        find_loss(run.fields["loss.name"])
    except UserError as error:
        raise error.within(f"{run.workdir}: ") from error


def used_fields(run: StoredRun) -> dict[str, Any]:
    """The fields of the configuration, without the parameters of other losses."""
    loss = run.fields["loss.name"]
    taken = {"loss.name", *(f"loss.{name}" for name in find_loss(loss).parameters)}
    weights = "loss.class_weights"
    taken |= {weights} | (
        {f"{weights}_beta", f"{weights}_from"}
        if run.fields.get(weights, "none") != "none"
        else set()
    )
    return {
        name: value
        for name, value in run.fields.items()
        if not name.startswith("loss.") or name in taken
    }


def short_name(field: str) -> str:
    """The last part of a field's name; for names such as `model.name` the part before it."""
    *groups, last = field.split(".")
    return groups[-1] if groups and last == "name" else last
