"""Prints a table: our numbers, and the published ones below them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from train.evaluation.metric import LOSS
from train.foundation.console import make_console, show_line
from train.papers.tables.collecting import Collected, Number
from train.papers.tables.planning import Tuned
from train.papers.tables.table import Published
from train.series.recipe import Overrides

_MARKS = {"above": " ▲", "below": " ▼", None: ""}
# Without a terminal.
_WIDTH = 100
# Between columns: a space, and one more where the box of rich draws no line.
_GAP = 2
_PADDING = (0, _GAP - 1, 0, 0)
_EDGES = 2


@dataclass(frozen=True)
class _Row:
    """A printed row of one or more lines: a label, and one text per column."""

    label: str
    cells: Mapping[str, str]
    is_dim: bool = False


def show(collected: Collected) -> None:
    """Prints the numbers with a legend, the tunings, and what is missing."""
    table = collected.table
    console = make_console(width_without_terminal=_WIDTH)
    where = f" on {table.on}" if table.on else ""
    _paragraph(console, f"Table {table.number}{where}: {table.title}")
    _show_rows(console, list(table.columns.items()), list(_rows(collected)))
    for line in _legend(collected):
        _paragraph(console, line)
    for tuned in collected.tuned:
        _paragraph(console, "")
        _show_tuned(console, tuned)
    for path, differing in collected.foreign.items():
        show_line(f"not taken, for it is another run: {path} ({'; '.join(differing)})")
    if collected.to_go:
        show_line(f"{_runs(collected.to_go)} to go; --run makes them, --plan prints how")


def _rows(collected: Collected) -> Iterator[_Row]:
    table = collected.table
    for row, label in table.rows.items():
        numbers = {
            column: collected.numbers[row, column]
            for column in table.columns
            if (row, column) in collected.numbers
        }
        texts = {column: _ours(number) for column, number in numbers.items()}
        has_shots = any("\n" in text for text in texts.values())
        yield _Row(f"{label}\n  few/medium/many" if has_shots else label, texts)
        published = {
            column: _theirs(number.cell.published)
            for column, number in numbers.items()
            if number.cell.published is not None
        }
        if published:
            yield _Row("  published", published, is_dim=True)
    if collected.best:
        best = {
            column: "\n".join([_padded(value), *_shots(shots)])
            for column, (value, shots) in collected.best.items()
        }
        yield _Row("best possible", best)


def _ours(number: Number) -> str:
    if not number.is_tuned:
        return "to be tuned"
    summary, count = number.summary, len(number.values.by_seed)
    planned = count + number.to_go + len(number.diverged)
    if summary is None:
        if number.to_go:
            return f"{_runs(number.to_go)} to go"
        return "diverged" if number.diverged else "-"
    notes = []
    if summary.half_width is None and planned > 1:
        notes.append("one seed")
    elif count < planned:
        notes.append(f"{count} of {planned}")
    if number.diverged:
        notes.append(f"{len(number.diverged)} diverged")
    text = _padded(summary.mean)
    if summary.half_width is not None:
        text += f" ± {summary.half_width:.2f}"
    text += _MARKS[number.differs] + (f" ({', '.join(notes)})" if notes else "")
    shots = [values.summary for values in number.shots.values()]
    return "\n".join([text, *_shots([None if one is None else one.mean for one in shots])])


def _theirs(published: Published) -> str:
    text = _padded(published.value, published.decimals)
    if published.half_width is not None:
        text += f" ± {published.half_width:.{published.decimals}f}"
    return "\n".join([text, *_shots(published.shots)])


def _padded(value: float, decimals: int = 2) -> str:
    """The value, padded so that the decimal points of a column are below each other."""
    return f"{value:.{decimals}f}".rjust(decimals + 4 if decimals else 3)


def _shots(values: Sequence[float | None]) -> Iterator[str]:
    if any(value is not None for value in values):
        texts = ("-" if value is None else f"{value:.1f}" for value in values)
        yield f" ({'/'.join(texts)})"


def _legend(collected: Collected) -> Iterator[str]:
    table = collected.table
    seeds = ", ".join(map(str, collected.seeds))
    if len(collected.seeds) > 1:
        yield f"Mean over the seeds {seeds} ± 95 % interval (Student's t)."
    else:
        yield f"Of the seed {seeds} alone, without an interval."
    numbers = collected.numbers.values()
    selected_by = dict.fromkeys(one.in_words for number in numbers for one in number.selected_by)
    if selected_by:
        yield f"Each run: its epoch with the best {' or '.join(selected_by)} on validation."
    if collected.overrides:
        yield f"Not the recipes as they are: all runs have {', '.join(collected.overrides)}."
    compared = [number for number in collected.numbers.values() if number.summary is not None]
    compared = [number for number in compared if number.cell.published is not None]
    differing = sum(number.differs is not None for number in compared)
    if compared:
        yield (
            "▲ ▼ above, below the published value by more than both intervals together: "
            f"{differing} of {len(compared)}. A value published without an interval is taken as "
            "exact; one seed is not compared."
        )
    if collected.best:
        yield (
            "Best possible: what the true class probabilities reach on the test images. For macro "
            "accuracies, and few, medium and many shot, it is the best over all classes together, "
            "which some losses exceed on some of them."
        )
    if table.note:
        yield table.note


def _show_tuned(console: Console, tuned: Tuned) -> None:
    """The candidates of a tuning with their scores; the selected one is marked."""
    tuning = tuned.tuning
    is_loss = tuning.metric == LOSS
    in_words = tuning.metric.in_words + ("" if is_loss else " (%)")
    seeds = ", ".join(map(str, tuning.seeds))
    changed = f" with {_changes(tuning.recipe.overrides)}" if tuning.recipe.overrides else ""
    _paragraph(
        console,
        f"Tuning of {tuning.recipe.file}{changed}, by the validation {in_words} of "
        f"{'seeds' if len(tuning.seeds) > 1 else 'seed'} {seeds}"
        + (f": {_runs(tuned.to_go)} to go" if tuned.to_go else ""),
    )
    rich_table = RichTable("candidate", Column(in_words), "", box=SIMPLE_HEAD, padding=_PADDING)
    for index, (candidate, scores) in enumerate(zip(tuning.candidates, tuned.scores, strict=True)):
        known = [score for score in scores if score is not None]
        mean = sum(known) / len(known) if known else None
        text = "-" if mean is None else f"{mean:.4g}" if is_loss else _padded(100 * mean)
        note = "selected" if index == tuned.selected else ""
        if len(known) < len(scores):
            note = f"{len(known)} of {len(scores)} runs" if tuned.to_go else "diverged"
        rich_table.add_row(_changes(candidate), text, note)
    console.print(rich_table)


def _show_rows(console: Console, columns: Sequence[tuple[str, str]], rows: Sequence[_Row]) -> None:
    """Prints the rows, in several blocks if the columns do not fit the width."""
    label_width = max(_width(row.label) for row in rows)
    widths = {
        key: max([cell_len(text), *(_width(row.cells.get(key, "")) for row in rows)])
        for key, text in columns
    }
    block: list[tuple[str, str]] = []
    used = first = label_width + _GAP + _EDGES
    for key, text in columns:
        if block and used + widths[key] + _GAP > console.width:
            console.print(_block(block, rows))
            block, used = [], first
        block.append((key, text))
        used += widths[key] + _GAP
    console.print(_block(block, rows))


def _block(columns: Sequence[tuple[str, str]], rows: Sequence[_Row]) -> RichTable:
    headers = (Column(text, no_wrap=True) for _, text in columns)
    block = RichTable(Column("", no_wrap=True), *headers, box=SIMPLE_HEAD, padding=_PADDING)
    for row in rows:
        cells = [row.cells.get(key, "") for key, _ in columns]
        # The second line of a label belongs to some columns only.
        lines = max(text.count("\n") for text in cells) + 1
        texts = ["\n".join(row.label.split("\n")[:lines]), *cells]
        block.add_row(*map(Text, texts), style="dim" if row.is_dim else None)
    return block


def _changes(overrides: Overrides) -> str:
    return ", ".join(f"{name.removeprefix('loss.')} = {value}" for name, value in overrides)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _paragraph(console: Console, text: str) -> None:
    """Prints a text that is folded where the terminal ends."""
    console.print(text)
