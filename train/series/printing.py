"""Prints tables whose columns may not fit the terminal, with a note about their numbers."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from train.foundation.console import make_console
from train.reports.metric import Metric
from train.run.runs import StoredRun
from train.series.statistics import Summary

_PER_CENT = 100
# Between columns: a space, and one more in place of the line that rich's box does not draw.
_GAP = 2
_PADDING = (0, _GAP - 1, 0, 0)
_EDGES = 2


@dataclass(frozen=True)
class Column:
    """A column of texts, which may have several lines.

    Attributes:
        head: its head.
        cells: one for each row.
        is_number: whether its cells are numbers.
    """

    head: str
    cells: tuple[str, ...]
    is_number: bool = True


def console_of_tables() -> Console:
    """Standard output, with room for a table if it is not a terminal."""
    return make_console(width_without_terminal=100)


def in_blocks(
    console: Console, first: Sequence[Column], parts: Iterable[Sequence[Column]]
) -> Iterator[list[Column]]:
    """The columns, in several blocks if they do not fit the width beside the first ones.

    Args:
        console: where the blocks are printed.
        first: the columns at the start of every block; they are not returned.
        parts: columns that stay together.
    """
    block: list[Column] = []
    for part in parts:
        if block and _width([*first, *block, *part]) > console.width:
            yield block
            block = []
        block.extend(part)
    yield block


def show_columns(console: Console, columns: Sequence[Column], dim: Collection[int] = ()) -> None:
    """Prints a table that may be wider than the terminal, and is never cut.

    Args:
        console: where to print it.
        columns: its columns.
        dim: the indices of the rows that are less important.
    """
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
    for index, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        block.add_row(*map(Text, cells), style="dim" if index in dim else None)
    console.print(block, crop=False)


def with_interval(summary: Summary, metric: Metric, *, sign: str) -> str:
    """A mean with its interval, in per cent if it is an accuracy; `sign` is a format's."""
    if metric.is_accuracy:
        mean, half_width = f"{_PER_CENT * summary.mean:{sign}.2f}", None
        if summary.half_width is not None:
            half_width = f"{_PER_CENT * summary.half_width:.2f}"
    else:
        mean, half_width = f"{summary.mean:{sign}.4g}", None
        if summary.half_width is not None:
            half_width = f"{summary.half_width:.2g}"
    return mean if half_width is None else f"{mean} ± {half_width}"


def selected_by(runs: Iterable[StoredRun]) -> Iterator[str]:
    """A line about the metric that selected the runs' epochs; none without runs."""
    metrics = dict.fromkeys(Metric.parse(run.fields["select_by"]).in_words for run in runs)
    if metrics:
        yield f"Each run: its epoch with the best {' or '.join(metrics)} on validation."


def _width(columns: Sequence[Column]) -> int:
    widths = (
        max(cell_len(line) for text in (column.head, *column.cells) for line in text.split("\n"))
        for column in columns
    )
    return sum(width + _GAP for width in widths) + _EDGES
