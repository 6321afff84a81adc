"""`config.dataset.decoding`: the packages that decode and resize images."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from train.foundation import fields
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
        raise UserError(
            f"config.dataset.decoding={_FAST!r} needs the package {error.name}: "
            "pip install 'topk_jax[fast-images]'"
        ) from error
