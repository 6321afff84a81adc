"""The fields that a random search draws: ranges, which may be extended, and choices."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from train.comparison import toml_files
from train.foundation import fields
from train.foundation.errors import UserError

Side = Literal["low", "high"]
Scale = Literal["log", "linear"]

# The part of a range next to an end within which a value counts as at that end.
_OUTER = 0.1
# By which part of its length a range is extended.
_EXTENSION = 0.5
_SCALES: tuple[Scale, ...] = ("log", "linear")
_RANGE_KEYS = ("from", "to", "scale", "least", "most")
_CHOICE_KEYS = ("values",)
_NUMBER = fields.Number()


@dataclass(frozen=True)
class Range:
    """A real field that is drawn between two numbers.

    Attributes:
        name: the field.
        start: the smallest value.
        end: the largest value.
        scale: whether the value or its logarithm is uniform.
        least: the value below which the range is not extended; None for no such limit.
        most: the value above which the range is not extended; None for no such limit.
    """

    name: str
    start: float
    end: float
    scale: Scale
    least: float | None
    most: float | None

    def draw(self, generator: np.random.Generator) -> float:
        """A value of four digits."""
        drawn = self._value(generator.uniform(self._place(self.start), self._place(self.end)))
        return min(max(_rounded(drawn), self.start), self.end)

    def edge(self, value: float) -> Side | None:
        """The end at which a value lies and beyond which the range can be extended, if any."""
        low, high = self._place(self.start), self._place(self.end)
        position = (self._place(value) - low) / (high - low)
        if position <= _OUTER and (self.least is None or self.start > self.least):
            return "low"
        if position >= 1 - _OUTER and (self.most is None or self.end < self.most):
            return "high"
        return None

    def extended(self, side: Side) -> "Range":
        """The range with half of its length more on one side, as far as the limits allow."""
        low, high = self._place(self.start), self._place(self.end)
        longer = _EXTENSION * (high - low)
        if side == "low":
            start = _rounded(self._value(low - longer))
            return replace(self, start=start if self.least is None else max(start, self.least))
        end = _rounded(self._value(high + longer))
        return replace(self, end=end if self.most is None else min(end, self.most))

    def beyond(self, side: Side) -> "Range":
        """What the extension on one side adds, and the outer tenth of the range there."""
        low, high = self._place(self.start), self._place(self.end)
        outer = _OUTER * (high - low)
        longer = self.extended(side)
        if side == "low":
            return replace(longer, end=_rounded(self._value(low + outer)))
        return replace(longer, start=_rounded(self._value(high - outer)))

    def _place(self, value: float) -> float:
        return math.log(value) if self.scale == "log" else value

    def _value(self, place: float) -> float:
        return math.exp(place) if self.scale == "log" else place


@dataclass(frozen=True)
class Choice:
    """A field that is one of a few values. It has no ends.

    Attributes:
        name: the field.
        values: the values.
    """

    name: str
    values: tuple[Any, ...]

    def draw(self, generator: np.random.Generator) -> Any:
        """One of the values."""
        return self.values[generator.integers(len(self.values))]


Parameter = Range | Choice


def parse(name: str, table: Any, default: Any) -> Parameter:
    """The parameter of a table such as `{from = 1e-4, to = 0.1, scale = "log"}`.

    Args:
        name: the field.
        table: the table.
        default: the value of the field in the recipe, which tells its type.

    Raises:
        UserError: the table is not that of a parameter, or does not fit the field.
    """
    where = f"space.{name}"
    if not isinstance(table, dict) or not ("values" in table or "from" in table):
        raise UserError(
            f"{where} must be a table with from, to and scale, or with values; got {table!r}"
        )
    try:
        toml_files.check_keys(table, _CHOICE_KEYS if "values" in table else _RANGE_KEYS)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    if "values" in table:
        values = toml_files.values_of_field(
            f"{where}.values", table["values"], is_tuple=isinstance(default, list)
        )
        return Choice(name, tuple(values))
    return _range(name, where, table, default)


def generator(seed: int, name: str, part: int) -> np.random.Generator:
    """The random numbers of a parameter in a part of the search.

    They depend on the name of the field, not on the other fields: arms that share a field draw the
    same values of it, so that no arm has the better luck.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.default_rng([seed, part, int.from_bytes(digest[:8], "big")])


def _range(name: str, where: str, table: Mapping[str, Any], default: Any) -> Range:
    if isinstance(default, int | str | list):
        kind = "a whole number" if type(default) is int else "no number"
        raise UserError(f"{where} must have values, as {{values = [1, 3]}}: {name} is {kind}")
    for key in ("from", "to", "least", "most"):
        if key in table or key in ("from", "to"):
            if key not in table:
                raise UserError(f"{where}.{key} is missing")
            if wrong := _NUMBER(table[key]):
                raise UserError(f"{where}.{key} must be {wrong}; got {table[key]!r}")
    if wrong := fields.one_of(_SCALES)(table.get("scale")):
        raise UserError(f"{where}.scale must be {wrong}; got {table.get('scale')!r}")
    start, end = float(table["from"]), float(table["to"])
    least = float(table["least"]) if "least" in table else None
    most = float(table["most"]) if "most" in table else None
    if start >= end:
        raise UserError(f"{where}.from must be less than to, {end:g}; got {start:g}")
    if least is not None and least > start:
        raise UserError(f"{where}.least must be at most from, {start:g}; got {least:g}")
    if most is not None and most < end:
        raise UserError(f"{where}.most must be at least to, {end:g}; got {most:g}")
    smallest, key = (start, "from") if least is None else (least, "least")
    if table["scale"] == "log" and smallest <= 0:
        raise UserError(f"{where}.{key} must be positive on a log scale; got {smallest:g}")
    return Range(name, start, end, table["scale"], least, most)


def _rounded(value: float) -> float:
    """Four digits, so that names of runs stay short."""
    return float(f"{value:.4g}")
