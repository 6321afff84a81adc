"""The cells of a comparison as people read them, in the terminal and in Markdown."""

from collections.abc import Iterator
from dataclasses import dataclass

from train.comparison.comparing import Comparison, DataSetTable, Number, Row
from train.evaluation.metric import Metric
from train.series.statistics import Summary

DIFFERENCE = "difference"
_BASELINE = "baseline"
_NONE = "-"
_PER_CENT = 100


@dataclass(frozen=True)
class Column:
    """A column of texts.

    Attributes:
        head: its head.
        cells: one for each row.
        is_number: whether its cells are numbers.
    """

    head: str
    cells: tuple[str, ...]
    is_number: bool = True


def group_columns(table: DataSetTable) -> list[Column]:
    """The fields of the groups, and their numbers of seeds."""
    fields = [
        Column(head, tuple(row.group.text(field) for row in table.rows), is_number=False)
        for field, head in table.groups.columns.items()
    ]
    return [*fields, Column("seeds", tuple(str(len(row.group.runs)) for row in table.rows))]


def metric_columns(table: DataSetTable, metric: Metric) -> list[Column]:
    """The means of a metric, and the differences to the baseline if there is one."""
    unit = " (%)" if metric.is_accuracy else ""
    means = [_mean(row, metric) for row in table.rows]
    columns = [Column(metric.in_few_words + unit, tuple(means))]
    if table.has_baseline:
        differences = [_difference(row, metric) for row in table.rows]
        columns.append(Column(DIFFERENCE, tuple(differences)))
    return columns


def legend(comparison: Comparison) -> Iterator[str]:
    """What the numbers are, one line each."""
    rows = [row for table in comparison.tables for row in table.rows]
    seeds = [len(row.group.runs) for row in rows]
    if max(seeds) > 1:
        yield "Mean over seeds ± 95 % interval (Student's t)." + (
            " One seed has no interval." if min(seeds) == 1 else ""
        )
    else:
        yield "One seed each, without an interval."
    selected_by = dict.fromkeys(
        Metric.parse(run.fields["select_by"]).in_words
        for row in rows
        for run in row.group.runs.values()
    )
    yield f"Each run: its epoch with the best {' or '.join(selected_by)} on validation."
    if any(table.has_baseline for table in comparison.tables):
        yield (
            "difference: the mean difference to the baseline ± 95 % interval, over the seeds that "
            "both have."
        )


def _mean(row: Row, metric: Metric) -> str:
    number = row.numbers[metric]
    if number.summary is None:
        return _NONE
    text = with_interval(number.summary, metric, sign="")
    count, all_seeds = len(number.values), len(row.group.runs)
    return text if count == all_seeds else f"{text} ({count} of {all_seeds} seeds)"


def _difference(row: Row, metric: Metric) -> str:
    if row.is_baseline:
        return _BASELINE
    number = row.numbers[metric]
    if number.difference is None:
        return _NONE
    return with_interval(number.difference, metric, sign="+") + _shared(number)


def _shared(number: Number) -> str:
    count = len(number.differences)
    if count == len(number.values):
        return ""
    return f" ({count} seed{'' if count == 1 else 's'})"


def with_interval(summary: Summary, metric: Metric, *, sign: str) -> str:
    """A mean with its interval, in per cent if it is an accuracy; `sign` is that of formats."""
    if metric.is_accuracy:
        mean, half_width = f"{_PER_CENT * summary.mean:{sign}.2f}", None
        if summary.half_width is not None:
            half_width = f"{_PER_CENT * summary.half_width:.2f}"
    else:
        mean, half_width = f"{summary.mean:{sign}.4g}", None
        if summary.half_width is not None:
            half_width = f"{summary.half_width:.2g}"
    return mean if half_width is None else f"{mean} ± {half_width}"
