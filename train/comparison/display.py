"""Prints a comparison: the cells of its tables, as in the terminal so in Markdown."""

from collections.abc import Iterator

from train.comparison.comparing import Comparison, DataSetTable, Number, Row
from train.evaluation.metric import Metric
from train.foundation.console import show_line
from train.series import printing
from train.series.printing import Column, with_interval

DIFFERENCE = "difference"
_BASELINE = "baseline"
_NONE = "-"


def show(comparison: Comparison) -> None:
    """Prints the table of each data set, what the numbers are, and the notes."""
    console = printing.console_of_tables()
    for table in comparison.tables:
        console.print(f"{table.groups.data_set}, {comparison.split} split")
        first = group_columns(table)
        parts = (metric_columns(table, metric) for metric in comparison.metrics)
        for block in printing.in_blocks(console, first, parts):
            printing.show_columns(console, [*first, *block])
    for line in legend(comparison):
        console.print(line)
    for note in comparison.notes:
        show_line(note)


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
    groups = [row.group for table in comparison.tables for row in table.rows]
    seeds = [len(group.runs) for group in groups]
    if max(seeds) > 1:
        yield "Mean over seeds ± 95 % interval (Student's t)." + (
            " One seed has no interval." if min(seeds) == 1 else ""
        )
    else:
        yield "One seed each, without an interval."
    yield from printing.selected_by(run for group in groups for run in group.runs.values())
    if any(table.has_baseline for table in comparison.tables):
        yield (
            "difference: the mean difference to the baseline ± 95 % interval, over the seeds that "
            "both have."
        )


def _mean(row: Row, metric: Metric) -> str:
    values = row.numbers[metric].values
    if values.summary is None:
        return _NONE
    text = with_interval(values.summary, metric, sign="")
    all_seeds = len(row.group.runs)
    return text if len(values) == all_seeds else f"{text} ({len(values)} of {all_seeds} seeds)"


def _difference(row: Row, metric: Metric) -> str:
    if row.is_baseline:
        return _BASELINE
    number = row.numbers[metric]
    if number.differences.summary is None:
        return _NONE
    return with_interval(number.differences.summary, metric, sign="+") + _shared(number)


def _shared(number: Number) -> str:
    count = len(number.differences)
    if count == len(number.values):
        return ""
    return f" ({count} seed{'' if count == 1 else 's'})"
