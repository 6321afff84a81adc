"""Prints a comparison."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from train.comparison import texts
from train.comparison.comparing import Comparison, DataSetTable
from train.comparison.texts import Column
from train.evaluation.metric import Metric
from train.foundation.console import make_console, show_line

# Without a terminal.
WIDTH = 100
# Between columns: a space, and one more where the box of rich draws no line.
_GAP = 2
_PADDING = (0, _GAP - 1, 0, 0)
_EDGES = 2


def show(comparison: Comparison) -> None:
    """Prints the table of each data set, what the numbers are, and the notes."""
    console = make_console(width_without_terminal=WIDTH)
    for table in comparison.tables:
        title = f"{table.groups.data_set}, {comparison.split} split"
        console.print(title)
        _show(console, table, comparison.metrics)
    for line in texts.legend(comparison):
        console.print(line)
    for note in comparison.notes:
        show_line(note)


def _show(console: Console, table: DataSetTable, metrics: Sequence[Metric]) -> None:
    """Prints the rows, in several blocks if the columns do not fit the width."""
    first = texts.group_columns(table)
    block: list[Column] = []
    for metric in metrics:
        columns = texts.metric_columns(table, metric)
        if block and _width([*first, *block, *columns]) > console.width:
            show_columns(console, [*first, *block])
            block = []
        block.extend(columns)
    show_columns(console, [*first, *block])


def show_columns(console: Console, columns: Sequence[Column]) -> None:
    """Prints a table that may be wider than the terminal, and is never cut."""
    block = RichTable(
        *(
            RichColumn(column.head, justify="right" if column.is_number else "left", no_wrap=True)
            for column in columns
        ),
        box=SIMPLE_HEAD,
        padding=_PADDING,
        # Wider than the terminal rather than cut.
        width=width if (width := _width(columns)) > console.width else None,
    )
    for cells in zip(*(column.cells for column in columns), strict=True):
        block.add_row(*map(Text, cells))
    console.print(block, crop=False)


def _width(columns: Sequence[Column]) -> int:
    widths = (max(map(cell_len, (column.head, *column.cells))) for column in columns)
    return sum(width + _GAP for width in widths) + _EDGES
