"""The tables of the thesis, and the runs of three of its figures, as studies.

Rows times columns are the arms; a cell is a metric of the runs of its arm, beside the number of the
thesis. `published.toml` has all of it.
"""

import functools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from train.foundation import kinds
from train.foundation.console import show_line
from train.foundation.errors import UserError, within
from train.foundation.nested import flatten
from train.reports.metric import SHOTS, Average, Metric
from train.reports.outcomes import Outcomes
from train.run import run_folder
from train.run.runs import StoredRun, all_fields
from train.study import plan, tables
from train.study.plan import Arm, Study
from train.study.statistics import mean
from train.training.losses import LOSSES


@dataclass(frozen=True)
class Column:
    """What the numbers of a column are.

    Attributes:
        metric: the metric of its runs.
        fields: the fields of the recipe that it changes; those of losses only where a loss has
            them.
        images: only classes with more training images than the first number, up to the second.
    """

    metric: Metric
    fields: Mapping[str, Any]
    images: tuple[float, float] | None = None


@dataclass(frozen=True)
class Table:
    """A table of the thesis, or the runs of one of its figures.

    Attributes:
        title: its number in the thesis and what it shows.
        recipe: the recipe of a cell, in which {row} and {column} are the heads.
        rows: losses, or networks.
        columns: by their heads.
        seeds: the seeds of each cell.
        split: the split of the metrics.
        fields: the fields that are changed in all runs, where their data or loss have them.
        shots: whether a number is also given for the classes of few, medium and many shots.
        published: the numbers as the thesis prints them, by row and column.
        note: what a reader of them must know.
        overrides: the fields that the user changes in all runs, with their values as texts;
            `{model.name}` in one is the network of the run.
    """

    title: str
    recipe: str
    rows: Sequence[str]
    columns: Mapping[str, Column]
    seeds: Sequence[int]
    split: str = "test"
    fields: Mapping[str, Any] = field(default_factory=dict)
    shots: bool = False
    published: Mapping[tuple[str, str], str] = field(default_factory=dict)
    note: str = ""
    overrides: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def arms(self) -> dict[tuple[str, str], Arm]:
        """The runs of each cell, by row and column."""
        return {(row, head): self._arm(row, head) for row in self.rows for head in self.columns}

    def study(self) -> Study:
        """All runs of the table; cells with the same runs are one arm.

        Raises:
            UserError: the configuration of a run is not possible.
        """
        arms = {arm.run({}, 0).key: arm for arm in self.arms.values()}
        study = Study(seeds=tuple(self.seeds), arms=tuple(arms.values()))
        plan.check(study)
        return study

    def with_recipe(self, recipe: str) -> "Table":
        """The table with another recipe that takes its rows, such as synthetic_species.

        Columns are left out if the recipe lacks a field of theirs or does not evaluate their K.

        Raises:
            UserError: the recipe does not take the rows, or no column is left.
        """
        if self.rows[0] not in LOSSES:
            raise UserError(f"--on is for tables of losses; of networks is {self.title}")
        with within(f"--on={recipe}: "):
            config = Arm("", f"{recipe}:{self.rows[0]}").run({}, 0).config
        usual, ks = dict(flatten(config)), all_fields(config)["eval.ks"]
        columns = {
            head: column
            for head, column in self.columns.items()
            if column.metric.k in ks
            and all(name in usual or name.startswith("loss.") for name in column.fields)
        }
        if not columns:
            must_be = f"a recipe with the fields and the K of a column of {self.title}"
            raise UserError(field="--on", must_be=must_be, got=recipe)
        return replace(
            self,
            title=f"{self.title}; here with the recipe {recipe}",
            recipe=f"{recipe}:{{row}}",
            columns=columns,
            published={},
            note="",
        )

    def _arm(self, row: str, head: str) -> Arm:
        recipe = self.recipe.replace("{row}", row).replace("{column}", head)
        usual = dict(flatten(Arm("", recipe).run({}, 0).config))
        # A recipe may have parameters of other losses, too.
        taken = {f"loss.{one}" for one in LOSSES[row].parameters} if row in LOSSES else set()
        fields = {
            name: value
            for name, value in {**self.fields, **self.columns[head].fields}.items()
            if name in (taken if name.startswith("loss.") else usual)
        }
        changed = {
            name: text.replace("{model.name}", usual["model.name"])
            for name, text in self.overrides.items()
        }
        return Arm(f"{row}, {head}", recipe, {**fields, **changed})


def _table(entry: dict[str, Any]) -> Table:
    """A table as `published.toml` has it: what differs between its columns is in lists."""
    heads, metric, by = entry.pop("columns"), entry.pop("metric"), entry.pop("by", {})
    images, published = entry.pop("images", None), entry.pop("published", {})
    columns = {
        head: Column(
            Metric.parse(metric if isinstance(metric, str) else metric[index]),
            {name: values[index] for name, values in by.items()},
            images[index] if images else None,
        )
        for index, head in enumerate(heads)
    }
    numbers = {
        (row, head): text
        for row, texts in published.items()
        for head, text in zip(heads, texts, strict=True)
    }
    rows, seeds = entry.pop("rows", [*published]), range(entry.pop("seeds"))
    return Table(rows=rows, columns=columns, seeds=seeds, published=numbers, **entry)


_FILE = Path(__file__).with_name("published.toml")
TABLES = {
    number: _table(entry)
    for number, entry in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
}
NETWORKS = TABLES["3.1"].rows


def find(
    number: str,
    *,
    on: str | None = None,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Table:
    """The table that flags name, as far as they name it.

    Args:
        number: the number in the thesis.
        on: another recipe than the thesis'.
        rows: only these rows.
        columns: only these columns, by their heads.
        seeds: other seeds than the thesis'.
        overrides: see `Table`.

    Raises:
        UserError: there is no such table, row or column, or the table itself sets such a field.
    """
    _check("--table", [number], TABLES)
    table = TABLES[number] if on is None else TABLES[number].with_recipe(on)
    _check("--rows", rows, table.rows)
    _check("--columns", columns, table.columns)
    own = {"seed", *table.fields, *(name for one in table.columns.values() for name in one.fields)}
    if fixed := sorted(own & set(overrides or {})):
        raise UserError(f"--override cannot change {fixed[0]}, which the table itself sets")
    return replace(
        table,
        rows=rows or table.rows,
        columns={head: table.columns[head] for head in columns or table.columns},
        seeds=seeds or table.seeds,
        overrides=overrides or {},
    )


def _check(flag: str, given: Sequence[str] | None, known: Iterable[str]) -> None:
    for value in () if given is None else given or ("",):
        if wrong := kinds.wrong(value, kinds.one_of(known)):
            raise UserError(field=flag, must_be=wrong, got=value)


def value_of(published: str) -> tuple[float, float]:
    """A published number, as `36.3±0.3 (12.6/42.9/71.7)`, and half its interval; 0 without one."""
    number, _, half_width = published.split(maxsplit=1)[0].partition("±")
    return float(number), float(half_width or 0)


def show(console: Console, table: Table, finished: Mapping[str, StoredRun]) -> None:
    """Prints the means over seeds, the published numbers below them, and what a reader must know.

    Args:
        console: where it is printed.
        table: the table.
        finished: finished runs of the table by their keys.
    """
    body = []
    for row in table.rows:
        ours = [_cell(table, (row, head), finished) for head in table.columns]
        body.append([row + "\n  few/medium/many" * table.shots, *ours])
        theirs = [table.published.get((row, head), "") for head in table.columns]
        if any(theirs):
            body.append(["  published", *(one.replace(" ", "\n") for one in theirs)])
    # It is the same in all runs.
    best = next((run.results["bayes"] for run in finished.values() if "bayes" in run.results), None)
    if best is not None:
        metrics = [column.metric for column in table.columns.values()]
        values = [mean([best[one.name]] if one.name in best else []) for one in metrics]
        texts = (tables.with_interval(one, of) for one, of in zip(values, metrics, strict=True))
        body.append(["best possible", *texts])
    show_line(table.title, console)
    tables.print_table(console, ["", *table.columns], body, 1)
    seeds = ", ".join(map(str, table.seeds))
    notes = [f"Mean over the seeds {seeds} ± 95 % interval (Student's t)."]
    if len(table.seeds) == 1:
        notes = [f"One seed, {seeds}: no interval."]
    if table.overrides:
        changed = ", ".join(f"{name}={value}" for name, value in table.overrides.items())
        notes.append(f"Not the recipes as they are: all runs have {changed}.")
    if table.published:
        notes.append(
            "▲ ▼ above, below the published value by more than both intervals together. A value "
            "published without an interval is taken as exact; one seed is not compared."
        )
    for note in filter(None, [*notes, table.note.strip()]):
        show_line(note, console)


def _cell(table: Table, place: tuple[str, str], finished: Mapping[str, StoredRun]) -> str:
    """The mean of a cell, whether it differs from the published one, and what seeds it is of."""
    keys = [table.arms[place].run({}, seed).key for seed in table.seeds]
    runs = [finished[key] for key in keys if key in finished]
    if not runs:
        return "no run"
    values, metric = _values(table, place[1], runs), table.columns[place[1]].metric
    ours = mean(values)
    text = tables.with_interval(ours, metric)
    if len(values) > 1 and place in table.published:
        theirs, half_width = value_of(table.published[place])
        above = 100 * ours.value - theirs
        if abs(above) > 100 * ours.half_width + half_width:
            text += " ▲" if above > 0 else " ▼"
    if 0 < len(values) < len(keys):
        text += f" ({len(values)} of {len(keys)} seeds)"
    if table.shots:
        shots = [_values(table, place[1], runs, average) for average in SHOTS]
        text += f"\n({'/'.join(f'{100 * np.mean(one):.1f}' if one else '-' for one in shots)})"
    return text


def _values(
    table: Table, head: str, runs: Sequence[StoredRun], average: Average | None = None
) -> list[float]:
    """The numbers of runs in a column, without those that no example counts for."""
    column = table.columns[head]
    metric = column.metric if average is None else replace(column.metric, average=average)
    if column.images is None:
        found = [run.results[table.split][metric.name] for run in runs]
    else:
        found = [_of_classes(run, table.split, metric, *column.images) for run in runs]
    return [float(value) for value in found if value is not None]


def _of_classes(
    run: StoredRun, split: str, metric: Metric, above: float, most: float
) -> float | None:
    """The accuracy on the examples of classes with numbers of training images within bounds."""
    outcomes = Outcomes.read(run_folder.outcomes(run.workdir, split))
    counts = np.array(run_folder.read_classes(run.workdir).training_images)[outcomes.labels]
    hits = outcomes.hits(metric)[(above < counts) & (counts <= most)]
    return float(hits.mean()) if hits.size else None
