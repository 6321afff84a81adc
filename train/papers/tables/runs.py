"""The runs that a table needs: their configurations, commands, folders, and what they left."""

import difflib
import functools
import hashlib
import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from train import configuration
from train.foundation import nested
from train.foundation.errors import UserError
from train.papers.tables.table import Recipe
from train.workdir import run_files

# What may differ from machine to machine: no number of the results depends on it.
_OF_THE_MACHINE = frozenset(
    {
        "dataset.data_dir",
        "dataset.num_workers",
        "checkpoint.every_steps",
        "checkpoint.every_minutes",
        "parallel",
    }
)
# How the last line of a run's log begins where training came to numbers that are not finite.
_DIVERGED = "error: training diverged"
_LONGEST_NAME = 180
# What evaluations are of.
SPLIT = "test"


class Status(Enum):
    """How far a run is."""

    ABSENT = "not started"
    UNFINISHED = "unfinished"
    DIVERGED = "diverged"
    FINISHED = "finished"


@dataclass(frozen=True)
class Run:
    """A configuration and a seed.

    Attributes:
        recipe: the configuration, of the table and the tuning alone.
        seed: the seed.
        overrides: what the user changes in all runs, as `name=value`.
        evaluated: whether `train.evaluate` is wanted after it.
    """

    recipe: Recipe
    seed: int
    overrides: tuple[str, ...] = ()
    evaluated: bool = False

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as the run writes it."""
        return {**_load(self.recipe, self.overrides), "seed": self.seed}

    @functools.cached_property
    def key(self) -> str:
        """The same for runs that give the same results."""
        return _key(self.config)

    @functools.cached_property
    def name(self) -> str:
        """The folder: what the recipe is, and what is changed of it, by the table or the user."""
        changed = _of_any_machine(_load(self.recipe, self.overrides))
        original = _of_any_machine(_load(Recipe(self.recipe.config, self.recipe.loss)))
        parts = [
            f"{_short(field)}={value}"
            for field, value in changed.items()
            if field not in original or value != original[field]
        ]
        name = "-".join([self.recipe.config, self.recipe.loss, *parts, f"seed={self.seed}"])
        name = re.sub(r"[^\w.=-]+", "_", name)
        if len(name) <= _LONGEST_NAME:
            return name
        # The path of a file of weights, for one; file systems take no names of any length.
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        return f"{name[:_LONGEST_NAME]}-{digest}-seed={self.seed}"

    def training(self, workdir: Path) -> list[str]:
        """The arguments of the command that makes it, after `python`."""
        return [
            "-m",
            "train.main",
            f"--config={self.recipe.file}",
            *_changes(self.recipe, self.overrides),
            f"--config.seed={self.seed}",
            f"--workdir={workdir}",
        ]

    def evaluation(self, workdir: Path) -> list[str]:
        """The arguments of the command that evaluates it, after `python`."""
        return ["-m", "train.evaluate", f"--workdir={workdir}", f"--split={SPLIT}"]


class RunsFolder:
    """A folder with a folder for each run, whoever made them and under whatever name.

    Args:
        path: the folder; it may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._others: dict[str, Path] = {}
        for workdir in sorted(path.iterdir()) if path.is_dir() else ():
            config = run_files.read_config(workdir) if workdir.is_dir() else None
            if config is not None:
                key = _key(config)
                # Of several folders with the same run, a finished one.
                if key not in self._others or not (self._others[key] / run_files.RESULTS).exists():
                    self._others[key] = workdir

    def workdir(self, run: Run) -> Path:
        """Where the run is, or is to be."""
        planned = self.path / run.name
        config = run_files.read_config(planned)
        if config is not None and _key(config) == run.key:
            return planned
        return self._others.get(run.key, planned)

    def log(self, run: Run) -> Path:
        """What the commands of the run print when they are run from here."""
        workdir = self.workdir(run)
        return workdir.with_name(f"{workdir.name}.log")

    def last_line(self, run: Run) -> str:
        """The last that the run's commands printed; empty where nothing was."""
        try:
            lines = self.log(run).read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def foreign(self, run: Run) -> list[str]:
        """How another run that has this one's folder differs from it; empty where none has."""
        workdir = self.workdir(run)
        config = run_files.read_config(workdir)
        if config is None or _key(config) == run.key:
            return []
        return nested.differences(_of_any_machine(run.config), _of_any_machine(config))

    def status(self, run: Run) -> Status:
        """How far the run is."""
        if self.foreign(run):
            return Status.ABSENT
        if self.results(run) is not None:
            evaluated = not run.evaluated or self.evaluation(run).exists()
            return Status.FINISHED if evaluated else Status.UNFINISHED
        if self.last_line(run).startswith(_DIVERGED):
            return Status.DIVERGED
        has_config = run_files.read_config(self.workdir(run)) is not None
        return Status.UNFINISHED if has_config else Status.ABSENT

    def results(self, run: Run) -> dict[str, Any] | None:
        """The results of the run; None where it is not finished.

        Raises:
            UserError: there is a file, and it cannot be read.
        """
        workdir = self.workdir(run)
        if self.foreign(run) or not (workdir / run_files.RESULTS).exists():
            return None
        results = run_files.read_results(workdir)
        if results is None:
            raise UserError(
                f"{workdir / run_files.RESULTS} cannot be read as the results of a run; delete it, "
                "and the same command makes it anew"
            )
        return results

    def evaluation(self, run: Run) -> Path:
        """The file that `train.evaluate` leaves of the run."""
        return run_files.evaluation(self.workdir(run), SPLIT)


def check_overrides(overrides: tuple[str, ...]) -> None:
    """Raises `UserError` for what cannot be changed in all runs."""
    for override in overrides:
        name, equals, _ = override.partition("=")
        if not equals or not name:
            raise UserError(
                f"--override must be a field and a value, as dataset.data_dir=DIR; got {override!r}"
            )
        if name == "seed":
            raise UserError("--override cannot change the seed: --seeds does")


def check(run: Run) -> None:
    """Raises `UserError` where the user's changes do not fit the run's configuration."""
    set_here = {name for name, _ in run.recipe.overrides}
    known = dict(nested.flatten(_load(run.recipe)))
    for override in run.overrides:
        name = override.partition("=")[0]
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise UserError(f"--override: {run.recipe.file} has no field {name!r}{hint}")
        if name in set_here:
            raise UserError(f"--override cannot change {name}, which the table itself sets")
    config = run.config
    try:
        configuration.check(config)
    except UserError as error:
        raise UserError(f"{run.recipe.file}: {error}") from error


@functools.cache
def _load(recipe: Recipe, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    """The configuration that the command line makes of these arguments."""
    module = importlib.import_module(f"configs.{recipe.config}")
    # By the flags of the program itself, so that a value has the type that it has there.
    values = flags.FlagValues()
    config: ConfigDict = module.get_config(recipe.loss)
    arguments = ["train.tables", *_changes(recipe, overrides)]
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=arguments)
        values(arguments)
    except (flags.Error, TypeError, ValueError) as error:
        raise UserError(f"{recipe.file}: {' '.join(str(error).split())}") from error
    loaded: dict[str, Any] = json.loads(config.to_json())
    return loaded


def _changes(recipe: Recipe, overrides: tuple[str, ...]) -> list[str]:
    of_the_recipe = [f"{name}={value}" for name, value in recipe.overrides]
    return [f"--config.{override}" for override in (*of_the_recipe, *overrides)]


def _of_any_machine(config: Mapping[str, Any]) -> dict[str, Any]:
    values = nested.flatten(config)
    return {name: value for name, value in values if name not in _OF_THE_MACHINE}


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps(_of_any_machine(config), sort_keys=True)


def _short(field: str) -> str:
    """The last part of a field's name; of a name, what it is the name of."""
    *groups, last = field.split(".")
    return groups[-1] if last == "name" else last
