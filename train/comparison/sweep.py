"""A sweep: every combination of the recipes, values of fields and seeds in a TOML file."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.comparison import toml_files
from train.foundation import kinds
from train.foundation.errors import UserError
from train.series import planned_runs
from train.series.planned_runs import PlannedRun
from train.series.planner import Arm
from train.series.recipe import Recipe

_KEYS = ("config", "seeds", "fields")


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep.

    Attributes:
        arms: the configurations without a seed.
        seeds: the seeds that each has.
    """

    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]


def read(path: Path) -> Sweep:
    """The sweep of a file.

    Raises:
        UserError: there is no such file, or it is not a sweep whose runs can be made.
    """
    content = toml_files.read(path, "sweep")
    try:
        sweep = _parse(content)
        for arm in sweep.arms:
            planned_runs.check(PlannedRun(arm.recipe, sweep.seeds[0]))
    except UserError as error:
        raise error.within(f"{path}: ") from error
    return sweep


def _parse(content: Mapping[str, Any]) -> Sweep:
    toml_files.check_keys(content, _KEYS)
    files = toml_files.several("config", content.get("config"))
    seeds = toml_files.seeds("seeds", content.get("seeds"))
    for file in files:
        if not isinstance(file, str) or not file:
            raise UserError(
                field="config", must_be="a file as --config takes it, or several", got=file
            )
    values = toml_files.flatten("fields", content.get("fields", {}))
    by_base = {base: _read_fields(base, values) for base in map(Recipe.parse, files)}
    number = len(seeds) * sum(math.prod(map(len, one.values())) for one in by_base.values())
    if number > toml_files.MOST_RUNS:
        raise UserError(f"a sweep must have at most {toml_files.MOST_RUNS:,} runs; got {number:,}")
    recipes = (one for base, of_fields in by_base.items() for one in _combine(base, of_fields))
    return Sweep(tuple(map(Arm, recipes)), seeds)


def _read_fields(base: Recipe, values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of the fields that the recipe is combined with."""
    known = planned_runs.all_fields(base)
    for name in values:
        if name == "seed":
            raise UserError("fields cannot have the seed: list the seeds in seeds")
        if name not in known:
            raise UserError(f"{base.file} has no field {name!r}{kinds.did_you_mean(name, known)}")
    return {
        name: toml_files.values_of_field(
            f"fields.{name}", value, is_tuple=isinstance(known[name], list)
        )
        for name, value in values.items()
    }


def _combine(base: Recipe, of_fields: Mapping[str, list[Any]]) -> Iterator[Recipe]:
    """The recipe with every combination of values; the last field changes fastest."""
    for combination in itertools.product(*of_fields.values()):
        yield base.changed(dict(zip(of_fields, combination, strict=True)))
