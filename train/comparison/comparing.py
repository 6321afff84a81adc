"""The numbers of a comparison: means over seeds, and differences to a baseline in shared seeds."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from train.comparison.finding import Found, metrics
from train.comparison.grouping import Group, RunGroups, group_runs
from train.foundation.errors import UserError
from train.foundation.kinds import did_you_mean
from train.reports.metric import LOSS, SHOTS, Metric
from train.run.runs import StoredRun
from train.series.planned_runs import PlannedRun
from train.series.statistics import Values

# The number that fits a line.
_NAMED = 3
# The comma between two parts of a baseline. Values may also have commas.
_COMMA = re.compile(r",\s*(?=[\w.]+=)")


@dataclass(frozen=True)
class Compared:
    """A metric of a group.

    Attributes:
        values: the metric of the runs that have it.
        differences: the metric minus the baseline's, for the seeds that both have.
    """

    values: Values
    differences: Values


@dataclass(frozen=True)
class Row:
    """A group with its numbers.

    Attributes:
        group: the group.
        numbers: one for each metric.
        is_baseline: whether the others are compared with it.
    """

    group: Group
    numbers: Mapping[Metric, Compared]
    is_baseline: bool


@dataclass(frozen=True)
class DataSetTable:
    """The groups of one data set with their numbers.

    Attributes:
        groups: the groups.
        rows: one for each group.
    """

    groups: RunGroups
    rows: tuple[Row, ...]

    @property
    def has_baseline(self) -> bool:
        """Whether one of its groups is the baseline."""
        return any(row.is_baseline for row in self.rows)


@dataclass(frozen=True)
class Comparison:
    """Groups of runs with their numbers.

    Attributes:
        split: the split of the metrics.
        metrics: the metrics.
        tables: one for each data set.
        notes: lines for the reader: what was left out, and why.
    """

    split: str
    metrics: tuple[Metric, ...]
    tables: tuple[DataSetTable, ...]
    notes: tuple[str, ...]


def compare(
    found: Found,
    *,
    split: str,
    wanted: Sequence[Metric] | None = None,
    baseline: str | None = None,
    is_planned: bool = False,
) -> Comparison:
    """The numbers of finished runs, by data set and group.

    Args:
        found: the runs.
        split: "test" or "validation".
        wanted: the metrics; None for those that the runs selected by and their top-K accuracies.
        baseline: the group that the others are compared with, as `field=value`, several with
            commas between them; None for no comparison.
        is_planned: whether `check_planned` has found the baseline. Then it is a note, and not an
            error, that no run of it is finished.

    Raises:
        UserError: no run has one of the metrics, or the baseline is not one group.
    """
    of_data_sets, repeated = group_runs(found.finished)
    counted = [
        run for groups in of_data_sets for group in groups.groups for run in group.runs.values()
    ]
    compared = tuple(dict.fromkeys(wanted or _usual_metrics(counted, split)))
    _check_metrics(compared, counted, split)
    baselines: list[Group | None] = [None] * len(of_data_sets)
    if baseline is not None:
        baselines = _find(baseline, of_data_sets, is_planned=is_planned)
    tables = tuple(
        DataSetTable(groups, tuple(_rows(groups, compared, split, of_data_set)))
        for groups, of_data_set in zip(of_data_sets, baselines, strict=True)
    )
    notes = (
        *(f"left out: {path} ({reason})" for path, reason in found.left_out.items()),
        *(
            f"left out: {run.workdir} (the same run as {first.workdir}, with the same seed, "
            f"{run.fields['seed']})"
            for run, first in repeated
        ),
        *([] if baseline is None or any(baselines) else [f"no run of {baseline} is finished"]),
        *_missing(compared, counted, split),
        *_about_differences(tables, is_asked=baseline is not None),
        *_about_losses(compared, tables),
        *_about_shots(compared, tables, split),
    )
    return Comparison(split, compared, tables, notes)


def check_planned(
    runs: Iterable[PlannedRun], *, wanted: Sequence[Metric] | None, baseline: str | None
) -> str | None:
    """Refuses what could not be compared when the runs are made, which can take hours.

    Returns:
        The baseline by the full names of its fields: the short ones are known only while groups
        differ in them, and runs can fail.

    Raises:
        UserError: no run will have one of the metrics, or the baseline is not one group.
    """
    planned = [StoredRun(Path(run.name), run.config) for run in runs]
    ks = {k for run in planned for k in run.fields["eval.ks"]}
    for metric in wanted or ():
        if metric.k is not None and metric.k not in ks:
            raise UserError(
                f"--metrics: no run of the sweep has {metric.name}; config.eval.ks has "
                f"{', '.join(map(str, sorted(ks)))}"
            )
    if baseline is None:
        return None
    of_data_sets, _ = group_runs(planned)
    _find(baseline, of_data_sets)
    short = {head: field for groups in of_data_sets for field, head in groups.columns.items()}
    return ",".join(
        f"{short.get(name, name)}={text}" for name, text in _parse_baseline(baseline).items()
    )


def value(run: StoredRun, metric: Metric, split: str) -> float | None:
    """A metric of a run; None if the run lacks it, or it has no value."""
    found = metrics(run, split).get(metric.name)
    return None if found is None else float(found)


def _usual_metrics(runs: Iterable[StoredRun], split: str) -> list[Metric]:
    """The metrics that selected epochs, then the top-K accuracies that some run has."""
    runs = list(runs)
    selecting = dict.fromkeys(Metric.parse(run.fields["select_by"]) for run in runs)
    ks = sorted({k for run in runs for k in run.fields.get("eval.ks") or ()})
    usual = dict.fromkeys([*selecting, *(Metric.accuracy("top", k) for k in ks)])
    had = [metric for metric in usual if any(metric.name in metrics(run, split) for run in runs)]
    if not had:
        raise UserError(f"the runs have no metrics on {split}")
    return had


def _check_metrics(wanted: Iterable[Metric], runs: Sequence[StoredRun], split: str) -> None:
    known = {name for run in runs for name in metrics(run, split)}
    for metric in wanted:
        if metric.name not in known:
            hint = did_you_mean(metric.name, known)
            raise UserError(f"--metrics: no run has {metric.name} on {split}{hint}")


def _parse_baseline(baseline: str) -> dict[str, str]:
    """The values of a baseline, as texts, by the names of the fields."""
    parts = [part.partition("=") for part in _COMMA.split(baseline)]
    wanted = {name.strip(): text.strip() for name, equals, text in parts if equals}
    if len(wanted) < len(parts):
        raise UserError(
            field="--baseline",
            must_be=(
                "a field and its value, as loss=cross_entropy, or several with commas between them"
            ),
            got=baseline,
        )
    return wanted


def _find(
    baseline: str, of_data_sets: Sequence[RunGroups], *, is_planned: bool = False
) -> list[Group | None]:
    """The baseline among the groups of each data set; None if it is not among them."""
    wanted = _parse_baseline(baseline)
    found: list[Group | None] = []
    unknown: list[UserError] = []
    for groups in of_data_sets:
        try:
            matching = groups.matching(wanted)
        except UserError as error:
            unknown.append(error)
            matching = []
        if len(matching) > 1:
            raise UserError(
                f"--baseline must be one group; {baseline!r} are {len(matching)}: "
                + "; ".join(_shorten(map(groups.label, matching)))
            )
        found.append(matching[0] if matching else None)
    if is_planned:
        return found
    if len(unknown) == len(of_data_sets):
        raise UserError(f"--baseline: {unknown[0]}")
    if not any(found):
        labels = [groups.label(group) for groups in of_data_sets for group in groups.groups]
        raise UserError(
            f"--baseline: no run has {baseline!r}; the groups are {'; '.join(_shorten(labels))}"
        )
    return found


def _rows(
    groups: RunGroups, wanted: Iterable[Metric], split: str, baseline: Group | None
) -> Iterable[Row]:
    wanted = list(wanted)
    for group in groups.groups:
        numbers = {metric: _number(group, metric, split, baseline) for metric in wanted}
        yield Row(group, numbers, is_baseline=group is baseline)


def _number(group: Group, metric: Metric, split: str, baseline: Group | None) -> Compared:
    values = _values(group, metric, split)
    if baseline is None or group is baseline or not _are_comparable(group, baseline, metric):
        return Compared(values, Values())
    theirs = _values(baseline, metric, split)
    shared = [seed for seed in values if seed in theirs]
    return Compared(values, Values({seed: values[seed] - theirs[seed] for seed in shared}))


def _values(group: Group, metric: Metric, split: str) -> Values:
    return Values.known({seed: value(run, metric, split) for seed, run in group.runs.items()})


def _are_comparable(group: Group, other: Group, metric: Metric) -> bool:
    """Whether a difference of the metric has a meaning, as it has not between two kinds of loss."""

    def loss(of: Group) -> dict[str, object]:
        # Losses are evaluated without label smoothing and weights.
        return {
            name: value
            for name, value in of.fields.items()
            if name.startswith("loss.")
            and not name.startswith(("loss.label_smoothing", "loss.class_weights"))
        }

    return metric != LOSS or loss(group) == loss(other)


def _missing(wanted: Iterable[Metric], runs: Sequence[StoredRun], split: str) -> Iterable[str]:
    for metric in wanted:
        without = [run.workdir for run in runs if value(run, metric, split) is None]
        if without:
            yield f"without {metric.name} on {split}: {_join_paths(without)}"


def _about_differences(tables: Sequence[DataSetTable], *, is_asked: bool) -> Iterable[str]:
    for table in tables if is_asked else ():
        baseline = next((row.group for row in table.rows if row.is_baseline), None)
        if baseline is None:
            yield f"no baseline among the runs on {table.groups.data_set}"
            continue
        for row in table.rows:
            if not row.is_baseline and not row.group.runs.keys() & baseline.runs.keys():
                yield f"no seed shared with the baseline: {table.groups.label(row.group)}"


def _about_losses(wanted: Iterable[Metric], tables: Sequence[DataSetTable]) -> Iterable[str]:
    groups = [row.group for table in tables for row in table.rows]
    if LOSS in wanted and not all(_are_comparable(groups[0], group, LOSS) for group in groups):
        yield "each run has its own loss: values of different losses cannot be compared"


def _about_shots(
    wanted: Iterable[Metric], tables: Sequence[DataSetTable], split: str
) -> Iterable[str]:
    """The numbers of classes and examples of the means over few, medium and many shot classes."""
    averages = {metric.average for metric in wanted}
    for table in tables:
        runs = [run for row in table.rows for run in row.group.runs.values()]
        for shot in SHOTS:
            if shot in averages:
                sizes = sorted({size for run in runs if (size := _group_size(run, split, shot))})
                listed = [
                    f"{_format_count(classes, 'class', 'classes')} with "
                    f"{_format_count(examples, 'example', 'examples')}"
                    for classes, examples in sizes
                ]
                if listed:
                    yield (
                        f"{shot} on {table.groups.data_set}, {split} split: the mean over "
                        + " or ".join(_shorten(listed))
                    )


def _group_size(run: StoredRun, split: str, group: str) -> tuple[int, int] | None:
    """The classes of a group and their examples in a split of a run; None in earlier versions."""
    groups = run.results.get("evaluated", {}).get(split, {}).get("groups", {})
    return (groups[group]["classes"], groups[group]["examples"]) if group in groups else None


def _format_count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _join_paths(paths: Sequence[Path]) -> str:
    return ", ".join(_shorten(map(str, paths)))


def _shorten(texts: Iterable[str]) -> list[str]:
    texts = list(texts)
    more = len(texts) - _NAMED
    return texts[:_NAMED] + ([f"and {more} more"] if more > 0 else [])
