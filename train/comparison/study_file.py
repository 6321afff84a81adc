"""A study in a TOML file: arms with their parameters, seeds, and contrasts of arms."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.comparison import search_space, toml_files
from train.configuration.datasets import labels_of
from train.data.truths import ONE
from train.foundation import files, kinds
from train.foundation.errors import UserError
from train.reports.metric import Metric
from train.series import planned_runs
from train.series.parameters import Choice, Parameter, Side
from train.series.planned_runs import PlannedRun
from train.series.planner import Arm
from train.series.recipe import Recipe
from train.series.search import Search, furthest

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
_NUMBER = kinds.integer(1, toml_files.MOST_VALUES)
_POINTS = kinds.number(gt=0, le=100)


@dataclass(frozen=True)
class PlannedContrast:
    """The difference of two arms in a metric.

    Attributes:
        name: the name.
        first: the name of the arm that is expected to be better.
        second: the name of the other arm.
        metric: an accuracy, over examples or over classes.
        primary: whether its p-value is adjusted for the number of primary contrasts.
        equivalence: the difference, in points, below which the arms count as equal; None for no
            test of that.
    """

    name: str
    first: str
    second: str
    metric: Metric
    primary: bool
    equivalence: float | None


@dataclass(frozen=True)
class Study:
    """A random search for every arm, runs of the selected candidates, and contrasts of the arms.

    Attributes:
        file: the name of the file.
        content: the text of the file.
        sha256: the hash of the bytes of the file.
        select_by: the validation metric that candidates are selected by, an accuracy.
        split: the split of the contrasts.
        seeds: the seeds of the selected candidates.
        arms: the arms by name.
        contrasts: the contrasts.
    """

    file: str
    content: str
    sha256: str
    select_by: Metric
    split: str
    seeds: tuple[int, ...]
    arms: Mapping[str, Arm]
    contrasts: tuple[PlannedContrast, ...]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of the contrasts, each once."""
        return tuple(dict.fromkeys(contrast.metric for contrast in self.contrasts))


def read(path: Path) -> Study:
    """The study of a file.

    Raises:
        UserError: there is no such file, or it is not a study whose runs can be made.
    """
    content = toml_files.read(path, "study")
    try:
        study = _parse(path, content)
        for name, arm in study.arms.items():
            try:
                _check(study, name, arm)
            except UserError as error:
                raise error.within(f"arm {name!r}: ") from error
    except UserError as error:
        raise error.within(f"{path}: ") from error
    return study


def _parse(path: Path, content: Mapping[str, Any]) -> Study:
    toml_files.check_keys(content, _KEYS)
    select_by = _metric("select_by", content.get("select_by"))
    if wrong := kinds.wrong(content.get("split"), kinds.one_of(_SPLITS)):
        raise UserError(field="split", must_be=wrong, got=content.get("split"))
    tuning_seeds = toml_files.seeds("tuning_seeds", content.get("tuning_seeds"))
    seeds = toml_files.seeds("seeds", content.get("seeds"))
    if shared := [seed for seed in seeds if seed in tuning_seeds]:
        raise UserError(f"seeds must be others than tuning_seeds; both have {shared[0]}")
    if len(seeds) == 1:
        raise UserError(field="seeds", must_be="at least 2, for intervals", got=1)
    numbers = {name: _integer(name, content.get(name)) for name in ("candidates", "finalists")}
    if numbers["finalists"] > numbers["candidates"]:
        raise UserError(
            field="finalists",
            must_be=f"at most candidates, {numbers['candidates']}",
            got=numbers["finalists"],
        )
    (search_seed,) = _check_single(toml_files.seeds("search_seed", content.get("search_seed")))
    shared_fields = toml_files.flatten("fields", content.get("fields", {}))
    search = functools.partial(
        Search,
        metric=select_by,
        count=numbers["candidates"],
        finalists=numbers["finalists"],
        seeds=tuning_seeds,
        draw_seed=search_seed,
    )
    arms: dict[str, Arm] = {}
    for table in _read_tables("arms", content.get("arms"), _ARM_KEYS):
        name = _name("arms", table, arms)
        try:
            arms[name] = _arm(table, shared_fields, select_by, search)
        except UserError as error:
            raise error.within(f"arm {name!r}: ") from error
    number = len(arms) * numbers["candidates"]
    if number > toml_files.MOST_RUNS:
        raise UserError(
            f"a study must have at most {toml_files.MOST_RUNS:,} candidates of all arms; got "
            f"{number:,}"
        )
    contrasts: dict[str, PlannedContrast] = {}
    for table in _read_tables("contrasts", content.get("contrasts"), _CONTRAST_KEYS):
        name = _name("contrasts", table, contrasts)
        try:
            contrasts[name] = _contrast(name, table, arms)
        except UserError as error:
            raise error.within(f"contrast {name!r}: ") from error
    encoded = path.read_bytes()
    return Study(
        file=path.name,
        content=files.read_text(path),
        sha256=hashlib.sha256(encoded).hexdigest(),
        select_by=select_by,
        split=content["split"],
        seeds=seeds,
        arms=arms,
        contrasts=tuple(contrasts.values()),
    )


def _arm(
    table: Mapping[str, Any],
    shared: Mapping[str, Any],
    select_by: Metric,
    search: Callable[[Recipe, tuple[Parameter, ...]], Search],
) -> Arm:
    config = table.get("config")
    if not isinstance(config, str) or not config:
        raise UserError(field="config", must_be="a file as --config takes it", got=config)
    base = Recipe.parse(config)
    known = planned_runs.all_fields(base)
    own = toml_files.flatten("fields", table.get("fields", {}))
    values = {}
    for field, value in {**shared, **own}.items():
        _check_field(base, field, known)
        values[field] = toml_files.value_of_field(
            f"fields.{field}", value, is_tuple=isinstance(known[field], list)
        )
    space = []
    for field, parameter in search_space.flatten(table.get("space", {})).items():
        _check_field(base, field, known)
        if field in own:
            raise UserError(f"{field} is in fields and in space")
        space.append(search_space.parse(field, parameter, known[field]))
        values.pop(field, None)
    recipe = base.changed({"select_by": select_by.name, **values})
    return Arm(recipe, search(recipe, tuple(space)) if space else None)


def _check_field(base: Recipe, field: str, known: Mapping[str, Any]) -> None:
    if field in _ELSEWHERE:
        raise UserError(f"{field} cannot be a field: {_ELSEWHERE[field]} of the file sets it")
    if field not in known:
        raise UserError(f"{base.file} has no field {field!r}{kinds.did_you_mean(field, known)}")


def _contrast(name: str, table: Mapping[str, Any], arms: Mapping[str, Arm]) -> PlannedContrast:
    for key in ("first", "second"):
        # A list or a table, which TOML may have here, cannot be looked up in a mapping.
        if table.get(key) not in tuple(arms):
            hint = kinds.did_you_mean(str(table.get(key)), arms)
            raise UserError(f"{key} must be the name of an arm; got {table.get(key)!r}{hint}")
    if table["first"] == table["second"]:
        raise UserError(f"first and second are the same arm, {table['first']!r}")
    primary = table.get("primary", False)
    if not isinstance(primary, bool):
        raise UserError(field="primary", must_be="true or false", got=primary)
    equivalence = table.get("equivalence")
    if equivalence is not None and (wrong := kinds.wrong(equivalence, _POINTS)):
        raise UserError(field="equivalence", must_be=f"{wrong}, in points", got=equivalence)
    return PlannedContrast(
        name,
        table["first"],
        table["second"],
        _metric("metric", table.get("metric")),
        primary,
        None if equivalence is None else float(equivalence),
    )


def _check(study: Study, name: str, arm: Arm) -> None:
    """Refuses an arm whose runs could not be made, or would lack a metric that is needed."""
    for recipe in arm.search.recipes if arm.search else (arm.recipe,):
        labels = labels_of(planned_runs.check(PlannedRun(recipe, 0)).dataset)
        if labels != ONE:
            raise UserError(
                field="dataset.labels", must_be=f"{ONE}: a study counts single classes", got=labels
            )
    if arm.search:
        _check_ends(arm.search)
    ks = planned_runs.load(arm.recipe)["eval"]["ks"]
    for contrast in study.contrasts:
        if name in (contrast.first, contrast.second) and contrast.metric.k not in ks:
            raise UserError(
                f"its runs have no {contrast.metric.name} for the contrast {contrast.name!r}; "
                f"eval.ks has {', '.join(map(str, ks))}"
            )


def _check_ends(search: Search) -> None:
    """Refuses a space with a choice, or a reachable end, that a run cannot have."""
    some = search.recipes[0]
    for parameter in search.space:
        if isinstance(parameter, Choice):
            for value in parameter.values:
                planned_runs.check(PlannedRun(some.changed({parameter.name: value}), 0))
            continue
        for side, limit in _LIMITS.items():
            value = furthest(parameter, side)
            try:
                planned_runs.check(PlannedRun(some.changed({parameter.name: value}), 0))
            except UserError as error:
                raise UserError(
                    f"space.{parameter.name} needs another {limit}: extensions can "
                    f"reach {value:g}, and {error}"
                ) from error


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


def _integer(name: str, value: Any) -> int:
    if wrong := kinds.wrong(value, _NUMBER):
        raise UserError(field=name, must_be=wrong, got=value)
    return int(value)


def _check_single(seeds: Sequence[int]) -> Sequence[int]:
    if len(seeds) != 1:
        raise UserError(field="search_seed", must_be="one integer", got=list(seeds))
    return seeds


def _read_tables(name: str, value: Any, keys: Sequence[str]) -> list[dict[str, Any]]:
    if not value:
        raise UserError(f"{name} are missing")
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise UserError(field=name, must_be=f"tables, each below [[{name}]]", got=value)
    if len(value) > toml_files.MOST_VALUES:
        raise UserError(f"{name} must be at most {toml_files.MOST_VALUES:,}; got {len(value):,}")
    for table in value:
        try:
            toml_files.check_keys(table, keys)
        except UserError as error:
            raise error.within(f"{name}: ") from error
    return value


def _name(kind: str, table: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise UserError(f"{kind} must have a name each; got {name!r}")
    if name in known:
        raise UserError(f"{kind} has {name!r} twice")
    return name
