"""Writes sets as lines of JSON and as a page, with a progress bar."""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rich.progress import MofNCompleteColumn, TextColumn

from train.data import reading
from train.foundation import files
from train.foundation.console import make_bar, make_console, show_line
from train.prediction.entries import Entry


def write(
    entries: Iterable[Entry],
    to_line: Callable[[Entry], dict[str, Any]],
    out: Path | None,
    page: Callable[[Iterable[Entry]], None] | None,
    *,
    total: int,
    what: str,
) -> int:
    """Writes the line of each entry; prints to standard error which images cannot be read.

    Args:
        entries: the entries.
        to_line: the line of an entry.
        out: the file for the lines; None for standard output.
        page: writes the page of the entries; None for no page.
        total: the number of examples.
        what: what the progress bar calls them.

    Returns:
        The number of images that cannot be read.
    """
    reading.ignore_warnings()
    console, unreadable = make_console(stderr=True), 0
    # If the lines go to the same terminal, they show the progress.
    is_shown = out is not None or not sys.stdout.isatty()
    bar = make_bar(console, after=[MofNCompleteColumn(), TextColumn(what)])

    def written(output: BinaryIO) -> Iterator[Entry]:
        nonlocal unreadable
        progress = bar.add_task("", total=total)
        for entry in entries:
            output.write(files.to_json(to_line(entry)))
            for file in entry.unreadable_origins:
                show_line(file["error"], console)
            unreadable += len(entry.unreadable_origins)
            bar.advance(progress, len(entry.origins) + len(entry.unreadable_origins))
            yield entry

    with bar if is_shown else contextlib.nullcontext(), _lines(out) as output:
        show = page or (lambda shown: deque(shown, maxlen=0))
        show(written(output))
    if unreadable:
        show_line(f"{unreadable:,} of {total:,} images could not be read", console)
    return unreadable


@contextlib.contextmanager
def _lines(out: Path | None) -> Iterator[BinaryIO]:
    """The file for the lines: `out`, which is replaced at the end, or standard output."""
    if out is not None:
        with files.replacing(out) as file:
            yield file
        return
    with files.name_in_errors(Path("standard output")):
        yield sys.stdout.buffer
        sys.stdout.flush()
