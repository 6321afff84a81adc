"""A comparison as it is printed, and as it is written to Markdown, CSV and JSON."""

from collections.abc import Iterable, Iterator
from typing import Any

from train.comparison.comparing import Compared, Comparison, DataSetTable, Row
from train.data.sources.table import encode_rows
from train.foundation.console import printable, printable_lines, show_line
from train.reports.metric import Metric
from train.series import printing
from train.series.printing import Column, with_interval
from train.series.statistics import plain_summary

_DIFFERENCE = "difference"
_BASELINE = "baseline"
_NONE = "-"


def show(comparison: Comparison) -> None:
    """Prints the table of each data set, what the numbers are, and the notes."""
    console = printing.console_of_tables()
    for table in comparison.tables:
        console.print(f"{table.groups.data_set}, {comparison.split} split")
        first = _group_columns(table)
        parts = (metric_columns(table, metric) for metric in comparison.metrics)
        for block in printing.in_blocks(console, first, parts):
            printing.show_columns(console, [*first, *block])
    for line in legend(comparison):
        console.print(line)
    for note in comparison.notes:
        show_line(note)


def _group_columns(table: DataSetTable) -> list[Column]:
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
        columns.append(Column(_DIFFERENCE, tuple(differences)))
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


def _shared(number: Compared) -> str:
    count = len(number.differences)
    if count == len(number.values):
        return ""
    return f" ({count} seed{'' if count == 1 else 's'})"


def to_plain(comparison: Comparison) -> dict[str, Any]:
    """All numbers as plain JSON types, as `results.json` has them: accuracies are in [0, 1]."""
    return {
        "split": comparison.split,
        "metrics": [metric.name for metric in comparison.metrics],
        "interval": "95 %, Student's t over seeds",
        "data_sets": [
            {
                "data_set": table.groups.data_set,
                "baseline": next(
                    (table.groups.label(row.group) for row in table.rows if row.is_baseline), None
                ),
                "groups": [_row_to_plain(table, row) for row in table.rows],
            }
            for table in comparison.tables
        ],
        "notes": list(comparison.notes),
    }


def to_csv(comparison: Comparison) -> str:
    """A line for each group, with the numbers as `results.json` has them."""
    rows = [line for table in comparison.tables for line in _csv_rows(comparison, table)]
    names = dict.fromkeys(name for row in rows for name in row)
    # The fields of all data sets come before the numbers.
    fields = [name for name in names if name in {"data_set", *_fields(comparison)}]
    columns = [*fields, *(name for name in names if name not in fields)]
    text = encode_rows([columns, *([row.get(name) for name in columns] for row in rows)])
    return printable_lines(text.decode())


def to_markdown(comparison: Comparison) -> str:
    """A table for each data set with the texts of the terminal, and the notes below."""
    blocks = []
    for table in comparison.tables:
        columns = _group_columns(table)
        for metric in comparison.metrics:
            columns.extend(metric_columns(table, metric))
        lines = [
            f"{table.groups.data_set}, {comparison.split} split",
            "",
            _markdown_row([column.head for column in columns]),
            _markdown_row(["---:" if column.is_number else "---" for column in columns]),
            *map(_markdown_row, zip(*(column.cells for column in columns), strict=True)),
        ]
        blocks.append("\n".join(lines))
    notes = [*legend(comparison), *comparison.notes]
    text = "\n\n".join([*blocks, "\n".join(f"- {note}" for note in notes)])
    return printable_lines(text) + "\n"


def _row_to_plain(table: DataSetTable, row: Row) -> dict[str, Any]:
    group = row.group
    return {
        "label": table.groups.label(group),
        "fields": {field: group.fields.get(field) for field in table.groups.columns},
        "runs": {str(seed): str(run.workdir) for seed, run in group.runs.items()},
        "is_baseline": row.is_baseline,
        "metrics": {
            metric.name: {
                **number.values.to_plain(),
                "difference": number.differences.to_plain() if number.differences else None,
            }
            for metric, number in row.numbers.items()
        },
    }


def _fields(comparison: Comparison) -> set[str]:
    return {field for table in comparison.tables for field in table.groups.columns}


def _csv_rows(comparison: Comparison, table: DataSetTable) -> Iterator[dict[str, Any]]:
    # With the full names of fields: a short one can stand for two fields in two data sets.
    has_baseline = any(one.has_baseline for one in comparison.tables)
    for row in table.rows:
        line: dict[str, Any] = {"data_set": table.groups.data_set}
        line |= {field: row.group.text(field) for field in table.groups.columns}
        line["seeds"] = len(row.group.runs)
        for metric, number in row.numbers.items():
            cells = {metric.name: number.values}
            if has_baseline:
                cells[f"{metric.name}_{_DIFFERENCE}"] = number.differences
            for name, values in cells.items():
                line |= plain_summary(values.summary, name) | {f"{name}_seeds": len(values)}
        yield line


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(printable(cell).replace('|', chr(92) + '|') for cell in cells)} |"
