"""A comparison for other programs: JSON, CSV and Markdown."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from train.comparison import display
from train.comparison.comparing import Comparison, DataSetTable, Row
from train.foundation.printable import printable, printable_lines
from train.series.statistics import plain_summary


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
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return printable_lines(text.getvalue())


def to_markdown(comparison: Comparison) -> str:
    """A table for each data set with the texts of the terminal, and the notes below."""
    blocks = []
    for table in comparison.tables:
        columns = display.group_columns(table)
        for metric in comparison.metrics:
            columns.extend(display.metric_columns(table, metric))
        lines = [
            f"{table.groups.data_set}, {comparison.split} split",
            "",
            _markdown_row([column.head for column in columns]),
            _markdown_row(["---:" if column.is_number else "---" for column in columns]),
            *map(_markdown_row, zip(*(column.cells for column in columns), strict=True)),
        ]
        blocks.append("\n".join(lines))
    notes = [*display.legend(comparison), *comparison.notes]
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
    # With the whole names of fields: short ones can be those of two fields in two data sets.
    has_baseline = any(one.has_baseline for one in comparison.tables)
    for row in table.rows:
        line: dict[str, Any] = {"data_set": _cell(table.groups.data_set)}
        line |= {field: _cell(row.group.text(field)) for field in table.groups.columns}
        line["seeds"] = len(row.group.runs)
        for metric, number in row.numbers.items():
            cells = {metric.name: number.values}
            if has_baseline:
                cells[f"{metric.name}_{display.DIFFERENCE}"] = number.differences
            for name, values in cells.items():
                line |= plain_summary(values.summary, name)
        yield line


def _cell(text: str) -> str:
    """A text that a spreadsheet does not compute: a name may begin as a formula does."""
    return f"'{text}" if text.startswith(("=", "+", "@")) else text


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(printable(cell).replace('|', chr(92) + '|') for cell in cells)} |"
