"""`config.dataset.decoding`: the packages that decode and resize images."""

from collections.abc import Callable
from typing import TypeVar

from train.foundation import packages
from train.foundation.errors import UserError
from train.foundation.spelling import spell

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
    if value == "exact":
        return exact
    try:
        return fast()
    except ModuleNotFoundError as error:
        field = spell("config.dataset.decoding='fast'")
        raise UserError(packages.missing(field, str(error.name), "fast-images")) from error
