"""A table as it is printed, the published numbers below ours, and as it is written to JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from train.foundation.console import show_line
from train.papers.tables.collecting import CellNumbers, TableNumbers
from train.papers.tables.published import Published
from train.series import printing
from train.series.planner import Tuned
from train.series.printing import Column
from train.series.recipe import Overrides
from train.series.search import Search

_MARKS = {"above": " ▲", "below": " ▼", None: ""}


@dataclass(frozen=True)
class _Row:
    """A printed row of one or more lines: a label, and one text per column."""

    label: str
    cells: Mapping[str, str]
    is_dim: bool = False


def show(numbers: TableNumbers) -> None:
    """Prints the numbers with a legend, the searches, and what is missing."""
    table, collected = numbers.table, numbers.collected
    console = printing.console_of_tables()
    console.print(f"{table.name.capitalize()}: {table.title}")
    _show_rows(console, table.columns, list(_rows(numbers)))
    for line in _legend(numbers):
        console.print(line)
    for search, tuned in collected.searches.items():
        console.print()
        _show_search(console, search, tuned)
    for path, differing in collected.foreign.items():
        show_line(f"ignored, because its configuration differs: {path} ({'; '.join(differing)})")
    if collected.to_go:
        show_line(f"{_runs(collected.to_go)} to go; --run makes them, --plan prints how")


def _rows(numbers: TableNumbers) -> Iterator[_Row]:
    table = numbers.table
    for row, label in table.rows.items():
        of_row = {
            column: numbers.numbers[row, column]
            for column in table.columns
            if (row, column) in numbers.numbers
        }
        texts = {column: _ours(number) for column, number in of_row.items()}
        has_shots = any("\n" in text for text in texts.values())
        yield _Row(f"{label}\n  few/medium/many" if has_shots else label, texts)
        published = {
            column: _theirs(number.cell.published)
            for column, number in of_row.items()
            if number.cell.published is not None
        }
        if published:
            yield _Row("  published", published, is_dim=True)
    if numbers.best:
        best = {
            column: "\n".join([_pad(value), *_shots(shots)])
            for column, (value, shots) in numbers.best.items()
        }
        yield _Row("best possible", best)


def _ours(number: CellNumbers) -> str:
    finals = number.finals
    if not finals.tuned.has_ended:
        return "to be tuned"
    summary, count = number.values.summary, len(number.values)
    planned = count + finals.to_go + len(number.diverged)
    if summary is None:
        if finals.to_go:
            return f"{_runs(finals.to_go)} to go"
        return "diverged" if number.diverged else "-"
    notes = []
    if summary.half_width is None and planned > 1:
        notes.append("one seed")
    elif count < planned:
        notes.append(f"{count} of {planned}")
    if number.diverged:
        notes.append(f"{len(number.diverged)} diverged")
    text = _pad(summary.mean)
    if summary.half_width is not None:
        text += f" ± {summary.half_width:.2f}"
    text += _MARKS[number.differs] + (f" ({', '.join(notes)})" if notes else "")
    shots = [values.summary for values in number.shots.values()]
    return "\n".join([text, *_shots([None if one is None else one.mean for one in shots])])


def _theirs(published: Published) -> str:
    text = _pad(published.value, published.decimals)
    if published.half_width is not None:
        text += f" ± {published.half_width:.{published.decimals}f}"
    return "\n".join([text, *_shots(published.shots)])


def _pad(value: float, decimals: int = 2) -> str:
    """The value, padded so that the decimal points of a column are below each other."""
    return f"{value:.{decimals}f}".rjust(decimals + 4 if decimals else 3)


def _shots(values: Sequence[float | None]) -> Iterator[str]:
    if any(value is not None for value in values):
        texts = ("-" if value is None else f"{value:.1f}" for value in values)
        yield f" ({'/'.join(texts)})"


def _legend(numbers: TableNumbers) -> Iterator[str]:
    seeds = ", ".join(map(str, numbers.seeds))
    if len(numbers.seeds) > 1:
        yield f"Mean over the seeds {seeds} ± 95 % interval (Student's t)."
    else:
        yield f"One seed, {seeds}, without an interval."
    cells = numbers.numbers.values()
    yield from printing.selected_by(run for one in cells for run in one.finals.finished.values())
    if numbers.overrides:
        yield f"Not the recipes as they are: all runs have {', '.join(numbers.overrides)}."
    compared = [one for one in cells if one.values and one.cell.published is not None]
    differing = sum(number.differs is not None for number in compared)
    if compared:
        yield (
            "▲ ▼ above, below the published value by more than both intervals together: "
            f"{differing} of {len(compared)}. A value published without an interval is taken as "
            "exact; one seed is not compared."
        )
    if numbers.best:
        yield (
            "Best possible: the accuracy of the Bayes classifier on the test images. For macro "
            "accuracies, and few, medium and many shot, it is the best over all classes together, "
            "which some losses exceed on some of them."
        )
    if numbers.table.note:
        yield numbers.table.note


def _show_search(console: Console, search: Search, tuned: Tuned) -> None:
    """The candidates of a search with their scores; the selected one is marked."""
    [seed] = search.seeds
    in_words = f"{search.metric.in_words} (%)"
    changed = f" with {_changes(search.recipe.overrides)}" if search.recipe.overrides else ""
    console.print(
        f"Tuning of {search.recipe.file}{changed}, by the validation {in_words} of seed {seed}"
        + (f": {_runs(tuned.to_go)} to go" if tuned.to_go else "")
    )
    scores = [trials[seed].score if trials else None for trials in tuned.trials]
    texts = ["-" if score is None else _pad(100 * score) for score in scores]
    without_score = "0 of 1 runs" if tuned.to_go else "diverged"
    notes = ["" if score is not None else without_score for score in scores]
    if tuned.selected is not None:
        notes[tuned.selected] = "selected"
    columns = {
        "candidate": tuple(map(_changes, tuned.drawn.candidates)),
        in_words: tuple(texts),
        "": tuple(notes),
    }
    printing.show_columns(
        console, [Column(head, cells, is_number=False) for head, cells in columns.items()]
    )


def _show_rows(console: Console, heads: Mapping[str, str], rows: Sequence[_Row]) -> None:
    """Prints the rows, in several blocks if the columns do not fit the width."""
    columns = [
        [Column(head, tuple(row.cells.get(key, "") for row in rows), is_number=False)]
        for key, head in heads.items()
    ]
    labels = Column("", tuple(row.label for row in rows), is_number=False)
    dim = [index for index, row in enumerate(rows) if row.is_dim]
    for block in printing.in_blocks(console, [labels], columns):
        # The second line of a label belongs to some columns only.
        lines = [
            max(cell.count("\n") for cell in cells) + 1
            for cells in zip(*(column.cells for column in block), strict=True)
        ]
        shown = tuple(
            "\n".join(row.label.split("\n")[:count]) for row, count in zip(rows, lines, strict=True)
        )
        printing.show_columns(console, [replace(labels, cells=shown), *block], dim)


def _changes(overrides: Overrides) -> str:
    return ", ".join(f"{name.removeprefix('loss.')} = {value}" for name, value in overrides)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def to_plain(numbers: TableNumbers) -> dict[str, Any]:
    """The table, its numbers and its searches as plain JSON types."""
    table, collected = numbers.table, numbers.collected
    return {
        "table": table.number,
        "on": table.on,
        "title": table.title,
        "unit": "per cent",
        "interval": "95 %, Student's t over seeds",
        "seeds": list(numbers.seeds),
        "changed_in_all_runs": list(numbers.overrides),
        "cells": [
            {"row": row, "column": column, **_number_to_plain(number)}
            for (row, column), number in numbers.numbers.items()
        ],
        "best": {
            column: {"value": value, "shots": list(shots)}
            for column, (value, shots) in numbers.best.items()
        },
        "tuning": [_search_to_plain(*found) for found in collected.searches.items()],
        "runs_to_go": collected.to_go,
    }


def _number_to_plain(number: CellNumbers) -> dict[str, Any]:
    cell, published, finals = number.cell, number.cell.published, number.finals
    recipe = finals.planned[0].recipe if finals.planned else cell.recipe
    return {
        "config": recipe.file,
        "overrides": dict(recipe.overrides),
        "metric": cell.metric.to_json(),
        **number.values.to_plain(),
        "shots": {shot: values.to_plain() for shot, values in number.shots.items()},
        "published": None
        if published is None
        else {
            "value": published.value,
            "half_width": published.half_width,
            "shots": list(published.shots),
        },
        "differs": number.differs,
        "runs_to_go": finals.to_go if finals.tuned.has_ended else None,
        "diverged": list(number.diverged),
    }


def _search_to_plain(search: Search, tuned: Tuned) -> dict[str, Any]:
    return {
        "config": search.recipe.file,
        "overrides": dict(search.recipe.overrides),
        "metric": search.metric.name,
        "split": "validation",
        "seeds": list(search.seeds),
        "candidates": [
            {
                "overrides": dict(fields),
                "values": [trials[seed].score if seed in trials else None for seed in search.seeds],
            }
            for fields, trials in zip(tuned.drawn.candidates, tuned.trials, strict=True)
        ],
        "selected": None if tuned.fields is None else dict(tuned.fields),
        "runs_to_go": tuned.to_go,
    }
