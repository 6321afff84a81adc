"""A study: a TOML file that says which runs there are, and what of them is compared.

    config = "digits"                                # a recipe, or several
    seeds = [0, 1, 2]
    fields.num_epochs = 2                            # a field of all runs
    fields.loss.name = ["cross_entropy", "focal"]    # several values are a grid

In place of the grid, `[[arms]]` have a name, a config, fields, and a `space` that is searched.
`[[contrasts]]` are differences of two arms. A run is known as soon as the runs before it say that
it is needed: `known` is a function of the runs that have ended, and of nothing else.
"""

import contextlib
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace

from train.configuration import Config
from train.configuration.datasets import labels_of
from train.configuration.parsing import parse
from train.data.truths import ONE
from train.foundation import kinds
from train.foundation.errors import UserError, errors_told, within
from train.foundation.flags import read_configuration
from train.foundation.nested import flatten
from train.reports.metric import Metric
from train.run import runs
from train.study.search import PER_ROUND, ROUNDS, Choice, Range, draw, extended
from train.training.losses import find_loss

_load = functools.cache(read_configuration)
# Each of them is checked before the first is made.
_MOST_RUNS = 2_000
_Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]


@dataclass(frozen=True)
class Planned:
    """A run that a study needs.

    Attributes:
        recipe: the recipe, as --config takes it.
        fields: the changed fields by their dotted names.
        seed: the seed.
    """

    recipe: str
    fields: tuple[tuple[str, Any], ...]
    seed: int

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The nested configuration, as the run writes it."""
        return {**_load(self.recipe, self._changes), "seed": self.seed}

    @functools.cached_property
    def key(self) -> str:
        """A text that is equal for runs that give the same results."""
        return runs.key(self.config)

    @functools.cached_property
    def name(self) -> str:
        """The name of its folder, the one that `train.main` itself chooses."""
        return runs.run_name(self.config)

    def command(self, folder: Path) -> list[str]:
        """The arguments, after `python`, of the command that makes it in a folder of runs."""
        return [
            *("-m", "train.main", f"--config={self.recipe}"),
            *(f"--config.{change}" for change in (*self._changes, f"seed={self.seed}")),
            f"--workdir={folder / self.name}",
        ]

    @property
    def _changes(self) -> tuple[str, ...]:
        return tuple(f"{name}={value}" for name, value in self.fields)


class Arm(Struct, frozen=True, forbid_unknown_fields=True):
    """Runs that differ only in the seed, once the searched fields have their values.

    Attributes:
        config: the recipe, as --config takes it.
        fields: the changed fields by their dotted names.
        space: the searched fields by their dotted names, each a `Range` or a `Choice`; empty for no
            search. They take precedence over `fields`.
    """

    name: str
    config: str
    fields: Mapping[str, Any] = {}
    space: Mapping[str, Any] = {}

    def run(self, values: Mapping[str, Any], seed: int) -> Planned:
        """The run with these values of the searched fields."""
        return Planned(self.config, tuple({**self.fields, **values}.items()), seed)


class Contrast(Struct, frozen=True, forbid_unknown_fields=True):
    """The difference of two arms in a metric.

    Attributes:
        first: the name of the arm that is expected to be better.
        second: the name of the other arm.
        primary: whether Holm's method counts its p-value.
        equivalence: the points below which the arms count as equal; None for no test of that.
    """

    name: str
    first: str
    second: str
    metric: str
    primary: bool = False
    equivalence: Annotated[float, Meta(gt=0, le=100)] | None = None


class Study(Struct, frozen=True, forbid_unknown_fields=True):
    """Arms, the seeds of their runs, and the contrasts.

    Attributes:
        seeds: the seeds of the runs that are compared.
        split: the split of contrasts.
        select_by: what selects, on validation, candidates and epochs; None for the recipe's.
        candidates: the number of candidates before extensions; 0 without a search.
        finalists: how many of them have runs with all tuning seeds.
        tuning_seeds: the seeds of searches; the first is the one of all candidates.
        search_seed: the seed of the draws.
    """

    seeds: Sequence[_Seed]
    arms: Sequence[Arm] = ()
    contrasts: Sequence[Contrast] = ()
    split: Literal["balanced_test", "test"] = "test"
    select_by: str | None = None
    candidates: Annotated[int, Meta(ge=1)] = 0
    finalists: Annotated[int, Meta(ge=1)] = 1
    tuning_seeds: Sequence[_Seed] = ()
    search_seed: _Seed = 0


class _File(Study, frozen=True, forbid_unknown_fields=True):
    """A study as a file has it: fields are nested, and recipes may be in the place of arms.

    Attributes:
        config: the recipes of a grid.
        fields: the changed fields of all runs; several values are a grid.
    """

    config: str | Sequence[str] = ()
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Known:
    """The runs of an arm that are known now.

    Attributes:
        search: the runs of the search.
        selected: the selected values of the searched fields; None before that, and if all
            candidates diverged.
        finals: the runs with the selected values, one for each seed.
    """

    search: Sequence[Planned]
    selected: Mapping[str, Any] | None
    finals: Sequence[Planned]


def known(study: Study, arm: Arm, ended: Mapping[str, float | None]) -> Known:
    """The runs of an arm that are known now.

    Args:
        study: the study.
        arm: one of its arms.
        ended: by the keys of the runs that have ended, the validation metric that selects; None
            for a run that diverged.
    """
    search: dict[str, Planned] = {}

    def ranked(tried: Sequence[dict[str, Any]], seeds: Sequence[int]) -> list[dict[str, Any]]:
        """The candidates, the best first; none before all have ended, and if all diverged."""
        of_each = [[arm.run(values, seed) for seed in seeds] for values in tried]
        search.update((run.key, run) for of_one in of_each for run in of_one)
        if not search.keys() <= ended.keys() or all(ended[key] is None for key in search):
            return []
        means = [np.mean([ended[run.key] or 0.0 for run in of_one]) for of_one in of_each]
        # Of equal candidates the first.
        order = sorted(range(len(tried)), key=means.__getitem__, reverse=True)
        return [tried[index] for index in order]

    selected: dict[str, Any] | None = {}
    if arm.space:
        space = new = arm.space
        candidates: list[dict[str, Any]] = []
        for part in range(ROUNDS + 1):
            count = PER_ROUND if part else study.candidates
            candidates += draw(new, count, study.search_seed, part, candidates)
            best = ranked(candidates, study.tuning_seeds[:1])
            if not best or (longer := extended(space, best[0])) is None:
                break
            space, new = longer
        best = ranked(best[: study.finalists], study.tuning_seeds)
        selected = best[0] if best else None
    finals = [] if selected is None else [arm.run(selected, seed) for seed in study.seeds]
    return Known([*search.values()], selected, finals)


def read(path: Path) -> Study:
    """The study of a TOML file, every first run of which can be made.

    Raises:
        UserError: there is no such file, or it is not such a study.
    """
    if not path.is_file():
        raise UserError(field="--study", must_be="a file", but=f"there is no file {path}")
    with within(f"--study {path}: "):
        with errors_told("the file cannot be read"):
            file = msgspec.toml.decode(path.read_bytes(), type=_File)
        if bool(file.config) == bool(file.arms):
            raise UserError("either config, of a grid, or [[arms]] must be given")
        shared = {"select_by": file.select_by} if file.select_by else {}
        shared |= dict(flatten(file.fields))
        recipes = [file.config] if isinstance(file.config, str) else file.config
        arms = [_with_fields(arm, shared) for arm in file.arms]
        arms += [arm for recipe in recipes for arm in _grid(recipe, shared)]
        study = replace(file, arms=arms)
        check(study)
        return study


def _with_fields(arm: Arm, shared: Mapping[str, Any]) -> Arm:
    """An arm of a file with the fields of all runs, and with dotted names."""
    tables: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in flatten(arm.space):
        searched, _, key = name.rpartition(".")
        tables[searched][key] = value
    space = {}
    for name, table in tables.items():
        with within(f"arm {arm.name!r}: "), errors_told(f"space.{name}"):
            space[name] = msgspec.convert(table, Choice if "values" in table else Range)
    return replace(arm, fields={**shared, **dict(flatten(arm.fields))}, space=space)


def _grid(recipe: str, fields: Mapping[str, Any]) -> Iterator[Arm]:
    """An arm for every combination of values; a loss takes its own parameters only."""
    losses = _several(fields.get("loss.name", _load(recipe)["loss"]["name"]))
    parameters = {loss: {f"loss.{one}" for one in find_loss(loss).parameters} for loss in losses}
    of_losses = set[str]().union(*parameters.values())
    for loss in losses:
        base = _with_defaults(recipe, loss)
        usual = dict(flatten(_load(base)))
        axes = {
            name: _several(value, usual.get(name))
            for name, value in fields.items()
            if name != "loss.name" and name not in of_losses - parameters[loss]
        }
        if usual["loss.name"] != loss:
            axes["loss.name"] = [loss]
        # One more than there may be is enough to refuse them.
        for values in itertools.islice(itertools.product(*axes.values()), _MOST_RUNS + 1):
            one = dict(zip(axes, values, strict=True))
            told = [f"{name}={value}" for name, value in one.items() if value != fields[name]]
            yield Arm(", ".join([base, *told]), base, one)


def _with_defaults(recipe: str, loss: str) -> str:
    """The recipe with the defaults of a loss; without a loss of its own if it has none of these."""
    file, _, word = recipe.partition(":")
    usual = _load(recipe)["loss"]["name"]
    # What follows the colon may be, for example, a network.
    if loss != usual and word in ("", usual):
        with contextlib.suppress(UserError):
            if _load(f"{file}:{loss}")["loss"]["name"] == loss:
                return f"{file}:{loss}"
    return recipe


def check(study: Study) -> None:
    """Refuses what would end after hours: a run that cannot be made, or that lacks a number."""
    all_different: dict[str, list[Any]] = {
        "names of arms": [arm.name for arm in study.arms],
        "names of contrasts": [one.name for one in study.contrasts],
        "seeds and tuning_seeds": [*study.seeds, *study.tuning_seeds],
    }
    for what, values in all_different.items():
        if twice := [one for one in values if values.count(one) > 1]:
            raise UserError(field=what, must_be="different", but=f"{twice[0]} is there twice")
    if study.contrasts and len(study.seeds) < 2:
        raise UserError(field="seeds", must_be="two or more with contrasts", got=study.seeds)
    number = sum(study.candidates if arm.space else len(study.seeds) for arm in study.arms)
    if not 1 <= number <= _MOST_RUNS:
        raise UserError(f"a study must have from 1 to {_MOST_RUNS:,} runs before others follow")
    configs = {arm.name: _checked(study, arm) for arm in study.arms}
    for contrast in study.contrasts:
        with within(f"contrast {contrast.name!r}: "):
            metric = Metric.parse(contrast.metric)
            if not metric.is_accuracy or metric.average not in ("micro", "macro"):
                raise UserError(field="metric", must_be="an accuracy", got=contrast.metric)
            if contrast.first == contrast.second:
                raise UserError(f"first and second must be two arms; both are {contrast.first!r}")
            for side, name in (("first", contrast.first), ("second", contrast.second)):
                if wrong := kinds.wrong(name, kinds.one_of(configs)):
                    raise UserError(field=side, must_be=wrong, got=name)
                labels, ks = labels_of(configs[name].dataset), [*configs[name].eval.ks]
                if labels != ONE or metric.k not in ks:
                    has = f"eval.ks has {ks}, and dataset.labels is {labels}"
                    raise UserError(f"{name!r} has no {contrast.metric} of single labels: {has}")


def _checked(study: Study, arm: Arm) -> Config:
    """The configuration of an arm, whose searched fields can have all values of their search."""
    with within(f"arm {arm.name!r}: "):
        if "seed" in {**arm.fields, **arm.space}:
            raise UserError("fields cannot have seed: list the seeds in seeds")
        if not arm.space:
            return parse(arm.run({}, 0).config)
        if not (study.select_by and study.candidates and study.tuning_seeds):
            raise UserError("space needs select_by, candidates and tuning_seeds of the file")
        candidates = draw(arm.space, study.candidates, study.search_seed)
        configs = [parse(arm.run(values, 0).config) for values in candidates]
        for name, one in arm.space.items():
            for value in one.reach():
                with within(f"space.{name} can be {value}; least and most limit it: "):
                    parse(arm.run({**candidates[0], name: value}, 0).config)
        return configs[0]


def _several(value: Any, usual: Any = None) -> list[Any]:
    """The values of a field in a grid; a list is one value of a field that is a tuple."""
    is_tuple = isinstance(usual, list)
    if isinstance(value, list) and (not is_tuple or any(isinstance(one, list) for one in value)):
        return value
    return [value]
