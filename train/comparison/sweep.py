"""A sweep: every combination of recipes, values of fields and seeds, as a TOML file says."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.comparison import toml_files
from train.foundation import fields
from train.foundation.errors import UserError
from train.series import planned_runs
from train.series.planned_runs import PlannedRun
from train.series.recipe import Recipe

_KEYS = ("config", "seeds", "fields")


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
    content = toml_files.read(path, "sweep")
    try:
        sweep = _parse(content)
        for recipe in sweep.recipes:
            planned_runs.check(PlannedRun(recipe, sweep.seeds[0]))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return sweep


def _parse(content: Mapping[str, Any]) -> Sweep:
    toml_files.check_keys(content, _KEYS)
    files = toml_files.several("config", content.get("config"))
    seeds = toml_files.seeds("seeds", content.get("seeds"))
    for file in files:
        if not isinstance(file, str) or not file:
            raise UserError(f"config must be a file as --config takes it, or several; got {file!r}")
    values = toml_files.flattened("fields", content.get("fields", {}))
    lengths = [len(value) for value in values.values() if isinstance(value, list)]
    planned_runs.check_number(math.prod((len(files), len(seeds), *lengths)))
    bases = [Recipe.parse(file) for file in files]
    return Sweep(tuple(recipe for base in bases for recipe in _combinations(base, values)), seeds)


def _combinations(base: Recipe, values: Mapping[str, Any]) -> Iterator[Recipe]:
    """The recipe with every combination of values; the last field changes fastest."""
    known = planned_runs.all_fields(base)
    for name in values:
        if name == "seed":
            raise UserError("fields cannot have the seed: seeds says which there are")
        if name not in known:
            raise UserError(f"{base.file} has no field {name!r}{fields.did_you_mean(name, known)}")
    of_fields = [
        toml_files.values_of_field(f"fields.{name}", value, is_tuple=isinstance(known[name], list))
        for name, value in values.items()
    ]
    for combination in itertools.product(*of_fields):
        yield base.changed(dict(zip(values, combination, strict=True)))
