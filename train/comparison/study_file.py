"""A study as a TOML file says it: arms with their parameters, seeds, and contrasts of arms."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.comparison import candidates, parameters, toml_files
from train.comparison.candidates import Search
from train.comparison.parameters import Choice, Parameter, Side
from train.evaluation.metric import Metric
from train.foundation import fields
from train.foundation.errors import UserError
from train.series import planned_runs
from train.series.planned_runs import PlannedRun
from train.series.recipe import Recipe

_SPLITS = ("test", "balanced_test")
_KEYS = (
    "select_by",
    "split",
    "candidates",
    "finalists",
    "tuning_seeds",
    "seeds",
    "search_seed",
    "fields",
    "arms",
    "contrasts",
)
_ARM_KEYS = ("name", "config", "fields", "space")
_CONTRAST_KEYS = ("name", "first", "second", "metric", "primary", "equivalence")
# Fields that the file has in places of its own.
_ELSEWHERE = {"seed": "seeds and tuning_seeds", "select_by": "select_by"}
_LIMITS: Mapping[Side, str] = {"low": "least", "high": "most"}
_POSITIVE = fields.integer(1)
_POINTS = fields.Number(above=0, at_most=100)


@dataclass(frozen=True)
class Arm:
    """What is compared with others: a recipe, and the fields of it that are tuned.

    Attributes:
        name: the name.
        recipe: the configuration without the seed and the tuned fields.
        space: the tuned fields; empty for none.
    """

    name: str
    recipe: Recipe
    space: tuple[Parameter, ...]


@dataclass(frozen=True)
class PlannedContrast:
    """The difference of two arms in a metric.

    Attributes:
        name: the name.
        first: the arm that is expected to be better.
        second: the other arm.
        metric: an accuracy, over examples or over classes.
        primary: whether its p-value is adjusted for the number of primary contrasts.
        equivalence: the difference, in points, below which the arms count as equal; None for no
            test of that.
    """

    name: str
    first: Arm
    second: Arm
    metric: Metric
    primary: bool
    equivalence: float | None


@dataclass(frozen=True)
class Study:
    """A random search for every arm, runs of the selected candidates, and contrasts of the arms.

    Attributes:
        file: the name of the file.
        content: what the file has.
        select_by: the validation metric that candidates are selected by, an accuracy.
        split: the split that the contrasts are of.
        candidates: the number of candidates of an arm before extensions.
        finalists: how many of them are run with all tuning seeds.
        tuning_seeds: the seeds of the search; the first is that of the candidates.
        seeds: the seeds of the selected candidates.
        search_seed: the seed of the draws.
        arms: the arms.
        contrasts: the contrasts.
    """

    file: str
    content: str
    select_by: Metric
    split: str
    candidates: int
    finalists: int
    tuning_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    search_seed: int
    arms: tuple[Arm, ...]
    contrasts: tuple[PlannedContrast, ...]

    @property
    def sha256(self) -> str:
        """The hash of the file."""
        return hashlib.sha256(self.content.encode()).hexdigest()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of the contrasts, each once."""
        return tuple(dict.fromkeys(contrast.metric for contrast in self.contrasts))

    def search(self, arm: Arm) -> Search:
        """The first candidates of an arm."""
        return candidates.begin(arm.space, self.candidates, self.search_seed)


def read(path: Path) -> Study:
    """The study of a file.

    Raises:
        UserError: there is no such file, or it is not a study whose runs can be made.
    """
    content = toml_files.read(path, "study")
    try:
        study = _parse(path, content)
        for arm in study.arms:
            try:
                _check(study, arm)
            except UserError as error:
                raise UserError(f"arm {arm.name!r}: {error}") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return study


def _parse(path: Path, content: Mapping[str, Any]) -> Study:
    toml_files.check_keys(content, _KEYS)
    select_by = _metric("select_by", content.get("select_by"))
    if wrong := fields.one_of(_SPLITS)(content.get("split")):
        raise UserError(f"split must be {wrong}; got {content.get('split')!r}")
    tuning_seeds = toml_files.seeds("tuning_seeds", content.get("tuning_seeds"))
    seeds = toml_files.seeds("seeds", content.get("seeds"))
    known = set(tuning_seeds)
    if shared := [seed for seed in seeds if seed in known]:
        raise UserError(f"seeds must be others than tuning_seeds; both have {shared[0]}")
    if len(seeds) == 1:
        raise UserError("seeds must be at least 2, for intervals; got 1")
    numbers = {name: _whole_number(name, content.get(name)) for name in ("candidates", "finalists")}
    if numbers["finalists"] > numbers["candidates"]:
        raise UserError(
            f"finalists must be at most candidates, {numbers['candidates']}; got "
            f"{numbers['finalists']}"
        )
    (search_seed,) = _one(toml_files.seeds("search_seed", content.get("search_seed")))
    shared_fields = toml_files.flattened("fields", content.get("fields", {}))
    tables = _tables("arms", content.get("arms"), _ARM_KEYS)
    of_an_arm = numbers["candidates"] + numbers["finalists"] * (len(tuning_seeds) - 1) + len(seeds)
    planned_runs.check_number(len(tables) * of_an_arm)
    arms: dict[str, Arm] = {}
    for table in tables:
        name = _name("arms", table, arms)
        try:
            arms[name] = _arm(name, table, shared_fields, select_by)
        except UserError as error:
            raise UserError(f"arm {name!r}: {error}") from error
    contrasts: dict[str, PlannedContrast] = {}
    for table in _tables("contrasts", content.get("contrasts"), _CONTRAST_KEYS):
        name = _name("contrasts", table, contrasts)
        try:
            contrasts[name] = _contrast(name, table, arms)
        except UserError as error:
            raise UserError(f"contrast {name!r}: {error}") from error
    return Study(
        file=path.name,
        content=path.read_bytes().decode(),
        select_by=select_by,
        split=content["split"],
        candidates=numbers["candidates"],
        finalists=numbers["finalists"],
        tuning_seeds=tuning_seeds,
        seeds=seeds,
        search_seed=search_seed,
        arms=tuple(arms.values()),
        contrasts=tuple(contrasts.values()),
    )


def _arm(name: str, table: Mapping[str, Any], shared: Mapping[str, Any], select_by: Metric) -> Arm:
    config = table.get("config")
    if not isinstance(config, str) or not config:
        raise UserError(f"config must be a file as --config takes it; got {config!r}")
    base = Recipe.parse(config)
    known = planned_runs.all_fields(base)
    own = toml_files.flattened("fields", table.get("fields", {}))
    values = {}
    for field, value in {**shared, **own}.items():
        _check_field(base, field, known)
        values[field] = toml_files.value_of_field(
            f"fields.{field}", value, is_tuple=isinstance(known[field], list)
        )
    space = []
    for field, parameter in _space(table.get("space", {})).items():
        _check_field(base, field, known)
        if field in own:
            raise UserError(f"{field} is in fields and in space")
        space.append(parameters.parse(field, parameter, known[field]))
        values.pop(field, None)
    return Arm(name, base.changed({"select_by": select_by.name, **values}), tuple(space))


def _space(table: Any) -> dict[str, Any]:
    """The tables of the parameters by dotted names of fields."""
    if not isinstance(table, dict):
        raise UserError(f"space must be a table of fields; got {table!r}")
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


def _check_field(base: Recipe, field: str, known: Mapping[str, Any]) -> None:
    if field in _ELSEWHERE:
        raise UserError(f"{field} cannot be a field: {_ELSEWHERE[field]} of the file says it")
    if field not in known:
        raise UserError(f"{base.file} has no field {field!r}{fields.did_you_mean(field, known)}")


def _contrast(name: str, table: Mapping[str, Any], arms: Mapping[str, Arm]) -> PlannedContrast:
    for key in ("first", "second"):
        if table.get(key) not in arms:
            hint = fields.did_you_mean(str(table.get(key)), arms)
            raise UserError(f"{key} must be the name of an arm; got {table.get(key)!r}{hint}")
    if table["first"] == table["second"]:
        raise UserError(f"first and second are the same arm, {table['first']!r}")
    primary = table.get("primary", False)
    if not isinstance(primary, bool):
        raise UserError(f"primary must be true or false; got {primary!r}")
    equivalence = table.get("equivalence")
    if equivalence is not None and (wrong := _POINTS(equivalence)):
        raise UserError(f"equivalence must be {wrong}, in points; got {equivalence!r}")
    return PlannedContrast(
        name,
        arms[table["first"]],
        arms[table["second"]],
        _metric("metric", table.get("metric")),
        primary,
        None if equivalence is None else float(equivalence),
    )


def _check(study: Study, arm: Arm) -> None:
    """Refuses an arm of which a run could not be made, or would lack a metric that is needed."""
    for candidate in study.search(arm).candidates:
        planned_runs.check(PlannedRun(arm.recipe.changed(candidate), 0))
    some = dict(study.search(arm).candidates[0])
    for parameter in arm.space:
        if isinstance(parameter, Choice):
            for value in parameter.values:
                planned_runs.check(
                    PlannedRun(arm.recipe.changed({**some, parameter.name: value}), 0)
                )
            continue
        for side, limit in _LIMITS.items():
            value = candidates.furthest(parameter, side)
            recipe = arm.recipe.changed({**some, parameter.name: value})
            try:
                planned_runs.check(PlannedRun(recipe, 0))
            except UserError as error:
                raise UserError(
                    f"space.{parameter.name} needs another {limit}, where extensions end: they can "
                    f"reach {value:g}, and {error}"
                ) from error
    ks = planned_runs.load(arm.recipe)["eval"]["ks"]
    for contrast in study.contrasts:
        if arm in (contrast.first, contrast.second) and contrast.metric.k not in ks:
            raise UserError(
                f"its runs have no {contrast.metric.name} for the contrast {contrast.name!r}; "
                f"eval.ks has {', '.join(map(str, ks))}"
            )


def _metric(name: str, value: Any) -> Metric:
    """An accuracy, over examples or over classes."""
    if value is None:
        raise UserError(f"{name} is missing")
    metric = Metric.parse(str(value))
    if not metric.is_accuracy or metric.average not in ("micro", "macro"):
        raise UserError(
            f"{name} must be an accuracy, such as top_5_accuracy or macro_average_5_accuracy; got "
            f"{value!r}"
        )
    return metric


def _whole_number(name: str, value: Any) -> int:
    if wrong := _POSITIVE(value):
        raise UserError(f"{name} must be {wrong}; got {value!r}")
    return int(value)


def _one(seeds: Sequence[int]) -> Sequence[int]:
    if len(seeds) != 1:
        raise UserError(f"search_seed must be one whole number; got {list(seeds)!r}")
    return seeds


def _tables(name: str, value: Any, keys: Sequence[str]) -> list[dict[str, Any]]:
    if not value:
        raise UserError(f"{name} are missing")
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise UserError(f"{name} must be tables, each below [[{name}]]; got {value!r}")
    for table in value:
        try:
            toml_files.check_keys(table, keys)
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
    return value


def _name(kind: str, table: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise UserError(f"{kind} must have a name each; got {name!r}")
    if name in known:
        raise UserError(f"{kind} has {name!r} twice")
    return name
