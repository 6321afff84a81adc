"""TOML files that describe runs, and the values in them."""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from train.foundation import files, kinds
from train.foundation.errors import UserError, first_line

# The most values of a field, seeds, files or tables.
MOST_VALUES = 1_000
# Each is checked before the first is made.
MOST_RUNS = 2_000
_SEED = kinds.integer(0, 2**32 - 1)


def read(path: Path, flag: str) -> dict[str, Any]:
    """The content of a TOML file that a flag names.

    Raises:
        UserError: there is no such file, or it is not TOML.
    """
    if not path.is_file():
        raise UserError(field=f"--{flag}", must_be="a file", but=f"there is no file {path}")
    try:
        return tomllib.loads(files.read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is not TOML: {first_line(error)}") from error


def check_keys(table: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises `UserError` for a key that is not known."""
    for key in table:
        if key not in known:
            hint = kinds.did_you_mean(key, known)
            raise UserError(f"{key!r} is not one of {', '.join(known)}{hint}")


def several(name: str, value: Any) -> list[Any]:
    """One or several values, none of them twice."""
    if value is None:
        raise UserError(f"{name} is missing")
    if value in ([], {}):
        raise UserError(f"{name} has no value")
    values = value if isinstance(value, list) else [value]
    if len(values) > MOST_VALUES:
        raise UserError(f"{name} must have at most {MOST_VALUES:,} values; got {len(values):,}")
    for index, one in enumerate(values):
        # True equals 1 in Python, but is a different value here.
        equal = [other for other in values[:index] if other == one]
        if any(isinstance(other, bool) == isinstance(one, bool) for other in equal):
            raise UserError(f"{name} has {one!r} twice")
    return values


def seeds(name: str, value: Any) -> tuple[int, ...]:
    """One or several seeds of runs."""
    found = several(name, value)
    for seed in found:
        if wrong := kinds.wrong(seed, _SEED):
            raise UserError(field=name, must_be=f"{wrong}, or several", got=seed)
    return tuple(found)


def flatten(name: str, table: Any) -> dict[str, Any]:
    """The fields of a table by dotted names, whether it has them with dots or as tables."""
    if not isinstance(table, dict):
        raise UserError(field=name, must_be="a table of fields and their values", got=table)
    values: dict[str, Any] = {}
    for field, value in _flattened(table):
        if field in values:
            raise UserError(f"{name} has {field} twice")
        values[field] = value
    return values


def values_of_field(name: str, value: Any, *, is_tuple: bool) -> list[Any]:
    """The values of a field, one or several. If the field is a tuple, each value is a list."""
    found = several(name, value)
    for one in found:
        if is_tuple != isinstance(one, list):
            example = "[[15, 25], [10, 20]]" if is_tuple else "[0.1, 0.2]"
            kind = "lists" if is_tuple else "numbers, texts, true or false"
            raise UserError(f"the values of {name} must be {kind}, as {example}; got {one!r}")
    return [_value(name, one) for one in found]


def value_of_field(name: str, value: Any, *, is_tuple: bool) -> Any:
    """The one value of a field. If the field is a tuple, the value is a list."""
    if is_tuple != isinstance(value, list):
        kind = "a list, as [15, 25]" if is_tuple else "a number, a text, true or false"
        raise UserError(field=name, must_be=kind, got=value)
    return _value(name, value)


def _value(name: str, value: Any) -> Any:
    """A value in the form of recipes: a list becomes a tuple."""
    elements = value if isinstance(value, list) else [value]
    if not all(isinstance(element, bool | int | float | str) for element in elements):
        raise UserError(f"{name} cannot be {value!r}")
    return tuple(value) if isinstance(value, list) else value


def _flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
