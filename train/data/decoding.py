"""`config.dataset.decoding`: the packages that decode and resize images."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from train.foundation import fields, packages
from train.foundation.errors import UserError

EXACT, _FAST = "exact", "fast"
# Pillow, with which the published results were obtained, or other packages in 0.6 of the time,
# whose pixels are at most a step of 255 apart.
FIELD = fields.one_of((EXACT, _FAST))
OPTIONS: Mapping[str, fields.Field] = {"decoding": FIELD}

_Reader = TypeVar("_Reader")


def chosen(value: str, exact: _Reader, fast: Callable[[], _Reader]) -> _Reader:
    """The kind of reader that the field asks for.

    Args:
        value: the value of the field.
        exact: the kind that reads with Pillow.
        fast: imports the other kind, whose packages are optional.

    Raises:
        UserError: one of these packages is not installed.
    """
    if value == EXACT:
        return exact
    try:
        return fast()
    except ModuleNotFoundError as error:
        field = f"config.dataset.decoding={_FAST!r}"
        raise UserError(packages.missing(field, str(error.name), "fast-images")) from error
