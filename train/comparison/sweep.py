"""A sweep: every combination of recipes, values of fields and seeds, as a TOML file says."""

import itertools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.foundation import fields
from train.foundation.errors import UserError
from train.series import planned_runs
from train.series.planned_runs import PlannedRun
from train.series.recipe import Recipe

_KEYS = ("config", "seeds", "fields")
_SEED = fields.integer(0, 2**32 - 1)


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep.

    Attributes:
        recipes: the configurations without a seed.
        seeds: the seeds that each has.
    """

    recipes: tuple[Recipe, ...]
    seeds: tuple[int, ...]

    def runs(self) -> tuple[PlannedRun, ...]:
        """The runs, each once; the first seed of every recipe comes first."""
        every = itertools.product(self.seeds, self.recipes)
        return planned_runs.distinct(PlannedRun(recipe, seed) for seed, recipe in every)


def read(path: Path) -> Sweep:
    """The sweep of a file.

    Raises:
        UserError: there is no such file, or it is not a sweep whose runs can be made.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UserError(f"--sweep must be a file; there is no file {path}") from error
    except ValueError as error:
        raise UserError(f"{path} is not TOML: {error}") from error
    try:
        sweep = _parse(content)
        for recipe in sweep.recipes:
            planned_runs.check(PlannedRun(recipe, sweep.seeds[0]))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return sweep


def _parse(content: Mapping[str, Any]) -> Sweep:
    for key in content:
        if key not in _KEYS:
            hint = fields.did_you_mean(key, _KEYS)
            raise UserError(f"{key!r} is not one of {', '.join(_KEYS)}{hint}")
    files = _several("config", content.get("config"))
    seeds = _several("seeds", content.get("seeds"))
    for file in files:
        if not isinstance(file, str) or not file:
            raise UserError(f"config must be a file as --config takes it, or several; got {file!r}")
    for seed in seeds:
        if wrong := _SEED(seed):
            raise UserError(f"seeds must be {wrong}, or several; got {seed!r}")
    changed = content.get("fields", {})
    if not isinstance(changed, dict):
        raise UserError(f"fields must be a table of fields and their values; got {changed!r}")
    values: dict[str, Any] = {}
    for name, value in _flattened(changed):
        if name in values:
            raise UserError(f"fields has {name} twice")
        values[name] = value
    bases = [Recipe.parse(file) for file in files]
    return Sweep(
        tuple(recipe for base in bases for recipe in _combinations(base, values)), tuple(seeds)
    )


def _flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The fields by dotted names, whether the file has them as names with dots or as tables."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _combinations(base: Recipe, values: Mapping[str, Any]) -> Iterator[Recipe]:
    """The recipe with every combination of values; the last field changes fastest."""
    known = planned_runs.all_fields(base)
    for name in values:
        if name == "seed":
            raise UserError("fields cannot have the seed: seeds says which there are")
        if name not in known:
            raise UserError(f"{base.file} has no field {name!r}{fields.did_you_mean(name, known)}")
    of_fields = [
        _of_field(name, value, is_tuple=isinstance(known[name], list))
        for name, value in values.items()
    ]
    for combination in itertools.product(*of_fields):
        yield base.changed(dict(zip(values, combination, strict=True)))


def _of_field(name: str, value: Any, *, is_tuple: bool) -> list[Any]:
    """The values of a field: one or several; those of a field that is a tuple are lists."""
    found = _several(f"fields.{name}", value)
    for one in found:
        if is_tuple != isinstance(one, list):
            example = "[[15, 25], [10, 20]]" if is_tuple else "[0.1, 0.2]"
            kind = "lists" if is_tuple else "numbers, texts, true or false"
            raise UserError(
                f"the values of fields.{name} must be {kind}, as {example}; got {one!r}"
            )
        elements = one if isinstance(one, list) else [one]
        if not all(isinstance(element, bool | int | float | str) for element in elements):
            raise UserError(f"fields.{name} cannot be {one!r}")
    return [tuple(one) if isinstance(one, list) else one for one in found]


def _several(name: str, value: Any) -> list[Any]:
    """One or several values, none of them twice."""
    if value is None:
        raise UserError(f"{name} is missing")
    if value in ([], {}):
        raise UserError(f"{name} has no value")
    values = value if isinstance(value, list) else [value]
    for index, one in enumerate(values):
        # True equals 1, and is another value.
        equal = [other for other in values[:index] if other == one]
        if any(isinstance(other, bool) == isinstance(one, bool) for other in equal):
            raise UserError(f"{name} has {one!r} twice")
    return values
