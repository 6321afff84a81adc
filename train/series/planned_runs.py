"""Planned runs: their configurations, names and commands."""

import functools
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from train.configuration import Config
from train.configuration.parsing import parse
from train.foundation import kinds, nested
from train.foundation.errors import UserError
from train.foundation.flags import read_configuration
from train.run import runs
from train.series.recipe import Recipe
from train.series.run_fields import short_name

# The split that is evaluated.
SPLIT: Literal["test"] = "test"
# In bytes: systems take 255, and a letter may have four.
_LONGEST_NAME = 180


@dataclass(frozen=True)
class PlannedRun:
    """A planned run: a configuration and a seed.

    Attributes:
        recipe: the configuration without the seed, as the table and its tuning, or the sweep, has
            it.
        seed: the seed.
        overrides: the fields that the user changes in all runs, as `name=value`.
    """

    recipe: Recipe
    seed: int
    overrides: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as the run writes it."""
        return {**load(self.recipe, self.overrides), "seed": self.seed}

    @functools.cached_property
    def key(self) -> str:
        """A text that is equal for runs that give the same results."""
        return runs.key(self.config)

    @functools.cached_property
    def name(self) -> str:
        """The name of its folder: the recipe, and the fields that were changed."""
        changed = runs.identity(load(self.recipe, self.overrides))
        original = runs.identity(load(Recipe(self.recipe.config, self.recipe.choice)))
        parts = [
            f"{short_name(field)}={value}"
            for field, value in changed.items()
            if field not in original or value != original[field]
        ]
        name = "-".join([self.recipe.name, *parts, f"seed={self.seed}"])
        name = re.sub(r"[^\w.=-]+", "_", name)
        in_bytes = name.encode()
        if len(in_bytes) <= _LONGEST_NAME:
            return name
        # A path of a file of weights, for example, can be too long for a file system.
        digest = hashlib.sha256(in_bytes).hexdigest()[:8]
        start = in_bytes[:_LONGEST_NAME].decode(errors="ignore")
        return f"{start}-{digest}-seed={self.seed}"

    def training(self, workdir: Path) -> list[str]:
        """The arguments, after `python`, of the command that trains it."""
        return [
            "-m",
            "train.main",
            f"--config={self.recipe.argument}",
            *(f"--config.{one}" for one in _changes(self.recipe, self.overrides)),
            f"--config.seed={self.seed}",
            f"--workdir={workdir}",
        ]


def check_overrides(overrides: tuple[str, ...]) -> None:
    """Raises `UserError` for an override without a field and value, or that changes the seed."""
    for override in overrides:
        name, equals, _ = override.partition("=")
        if not equals or not name:
            raise UserError(
                field="--override",
                must_be="a field and a value, as dataset.data_dir=DIR",
                got=override,
            )
        if name == "seed":
            raise UserError("--override cannot change the seed: --seeds does")


def check(run: PlannedRun) -> Config:
    """The parsed configuration of a run; raises `UserError` if the overrides do not fit it."""
    set_here = {name for name, _ in run.recipe.overrides}
    known = all_fields(run.recipe)
    for override in run.overrides:
        name = override.partition("=")[0]
        if name not in known:
            hint = kinds.did_you_mean(name, known)
            raise UserError(f"--override: {run.recipe.file} has no field {name!r}{hint}")
        if name in set_here:
            raise UserError(f"--override cannot change {name}, which the table itself sets")
    config = run.config
    try:
        return parse(config)
    except UserError as error:
        raise error.within(f"{run.recipe.file}: ") from error


def distinct(planned: Iterable[PlannedRun]) -> tuple[PlannedRun, ...]:
    """The runs, each once."""
    return tuple({run.key: run for run in planned}.values())


def load(recipe: Recipe, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    """The configuration that the command line would make of a recipe and overrides.

    Raises:
        UserError: there is no such recipe, or a value has another type than its field.
    """
    return _load(recipe, overrides)


# Calls with and without a default have different keys.
@functools.cache
def _load(recipe: Recipe, overrides: tuple[str, ...]) -> dict[str, Any]:
    try:
        return read_configuration(recipe.argument, _changes(recipe, overrides))
    except UserError as error:
        raise error.within(f"{recipe.file}: ") from error


def all_fields(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe with their values, by dotted names."""
    return dict(nested.flatten(load(recipe)))


def _changes(recipe: Recipe, overrides: tuple[str, ...]) -> list[str]:
    return [*(f"{name}={value}" for name, value in recipe.overrides), *overrides]
