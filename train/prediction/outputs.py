"""Writes sets as lines of JSON and as a page, with a progress bar."""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from train.foundation import files
from train.foundation.console import make_console
from train.foundation.errors import UserError
from train.foundation.printable import printable
from train.foundation.progress_bar import counts, make_bar
from train.prediction import image_files
from train.prediction.entries import Entry
from train.workdir import output_files


def targets(
    out: str | None, html: str | None, kept: Mapping[Path, str]
) -> tuple[Path | None, Path | None]:
    """The file of the lines and the file of the page; refuses files that are kept."""
    lines, page = (
        None if value is None else output_files.checked(flag, value, kept)
        for flag, value in (("out", out), ("html", html))
    )
    if lines is not None and page is not None and lines.absolute() == page.absolute():
        raise UserError(f"--out and --html must be two files; both are {lines}")
    return lines, page


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
    image_files.ignore_warnings()
    unreadable = 0

    def written(output: BinaryIO) -> Iterator[Entry]:
        nonlocal unreadable
        bar = make_bar(
            make_console(stderr=True),
            after=counts(what),
            # If the lines go to the same terminal, they show the progress.
            shown=out is not None or not sys.stdout.isatty(),
        )
        with bar:
            progress = bar.add_task("", total=total)
            for entry in entries:
                output.write(files.to_json(to_line(entry)))
                for file in entry.unreadable_origins:
                    # rich prints it above the bar.
                    _print_error(file["error"])
                unreadable += len(entry.unreadable_origins)
                bar.advance(progress, len(entry.origins) + len(entry.unreadable_origins))
                yield entry

    with _lines(out) as output:
        show = page or (lambda shown: deque(shown, maxlen=0))
        show(written(output))
    if unreadable:
        _print_error(f"{unreadable:,} of {total:,} images could not be read")
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


def _print_error(text: str) -> None:
    # On one line, even if the name of a file has line breaks.
    print(printable(" ".join(text.split())), file=sys.stderr, flush=True)  # noqa: T201
