"""Writes sets as lines of JSON and as a page, with a progress bar."""

import contextlib
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from rich.progress import MofNCompleteColumn, TextColumn

from train.data import reading
from train.foundation import files
from train.foundation.console import make_bar, make_console, show_line
from train.prediction.entries import Entry
from train.prediction.set_page import PageFacts

# How many sets are printed beside a file, and how many classes of each.
_SHOWN, _MOST = 5, 5


def write(
    entries: Iterable[Entry],
    to_line: Callable[[Entry], dict[str, Any]],
    out: Path | None,
    page: Callable[[Iterable[Entry]], None] | None,
    *,
    total: int,
    facts: PageFacts,
) -> int:
    """Writes the line of each entry; prints to standard error which images cannot be read.

    Beside a file or a page, standard output has the first sets and the promise; else the lines.

    Args:
        entries: the entries.
        to_line: the line of an entry.
        out: the file for the lines; None for no file.
        page: writes the page of the entries; None for no page.
        total: the number of examples.
        facts: the rule, and what examples and classes are called.

    Returns:
        The number of images that cannot be read.
    """
    reading.ignore_warnings()
    console, unreadable, first = make_console(stderr=True), 0, list[Entry]()
    has_file, sizes = out is not None or page is not None, Counter[int]()
    # If the lines go to the same terminal, they show the progress.
    is_shown = has_file or not sys.stdout.isatty()
    bar = make_bar(console, after=[MofNCompleteColumn(), TextColumn(f"{facts.what}s")])

    def written(output: BinaryIO | None) -> Iterator[Entry]:
        nonlocal unreadable
        progress = bar.add_task("", total=total)
        for entry in entries:
            if output is not None:
                output.write(files.to_json(to_line(entry)))
            for file in entry.unreadable_origins:
                show_line(file["error"], console)
            unreadable += len(entry.unreadable_origins)
            if entry.probabilities is not None:
                sizes[len(entry.classes)] += 1
                if len(first) < _SHOWN:
                    first.append(entry)
            bar.advance(progress, len(entry.origins) + len(entry.unreadable_origins))
            yield entry

    with bar if is_shown else contextlib.nullcontext(), _lines(out, page is not None) as output:
        show = page or (lambda shown: deque(shown, maxlen=0))
        show(written(output))
    if unreadable:
        show_line(f"{unreadable:,} of {total:,} images could not be read", console)
    if has_file:
        _show(first, sizes, facts)
    return unreadable


def _show(first: Sequence[Entry], sizes: Counter[int], facts: PageFacts) -> None:
    """Prints some sets, how large all are, and what the rule promises."""
    width = max((len(one.title) for one in first), default=0)
    for one in first:
        assert one.probabilities is not None
        members = [
            f"{facts.names[index]} ({one.probabilities[index]:.1%})"
            for index in one.classes[:_MOST]
        ]
        more = len(one.classes) - len(members)
        members += [f"{more:,} more"] if more else []
        show_line(f"{one.title:<{width}}  {', '.join(members) or 'no class'}")
    if sizes:
        mean = sum(size * count for size, count in sizes.items()) / sizes.total()
        show_line(
            f"{sizes.total():,} sets: {mean:.3g} classes on average, at most {max(sizes):,}, "
            f"{sizes[0]:,} empty"
        )
    show_line(facts.rule.in_words)


@contextlib.contextmanager
def _lines(out: Path | None, has_page: bool) -> Iterator[BinaryIO | None]:
    """Where the lines go: `out`, which is replaced at the end, or standard output, or nowhere."""
    if out is not None:
        with files.replacing(out) as file:
            yield file
        return
    if has_page:
        yield None
        return
    with files.name_in_errors(Path("standard output")):
        yield sys.stdout.buffer
        sys.stdout.flush()
