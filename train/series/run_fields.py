"""The fields of a configuration by which users compare runs."""

from collections.abc import Iterable
from typing import Any

from train.foundation.errors import UserError
from train.training.losses import LOSS_NAME, find_loss
from train.workdir.runs import Run


def check_fields(run: Run, names: Iterable[str]) -> None:
    """Raises `UserError` if a finished run lacks one of the fields, or has an unknown loss."""
    for name in names:
        if name not in run.fields:
            raise UserError(f"the results in {run.workdir} have no config.{name}")
    loss = run.fields["loss.name"]
    if LOSS_NAME(loss) is not None:
        raise UserError(f"{run.workdir} was trained with a loss that is not known here, {loss!r}")


def used_fields(run: Run) -> dict[str, Any]:
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
