"""The space of a search as a TOML file has it: the tuned fields with their ranges or values."""

from collections.abc import Mapping
from typing import Any

from train.comparison import toml_files
from train.foundation import kinds
from train.foundation.errors import UserError
from train.series.parameters import Choice, Parameter, Range, Scale

_SCALES: tuple[Scale, ...] = ("log", "linear")
_RANGE_KEYS = ("from", "to", "scale", "least", "most")
_CHOICE_KEYS = ("values",)
_NUMBER = kinds.number()
# Runs compute in float32, and the ends of a range on a log scale can be extended by decades.
_SMALLEST, _LARGEST = 1e-37, 1e38


def flatten(table: Any) -> dict[str, Any]:
    """The tables of the parameters by dotted names of fields."""
    if not isinstance(table, dict):
        raise UserError(field="space", must_be="a table of fields", got=table)
    found: dict[str, Any] = {}

    def add(inside: Mapping[str, Any], prefix: str) -> None:
        for name, value in inside.items():
            # A parameter's own keys, or a part of a field's name.
            if isinstance(value, dict) and any(isinstance(one, dict) for one in value.values()):
                add(value, f"{prefix}{name}.")
            elif f"{prefix}{name}" in found:
                raise UserError(f"space has {prefix}{name} twice")
            else:
                found[f"{prefix}{name}"] = value

    add(table, "")
    return found


def parse(name: str, table: Any, default: Any) -> Parameter:
    """The parameter of a table such as `{from = 1e-4, to = 0.1, scale = "log"}`.

    Args:
        name: the field.
        table: the table.
        default: the value of the field in the recipe, for its type.

    Raises:
        UserError: the table is not a parameter, or does not fit the field.
    """
    where = f"space.{name}"
    if not isinstance(table, dict) or not ("values" in table or "from" in table):
        raise UserError(
            field=where, must_be="a table with from, to and scale, or with values", got=table
        )
    try:
        toml_files.check_keys(table, _CHOICE_KEYS if "values" in table else _RANGE_KEYS)
    except UserError as error:
        raise error.within(f"{where}: ") from error
    if "values" in table:
        values = toml_files.values_of_field(
            f"{where}.values", table["values"], is_tuple=isinstance(default, list)
        )
        return Choice(name, tuple(values))
    return _range(name, where, table, default)


def _range(name: str, where: str, table: Mapping[str, Any], default: Any) -> Range:
    if isinstance(default, int | str | list):
        kind = "an integer" if type(default) is int else "not a number"
        raise UserError(f"{where} must have values, as {{values = [1, 3]}}: {name} is {kind}")
    for key in ("from", "to", "least", "most"):
        if key in table or key in ("from", "to"):
            if key not in table:
                raise UserError(f"{where}.{key} is missing")
            if wrong := kinds.wrong(table[key], _NUMBER):
                raise UserError(field=f"{where}.{key}", must_be=wrong, got=table[key])
    if wrong := kinds.wrong(table.get("scale"), kinds.one_of(_SCALES)):
        raise UserError(field=f"{where}.scale", must_be=wrong, got=table.get("scale"))
    start, end = float(table["from"]), float(table["to"])
    least = float(table["least"]) if "least" in table else None
    most = float(table["most"]) if "most" in table else None
    if start >= end:
        raise UserError(f"{where}.from must be less than to, {end:g}; got {start:g}")
    if least is not None and least > start:
        raise UserError(f"{where}.least must be at most from, {start:g}; got {least:g}")
    if most is not None and most < end:
        raise UserError(f"{where}.most must be at least to, {end:g}; got {most:g}")
    if table["scale"] == "log":
        _check_log(where, start, end, least)
    return Range(name, start, end, table["scale"], least, most)


def _check_log(where: str, start: float, end: float, least: float | None) -> None:
    smallest, key = (start, "from") if least is None else (least, "least")
    if smallest <= 0:
        raise UserError(f"{where}.{key} must be positive on a log scale; got {smallest:g}")
    for key, value in (("from", start), ("to", end)):
        if not _SMALLEST <= value <= _LARGEST:
            raise UserError(
                field=f"{where}.{key}",
                must_be=f"a number from {_SMALLEST:g} to {_LARGEST:g} on a log scale",
                got=value,
            )
